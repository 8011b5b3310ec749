//! SIGHUP: secrets and the log level change while a worker runs, and nothing under way is disturbed.

use std::{fs, path::Path as FilePath};

use rustix::process::Signal;

use crate::harness::{LIMIT, Node, Path, Process, SLOW, World, seen, until};

/// A configuration for the world's queue, with a slow handler.
fn configuration(world: &World, top: &str, broker: &str) -> String {
    let handler = world.handler(SLOW, "");
    let file = world.path("ackonce.toml");
    let worker =
        format!("[[worker]]\nqueue = \"{}\"\ntimeout = \"10m\"\nexec = [\"{handler}\"]\n", world.queue);
    fs::write(&file, format!("{top}\n[broker]\n{broker}\n{worker}")).unwrap();
    file.display().to_string()
}

fn exchange(file: &str, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    // In one step, as editors and secret stores do it.
    let next = format!("{file}.next");
    fs::write(&next, text.replace(from, to)).unwrap();
    fs::rename(next, FilePath::new(file)).unwrap();
}

fn started(world: &World, file: &str) -> Process {
    world.worker_with(
        |command| {
            command.env_remove("ACKONCE_LOG_LEVEL");
        },
        &["--config", file],
    )
}

/// The password of the broker's user is exchanged while a command runs: it runs on, and the next connection
/// has the new one. An empty file is refused, and the old one stays.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_a_new_password_is_taken_for_the_next_connection() {
    let node = Node::start_new();
    node.ctl(&["add_user", "app", "hidden-1"]);
    node.ctl(&["set_permissions", "app", ".*", ".*", ".*"]);
    let mut world = World::at(&node.url, "reload").await;
    world.declare(&world.queue, "classic").await;
    let broker = world.url.rsplit(['/', '@']).find(|part| part.contains(':')).unwrap().to_owned();
    let path = Path::to(broker).await;
    world.url = format!("amqp://app@127.0.0.1:{}", path.port);
    let secret = world.path("password").display().to_string();
    fs::write(&secret, "hidden-1\n").unwrap();
    let file = configuration(&world, "", &format!("password_file = \"{secret}\""));
    let worker = started(&world, &file);
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    until("the command runs", LIMIT, async || world.lines("started").len() == 1).await;

    fs::write(&secret, "\n").unwrap();
    worker.signal(Signal::HUP);
    worker.until_said("everything stays as it was: [broker]: password_file").await;
    path.cut();
    until("it is there again, with the old one", LIMIT, async || sessions(&worker) == 2).await;

    node.ctl(&["change_password", "app", "hidden-2"]);
    exchange(&secret, "\n", "hidden-2\n");
    worker.signal(Signal::HUP);
    worker.until_said("the broker's password is another one").await;
    path.cut();
    until("it is there again, with the new one", LIMIT, async || sessions(&worker) == 3).await;
    assert!(!worker.said().contains("access refused"), "{}", worker.said());

    world.touch("go");
    world.until_state("done", 1).await;
    let said = worker.said();
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.lines("started"), ["1 0"], "it ran once, undisturbed");
    assert!(!said.contains("hidden"), "{said}");
}

fn sessions(worker: &Process) -> usize {
    worker.said().matches("consuming from").count()
}

/// The file's level is read again; a wrong one is refused in one sentence, with all else in the file.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_of_the_file_changes_while_a_command_runs() {
    let world = World::new("reload.level").await;
    let file = configuration(&world, "log_level = \"info\"", "");
    let worker = started(&world, &file);
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    until("the command runs", LIMIT, async || world.lines("started").len() == 1).await;

    exchange(&file, "\"info\"", "\"loud\"");
    worker.signal(Signal::HUP);
    worker.until_said("everything stays as it was: log_level = \"loud\": expected one of").await;
    exchange(&file, "\"loud\"", "\"debug\"");
    worker.signal(Signal::HUP);
    worker.until_said("read the configuration again: the log level is debug").await;
    worker.signal(Signal::HUP);
    worker.until_said("read the configuration again: nothing has changed").await;
    world.touch("go");
    worker.until_said(": handled ").await;
    assert_eq!(world.lines("started"), ["1 0"]);

    exchange(&file, "log_level = \"debug\"", "");
    worker.signal(Signal::HUP);
    worker.until_said("the log level is info").await;
    world.publish("b", b"x").await;
    world.until_state("done", 2).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert_eq!(ended.said.matches(": handled ").count(), 1, "{}", ended.said);
}

/// What a flag or a variable says, the file does not change.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_was_given_outside_the_file_stays() {
    let world = World::new("reload.fixed").await;
    let file = configuration(&world, "log_level = \"debug\"", "");
    world.touch("go");
    let worker = world.worker_with(
        |command| {
            command.env("ACKONCE_LOG_LEVEL", "info");
        },
        &["--config", &file],
    );
    worker.until_consuming().await;
    worker.signal(Signal::HUP);
    worker.until_said("nothing has changed").await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert!(!ended.said.contains("DEBUG"), "{}", ended.said);
}

/// A terminal whose window is closed sends the signal as well: that is a request to stop, gently.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_is_a_request_to_stop() {
    let world = World::new("reload.closed").await;
    let handler = world.handler(SLOW, "");
    let (worker, terminal) = world.worker_on_terminal(|_| {}, &["--timeout", "10m", "--exec", &handler]);
    until("it consumes", LIMIT, async || {
        seen(&worker.said()).last().is_some_and(|line| line.contains(": consuming · "))
    })
    .await;
    world.publish("a", b"x").await;
    until("the command runs", LIMIT, async || world.lines("started").len() == 1).await;
    worker.signal(Signal::HUP);
    worker.until_said("nothing has changed").await;

    terminal.hang_up().await;
    worker.signal(Signal::HUP);
    world.publish("b", b"x").await;
    world.touch("go");
    worker.ended(LIMIT).await.expect_exit(0);
    assert!(world.lines("started").len() <= 2, "it did not start over");
    let done = world.states().iter().filter(|(_, state)| state == "done").count();
    assert_eq!(done as u32 + world.ready(&world.queue).await, 2, "nothing is lost");
}
