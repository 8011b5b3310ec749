//! A requested stop, and only that, ends a worker with exit status 0.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{LIMIT, World, is_alive, until};

/// K53: nothing new starts, what runs is finished and acked, the rest goes back.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_what_runs_and_returns_the_rest() {
    let world = World::new("drain").await;
    for number in 0..1000 {
        world.publish(&number.to_string(), b"x").await;
    }
    let handler =
        world.handler(r#"echo "$ACKONCE_KEY" >> started; while [ ! -e go ]; do sleep 0.02; done"#, "");
    let worker = world.worker(&["--prefetch", "50", "--concurrency", "2", "--exec", &handler]);
    until("two run", LIMIT, async || world.lines("started").len() == 2).await;
    worker.signal(Signal::TERM);
    until("the rest is back", LIMIT, async || world.ready(&world.queue).await == 998).await;
    world.touch("go");
    worker.ended(LIMIT).await.expect_exit(0).expect_said("handled=2");
    assert_eq!(world.lines("started").len(), 2, "no handler started after the signal");
    assert_eq!(world.effects().len(), 2);
    assert_eq!(world.ready(&world.queue).await, 998);
    let rows = world.rows();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.state == "done"), "{rows:?}");
}

/// A handler that outlives the drain timeout is stopped, with its children, and uses no attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_beyond_the_drain_timeout_is_stopped_and_its_message_returned() {
    let world = World::new("deadline").await;
    world.publish("a", b"x").await;
    let handler = world.script("echo >> started; sleep 600 & echo $! > child; wait");
    let worker = world.worker(&["--drain-timeout", "1s", "--exec", &handler]);
    until("it runs", LIMIT, async || world.lines("child").len() == 1).await;
    let child = world.lines("child")[0].clone();
    let asked = Instant::now();
    worker.terminate().await.expect_exit(0).expect_said("the drain timeout has passed");
    let took = asked.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(&took), "{took:?}");
    assert!(!is_alive(&child), "the handler's own child lives on");
    until("the message is back", LIMIT, async || world.ready(&world.queue).await == 1).await;
    let row = &world.rows()[0];
    assert_eq!((row.state.as_str(), row.attempts), ("failed", 0), "{row:?}");

    let worker = world
        .worker(&["--exec", &world.handler(r#"echo "$ACKONCE_ATTEMPT $ACKONCE_INTERRUPTED" > attempt"#, "")]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.lines("attempt"), ["1 1"], "not counted, and told that it had begun");
}

/// A second signal ends it at once, whatever runs; the message is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_at_once() {
    let world = World::new("twice").await;
    world.publish("a", b"x").await;
    let handler = world.script("echo $$ > child; trap '' TERM INT; while true; do sleep 0.1; done");
    let worker = world.worker(&["--exec", &handler]);
    until("it runs", LIMIT, async || world.lines("child").len() == 1).await;
    worker.signal(Signal::TERM);
    worker.until_said("stopping").await;
    let asked = Instant::now();
    worker.signal(Signal::INT);
    worker.ended(LIMIT).await.expect_exit(1).expect_said("stopped at once");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let child = world.lines("child")[0].clone();
    until("the handler is gone", LIMIT, async || !is_alive(&child)).await;
    until("the message is back", LIMIT, async || world.ready(&world.queue).await == 1).await;
}

/// A worker without a connection stops as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_reached_its_broker_stops_with_exit_0() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut world = World::new("nobody").await;
    world.url = format!("amqp://{nobody}");
    let mut worker = world.worker(&["--log"]);
    worker.until_said("no session with the broker").await;
    assert!(worker.is_running(), "it keeps trying");
    worker.terminate().await.expect_exit(0);
}
