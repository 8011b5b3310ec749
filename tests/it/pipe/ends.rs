//! How children end: with their worker, whichever way that ends, and without a trace.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::worker;
use crate::harness::{LIMIT, World, children, is_alive, until};

/// A drain lets the message be finished, and then the child, which has its grace.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_the_message_and_lets_the_child_end() {
    let world = World::new("drain").await;
    world.publish("a", b"x").await;
    let lines = r#"
note("started", message["key"])
while not os.path.exists("go"):
    time.sleep(0.01)
answer(message)
for rest in sys.stdin:
    pass
time.sleep(0.3)
note("flushed", "all")
"#;
    let worker = worker(&world, &[], lines);
    until("it runs", LIMIT, async || world.lines("started").len() == 1).await;
    worker.signal(Signal::TERM);
    worker.until_said("stopping: no new message starts").await;
    world.touch("go");
    worker.ended(LIMIT).await.expect_exit(0).expect_said("handled=1");
    assert_eq!(world.lines("flushed"), ["all"], "it had its time after the end of its input");
    assert_eq!(world.states(), [("a".to_owned(), "done".to_owned())]);
    assert_eq!(world.ready(&world.queue).await, 0);
    assert!(!is_alive(&world.lines("pids")[0]));
}

/// At the drain deadline the child is ended, with its own children, and the attempt is given back.
#[tokio::test(flavor = "multi_thread")]
async fn the_drain_deadline_ends_the_child_and_gives_the_attempt_back() {
    let world = World::new("deadline").await;
    world.publish("a", b"x").await;
    let lines = r#"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("grandchildren", subprocess.Popen(["sleep", "600"]).pid)
time.sleep(600)
"#;
    let worker = worker(&world, &["--drain-timeout", "1s", "--kill-grace", "500ms"], lines);
    until("it runs", LIMIT, async || world.lines("grandchildren").len() == 1).await;
    worker.terminate().await.expect_exit(0).expect_said("the drain timeout has passed");
    let pids = [world.lines("pids"), world.lines("grandchildren")].concat();
    assert!(pids.len() == 2 && !pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
    let row = &world.rows()[0];
    assert_eq!((row.state.as_str(), row.attempts), ("failed", 0), "{row:?}");
    until("the message is back", LIMIT, async || world.ready(&world.queue).await == 1).await;
}

/// What a child answers within its grace counts.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_within_the_grace_counts() {
    let world = World::new("hurry").await;
    world.publish("a", b"x").await;
    let lines = r#"
def hurry(*_):
    answer(message)
    sys.exit(0)
signal.signal(signal.SIGTERM, hurry)
note("started", message["key"])
time.sleep(600)
"#;
    let worker = worker(&world, &["--drain-timeout", "1s"], lines);
    until("it runs", LIMIT, async || world.lines("started").len() == 1).await;
    worker.terminate().await.expect_exit(0).expect_said("handled=1");
    assert_eq!(world.states(), [("a".to_owned(), "done".to_owned())]);
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// A second signal kills children at once, those that hold nothing too.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_kills_the_children() {
    let world = World::new("twice").await;
    for key in ["a", "b"] {
        world.publish(key, b"x").await;
    }
    let lines = r#"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if message["key"] == "b":
    answer(message)
note("started", message["key"])
time.sleep(600)
"#;
    let worker = worker(&world, &["--pipe-children", "2"], lines);
    until("both run", LIMIT, async || world.lines("started").len() == 2).await;
    world.until_state("done", 1).await;
    worker.signal(Signal::TERM);
    worker.until_said("stopping").await;
    let asked = Instant::now();
    worker.signal(Signal::TERM);
    worker.ended(LIMIT).await.expect_exit(1).expect_said("stopped at once");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let pids = world.lines("pids");
    assert_eq!(pids.len(), 2);
    until("both are gone", LIMIT, async || !pids.iter().any(|pid| is_alive(pid))).await;
}

/// A worker that is killed leaves children whose input ends, and so do they.
#[tokio::test(flavor = "multi_thread")]
async fn the_children_of_a_killed_worker_see_the_end_of_their_input() {
    let world = World::new("killed").await;
    world.publish("a", b"x").await;
    let worker = worker(&world, &[], "answer(message)");
    world.until_state("done", 1).await;
    worker.kill();
    let pid = world.lines("pids")[0].clone();
    until("the child has ended", LIMIT, async || !is_alive(&pid)).await;
    assert_eq!(world.lines("ended"), [pid]);
}

/// Children that end after each message are replaced without a word and reaped.
#[tokio::test(flavor = "multi_thread")]
async fn children_that_end_after_each_message_are_reaped() {
    let world = World::new("recycle").await;
    for number in 0..40 {
        world.publish(&number.to_string(), b"x").await;
    }
    let worker = worker(&world, &["--pipe-children", "2"], "answer(message)\nos._exit(0)");
    world.until_state("done", 40).await;
    let zombies = || children(worker.pid()).into_iter().filter(|child| child.contains("zombie")).count();
    until("all are reaped", LIMIT, async || zombies() == 0).await;
    assert!(world.lines("pids").len() >= 40);
    world.stop_and_find_nothing_left(worker).await;
}
