//! What a supervisor is told (`sd_notify(3)`): a socket of the test's own takes systemd's place.

#![cfg(target_os = "linux")]

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::Command,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use ackonce::{
    Stop, Verdict, Worker, handler,
    ledger::sqlite::{SqliteLedger, SqliteOptions},
    notify::{Supervisor, Told},
    worker::signs::Signs,
};
use rustix::process::Signal;
use tokio::sync::watch;

use crate::harness::{LIMIT, Path, Process, SLOW, Way, World, ackonce, until};

/// A supervisor that keeps what it is told.
struct Ears {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Ears {
    fn at(world: &World) -> Self {
        Self::on(UnixDatagram::bind(world.path("notify")).unwrap())
    }

    fn on(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Self { socket, heard: Vec::new() }
    }

    /// Takes in what has come.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..length]).expect("text");
            self.heard.extend(text.lines().map(str::to_owned));
        }
    }

    /// Waits for a line that begins so, after the first `skip` lines; returns it with its place.
    async fn until(&mut self, begin: &str, skip: usize) -> (usize, String) {
        let mut found = None;
        until(&format!("the supervisor is told '{begin}'"), LIMIT, async || {
            self.listen();
            found = (skip..self.heard.len()).find(|place| self.heard[*place].starts_with(begin));
            found.is_some()
        })
        .await;
        let place = found.expect("found");
        (place, self.heard[place].clone())
    }

    fn count(&mut self, line: &str) -> usize {
        self.listen();
        self.heard.iter().filter(|heard| *heard == line).count()
    }
}

fn supervised(world: &World, arguments: &[&str]) -> Process {
    world.worker_with(
        |command| {
            command.env("NOTIFY_SOCKET", world.path("notify"));
        },
        arguments,
    )
}

/// Ready when it is set up, though the broker is silent; then in words what it waits for, and what it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_is_told_ready_and_how_things_are() {
    let mut world = World::new("notify").await;
    let mut ears = Ears::at(&world);
    let broker = world.url.rsplit(['/', '@']).find(|part| part.contains(':')).unwrap().to_owned();
    let path = Path::to(broker).await;
    path.set(Way::Silent);
    world.url = format!("amqp://127.0.0.1:{}", path.port);
    let worker = supervised(&world, &["--log"]);
    let (ready, _) = ears.until("READY=1", 0).await;
    let away = format!("STATUS={}: no session with the broker since ", world.queue);
    let (waiting, line) = ears.until(&away, 0).await;
    assert!(line.ends_with("Z: still connecting"), "{line}");
    assert!(ready < waiting && !worker.said().contains("consuming from"), "{}", worker.said());

    path.set(Way::Open);
    path.cut();
    let consuming = format!("STATUS=consuming from {}", world.queue);
    let (first, _) = ears.until(&consuming, 0).await;
    path.set(Way::Silent);
    path.cut();
    let (lost, _) = ears.until(&away, first).await;
    path.set(Way::Open);
    path.cut();
    ears.until(&consuming, lost).await;
    worker.terminate().await.expect_exit(0);
    ears.listen();
    assert_eq!(ears.count("READY=1"), 1, "{:?}", ears.heard);
    assert_eq!(ears.count("WATCHDOG=1"), 0, "nobody asked for it: {:?}", ears.heard);
}

/// A drain is told at once, with what is left, and time is asked for; a handler is not given the socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_told_and_asks_for_time() {
    let world = World::new("notify.drain").await;
    let mut ears = Ears::at(&world);
    let worker = supervised(&world, &["--exec", &world.handler(&format!("env > env\n{SLOW}"), "")]);
    ears.until("STATUS=consuming from", 0).await;
    world.publish("a", b"x").await;
    until("it runs", LIMIT, async || world.lines("started").len() == 1).await;
    assert!(!world.lines("env").iter().any(|line| line.starts_with("NOTIFY_SOCKET")));
    worker.signal(Signal::TERM);
    let (stopping, _) = ears.until("STOPPING=1", 0).await;
    ears.until("STATUS=draining, messages under way: 1", stopping).await;
    // The first one moves the limit, the second one shows that it goes on.
    let (first, _) = ears.until("EXTEND_TIMEOUT_USEC=15000000", stopping).await;
    ears.until("EXTEND_TIMEOUT_USEC=15000000", first + 1).await;
    assert_eq!(ears.heard.iter().position(|line| line.starts_with("EXTEND")), Some(first));
    world.touch("go");
    worker.ended(LIMIT).await.expect_exit(0);
}

/// A SIGHUP is told as a reload with its time, and its end, whether the configuration was good or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_is_told_from_its_begin_to_its_end() {
    let world = World::new("notify.reload").await;
    let mut ears = Ears::at(&world);
    let file = world.path("ackonce.toml");
    let write = |top: &str| {
        let worker = format!("{top}\n[[worker]]\nqueue = \"{}\"\nlog = true\n", world.queue);
        std::fs::write(&file, worker).unwrap();
    };
    write("");
    let worker = supervised(&world, &["--config", file.to_str().unwrap()]);
    let (mut seen, _) = ears.until("STATUS=consuming from", 0).await;
    for (top, says) in
        [("log_level = \"debug\"", "read the configuration again"), ("nonsense = 1", "stays as it was")]
    {
        write(top);
        worker.signal(Signal::HUP);
        let (reloading, _) = ears.until("RELOADING=1", seen).await;
        let (time, _) = ears.until("MONOTONIC_USEC=", reloading).await;
        let (ready, _) = ears.until("READY=1", reloading).await;
        assert!(time == reloading + 1 && ready > time, "{:?}", ears.heard);
        worker.until_said(says).await;
        seen = ready;
    }
    worker.terminate().await.expect_exit(0);
}

