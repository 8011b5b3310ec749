//! The worker dies or loses its connection at the worst moment.

use std::time::{Duration, Instant};

use crate::harness::{LIMIT, SLOW, World, until};

/// K02: killed in the middle of a handler, a restarted worker takes over at once.
#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_the_message_is_taken_over_within_a_second() {
    let world = World::new("kill").await;
    world.publish("a", b"x").await;
    let handler = world.handler(SLOW, "");
    let worker = world.worker(&["--exec", &handler]);
    until("the handler runs", LIMIT, async || world.lines("started") == ["1 0"]).await;
    worker.kill();
    assert_eq!(world.states(), [("a".into(), "processing".into())]);

    let worker = world.worker(&["--exec", &handler]);
    worker.until_consuming().await;
    let consuming = Instant::now();
    until("it is taken over", LIMIT, async || world.lines("started") == ["1 0", "2 1"]).await;
    let waited = consuming.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    world.touch("go");
    world.until_state("done", 1).await;
    worker.until_said("runs again: the attempt before was cut off").await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.rows()[0].attempts, 2);
    // The killed worker's handler went on by itself: that is the window the promise names.
    assert!((1..=2).contains(&world.effects().len()));
}

/// The same with the other worker already there, holding a copy that waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_worker_takes_over_from_a_killed_one_within_a_second() {
    let world = World::new("waiting").await;
    let handler = world.handler(SLOW, "");
    let first = world.worker(&["--prefetch", "1", "--concurrency", "1", "--exec", &handler]);
    first.until_consuming().await;
    world.publish("a", b"x").await;
    until("the handler runs", LIMIT, async || world.lines("started").len() == 1).await;
    let second = world.worker(&["--exec", &handler]);
    second.until_consuming().await;
    world.publish("a", b"x").await;
    until("the second holds the copy", LIMIT, async || world.ready(&world.queue).await == 0).await;
    assert_eq!(world.lines("started").len(), 1, "a live owner is never robbed");
    first.kill();
    let killed = Instant::now();
    until("it is taken over", LIMIT, async || world.lines("started").len() == 2).await;
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    world.touch("go");
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(second).await;
}
