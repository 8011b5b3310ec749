//! K32: the path to the broker is cut without a word, as a firewall or a dead switch does it.

use std::time::{Duration, Instant};

use crate::harness::{LIMIT, Path, SLOW, Way, World, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_falls_silent_is_noticed_by_missing_heartbeats() {
    let mut world = World::new("silent").await;
    let address = world.url.rsplit(['/', '@']).find(|part| part.contains(':')).unwrap().to_owned();
    let path = Path::to(address).await;
    let direct = world.url.clone();
    world.url = format!("amqp://127.0.0.1:{}?heartbeat=2", path.port);
    let worker = world.worker(&["--exec", &world.handler(SLOW, "")]);
    world.url = direct;
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    until("the handler runs", LIMIT, async || world.lines("started").len() == 1).await;

    path.set(Way::Silent);
    let cut = Instant::now();
    worker.until_said("no session with the broker").await;
    let noticed = cut.elapsed();
    assert!(noticed < Duration::from_secs(8), "two heartbeats of 2 s, and not more than four: {noticed:?}");
    world.touch("go");
    world.until_state("done", 1).await;
    assert_eq!(world.ready(&world.queue).await, 0, "no ack is pretended: the broker still waits for it");
    path.set(Way::Open);
    until("it consumes again", LIMIT, async || worker.said().matches("consuming from").count() == 2).await;
    // The broker misses heartbeats too, and hands the message over again: by now it is a duplicate.
    until("the copy is counted", LIMIT * 2, async || world.rows()[0].duplicates == 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects(), ["a"]);
}