/// A name in the abstract namespace is as good as a path; what is neither is warned of and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_abstract_socket_is_reached_and_a_bad_one_is_no_obstacle() {
    let world = World::new("notify.name").await;
    let name = format!("ackonce-test-{}-{}", std::process::id(), world.queue);
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut ears = Ears::on(UnixDatagram::bind_addr(&address).unwrap());
    let at = |address: String| {
        world.worker_with(
            |command| {
                command.env("NOTIFY_SOCKET", address);
            },
            &["--log"],
        )
    };
    let worker = at(format!("@{name}"));
    ears.until("READY=1", 0).await;
    worker.terminate().await.expect_exit(0);
    for (bad, says) in [
        ("vsock:2:1234".to_owned(), "NOTIFY_SOCKET cannot be used"),
        (world.path("nobody").display().to_string(), "the supervisor cannot be told anything"),
    ] {
        let worker = at(bad);
        worker.until_consuming().await;
        worker.until_said(says).await;
        let ended = worker.terminate().await;
        ended.expect_exit(0);
        assert_eq!(ended.said.matches(says).count(), 1, "{}", ended.said);
    }
}

/// The command of a worker with a watchdog of 0.4 s for that process; `$$` is the worker's own, as systemd sets it.
fn watched(world: &World, pid: &str) -> Process {
    let mut command = Command::new("/bin/sh");
    let program = ackonce();
    command.args(["-c", &format!("WATCHDOG_PID={pid} exec \"$0\" \"$@\"")]);
    command.arg(program.get_program()).args(["run", "--url", &world.url, "--queue", &world.queue, "--log"]);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("NOTIFY_SOCKET", world.path("notify")).env("WATCHDOG_USEC", "400000");
    command.current_dir(world.folder.path());
    Process::start(command, world.folder.path())
}

/// Signs of life come while it lives, end with a process that stands still, and are not given for another process.
/// It starts itself again once for deep stacks, which keeps its process id.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_is_fed_by_a_process_that_lives() {
    let world = World::new("notify.dog").await;
    let mut ears = Ears::at(&world);
    let worker = watched(&world, "$$");
    until("five signs of life", LIMIT, async || ears.count("WATCHDOG=1") >= 5).await;
    worker.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", worker.pid());
    until("it stands still", LIMIT, async || std::fs::read_to_string(&stat).unwrap().contains(") T ")).await;
    let before = ears.count("WATCHDOG=1");
    ears.socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert!(ears.socket.recv(&mut [0; 64]).is_err(), "a process that stands still gives a sign of life");
    ears.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    worker.signal(Signal::CONT);
    until("it lives again", LIMIT, async || ears.count("WATCHDOG=1") > before + 2).await;
    worker.terminate().await.expect_exit(0);

    ears.listen();
    ears.heard.clear();
    let other = watched(&world, "1");
    ears.until("STATUS=consuming", 0).await;
    other.terminate().await.expect_exit(0);
    assert_eq!(ears.count("WATCHDOG=1"), 0, "{:?}", ears.heard);
}

/// The process lives, but the loop of its worker is stuck: no sign of life, and the status says why.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_starves_when_a_loop_is_stuck() {
    let world = World::new("notify.stuck").await;
    let mut ears = Ears::at(&world);
    let ledger = Arc::new(SqliteLedger::open(world.path("ackonce.db"), SqliteOptions::default()).unwrap());
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let handler = handler::function(move |_| {
        // Not in the future: here it holds the loop itself up.
        let _ = gate.lock().unwrap().recv();
        async { Verdict::Done }
    });
    let mut worker = Worker::new(&world.url, &world.queue, handler, ledger).unwrap();
    let signs = Arc::new(Signs::new(|_, _| {}));
    worker.signs = Some(signs.clone());
    let (stop, stopped) = watch::channel(Stop::No);
    let supervisor =
        Supervisor::at(world.path("notify").as_os_str(), Some(Duration::from_millis(400))).unwrap();
    let told = Told { queue: worker.policy.queue.clone(), signs };
    let notifying = supervisor.start(vec![told], stopped.clone(), watch::channel(false).1, LIMIT).unwrap();
    let running = tokio::spawn(worker.run(stopped));
    ears.until("STATUS=consuming", 0).await;
    ears.until("WATCHDOG=1", 0).await;

    world.publish("a", b"x").await;
    let (stuck, _) = ears.until(&format!("STATUS={}: its loop has not turned since ", world.queue), 0).await;
    let fed = ears.count("WATCHDOG=1");
    ears.socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut buffer = [0; 64];
    // At most one that was on its way.
    if let Ok(length) = ears.socket.recv(&mut buffer) {
        assert!(ears.socket.recv(&mut buffer).is_err(), "{:?}", std::str::from_utf8(&buffer[..length]));
    }
    ears.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    go.send(()).unwrap();
    ears.until("STATUS=consuming", stuck).await;
    until("it is fed again", LIMIT, async || ears.count("WATCHDOG=1") > fed + 2).await;
    stop.send_replace(Stop::Drain);
    assert_eq!(running.await.unwrap().unwrap().handled, 1);
    drop(notifying);
    ears.until("STOPPING=1", 0).await;
}
