//! As the first process of a container: no zombies, no result lost, and signals as outside. A PID namespace of the
//! test's own takes the container's place.

#![cfg(target_os = "linux")]

use std::{
    fs,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{LIMIT, Process, SLOW, World, ackonce, child_pids, children, until};

/// The command as process 1 of a new PID namespace, which ends with the process that is started for it.
fn first_process() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let program = ackonce();
    command.arg("--").arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Whether namespaces can be made here at all: without them, the reason for a failure should be plain.
fn expect_namespaces() {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let output = command.arg("true").output().expect("unshare starts (util-linux)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "this test needs root, or user namespaces, to make a PID namespace: {said}"
    );
}

/// A worker as process 1; its process id out here.
async fn worker(world: &World, arguments: &[&str]) -> (Process, Pid) {
    expect_namespaces();
    let mut command = first_process();
    command.args(["run", "--url", &world.url, "--queue", &world.queue]);
    command.arg("--ledger").arg(world.path("ackonce.db")).args(arguments);
    command.env("ACKONCE_LOG_LEVEL", "debug").current_dir(world.folder.path());
    let worker = Process::start(command, world.folder.path());
    worker.until_consuming().await;
    let first = child_pids(worker.pid());
    assert_eq!(first.len(), 1, "{first:?}");
    let first = Pid::from_raw(first[0].parse().unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", first.as_raw_nonzero())).unwrap();
    let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:")).expect("NSpid");
    assert!(inside.ends_with("\t1"), "it is not process 1: {inside}");
    (worker, first)
}

/// A handler that leaves behind a process in its group, one in a session of its own, and one whose parent is gone
/// already; some messages fail, one is given up, and each result is right.
#[tokio::test(flavor = "multi_thread")]
async fn what_handlers_leave_behind_is_collected_and_no_result_is_lost() {
    let world = World::new("first").await;
    let handler = world.handler(
        r#"sleep 0.02 & (sleep 0.03 &) ; setsid sleep 0.01 &
case $ACKONCE_KEY in *7) [ "$ACKONCE_ATTEMPT" -ge 2 ] || exit 1;; 42) exit 65;; esac"#,
        "",
    );
    let arguments = ["--initial-interval", "20ms", "--exec", &handler];
    let (worker, first) = worker(&world, &arguments).await;
    for number in 0..100 {
        world.publish(&number.to_string(), b"x").await;
    }
    world.until_state("done", 99).await;
    world.until_state("dead", 1).await;
    let rows = world.rows();
    for row in &rows {
        let (state, attempts) = match row.key.as_str() {
            "42" => ("dead", 1),
            key if key.ends_with('7') => ("done", 2),
            _ => ("done", 1),
        };
        assert_eq!((row.state.as_str(), row.attempts), (state, attempts), "{row:?}");
    }
    assert!(!worker.said().contains("os error 10"), "a status was taken away: {}", worker.said());
    let pid = first.as_raw_nonzero().get().cast_unsigned();
    until("only the worker is left", LIMIT, async || children(pid).len() == 1).await;
    assert!(children(pid)[0].contains("ackonce"), "{:?}", children(pid));

    kill_process(first, Signal::TERM).unwrap();
    let ended = worker.ended(LIMIT).await;
    ended.expect_exit(0).expect_said("stopping: no new message starts");
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// TERM drains: what runs is seen to its end. A second one ends it at once, with its exit code.
#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_worker_once_each() {
    let world = World::new("first.signals").await;
    let handler = world.handler(SLOW, "");
    let (one, first) = worker(&world, &["--exec", &handler]).await;
    world.publish("a", b"x").await;
    until("it runs", LIMIT, async || world.lines("started").len() == 1).await;
    kill_process(first, Signal::TERM).unwrap();
    one.until_said("stopping: no new message starts").await;
    world.touch("go");
    one.ended(LIMIT).await.expect_exit(0).expect_said("handled=1");

    fs::remove_file(world.path("go")).unwrap();
    let (two, first) = worker(&world, &["--exec", &handler]).await;
    world.publish("b", b"x").await;
    until("it runs", LIMIT, async || world.lines("started").len() == 2).await;
    kill_process(first, Signal::INT).unwrap();
    two.until_said("stopping: no new message starts").await;
    kill_process(first, Signal::TERM).unwrap();
    two.ended(LIMIT).await.expect_exit(1).expect_said("stopped at once");
}

/// Ctrl-C in a terminal is one signal to both, and a drain, not the end at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_from_a_terminal_is_one_signal() {
    expect_namespaces();
    let world = World::new("first.terminal").await;
    let handler = world.script("while [ ! -e go ]; do echo >> ticks; sleep 0.02; done");
    let mut command = first_process();
    command.args(["run", "--url", &world.url, "--queue", &world.queue, "--ledger"]);
    command.arg(world.path("ackonce.db")).args(["--exec", &handler]);
    let line: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    // script(1) gives it a terminal, and passes on what is typed. Which shell runs the line depends on $SHELL, and
    // one that waited for it would die of the interrupt itself: none is to be left.
    let line = format!("exec {}", line.join(" "));
    let mut typed = Command::new("script");
    typed.args(["--quiet", "--return", "--flush", "--command", &line]).arg(world.path("screen"));
    typed.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(world.folder.path());
    let mut typed = typed.spawn().expect("script starts (util-linux, or bsdutils)");
    let mut keyboard = typed.stdin.take().unwrap();
    let screen = || fs::read_to_string(world.path("screen")).unwrap_or_default();
    until("it consumes", LIMIT, async || screen().contains("consuming from")).await;
    world.publish("a", b"x").await;
    until("it runs", LIMIT, async || !world.lines("ticks").is_empty()).await;
    std::io::Write::write_all(&mut keyboard, b"\x03").unwrap();
    until("it drains", LIMIT, async || screen().contains("stopping: no new message starts")).await;
    // Were it told twice, the command would be killed now.
    let ticks = world.lines("ticks").len();
    until("the command goes on", LIMIT, async || world.lines("ticks").len() > ticks + 20).await;
    world.touch("go");
    until("it ends", LIMIT, async || typed.try_wait().unwrap().is_some()).await;
    assert_eq!(typed.wait().unwrap().code(), Some(0), "{}", screen());
    assert_eq!(world.states(), [("a".to_owned(), "done".to_owned())], "{}", screen());
}

/// The exit code of any command is the child's.
#[test]
fn any_command_ends_with_its_own_exit_code() {
    expect_namespaces();
    for (arguments, code) in [(&["--version"][..], 0), (&["run"][..], 2), (&["no-such-command"][..], 2)] {
        let output = first_process().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
}
