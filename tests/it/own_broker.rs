//! What needs a broker of its own: one that is stopped, killed, and told to cut connections.

use std::time::{Duration, Instant};

use crate::harness::{LIMIT, Node, SLOW, World, until};

/// K03, K27: the connection is closed while a handler runs. The handler goes on, the redelivered
/// copy joins it, in the same process and in another one, and no ack crosses sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_is_never_run_twice_because_its_connection_was_closed() {
    let node = Node::start_new();
    let world = World::at(&node.url, "slow").await;
    let handler = world.handler(SLOW, "");
    let first = world.worker(&["--exec", &handler]);
    first.until_consuming().await;
    world.publish("a", b"x").await;
    until("the handler runs", LIMIT, async || world.lines("started").len() == 1).await;
    let second = world.worker(&["--exec", &handler]);
    second.until_consuming().await;
    for round in 2..=3 {
        node.ctl(&["close_all_connections", "test"]);
        for worker in [&first, &second] {
            until("both consume again", LIMIT, async || {
                worker.said().matches("consuming from").count() >= round
            })
            .await;
        }
    }
    assert_eq!(world.lines("started").len(), 1);
    world.touch("go");
    world.until_state("done", 1).await;

    // A worker that had acked across sessions would have lost its channel by now.
    let world_again = World::at(&node.url, "probe").await;
    until("the copy is taken", LIMIT, async || world_again.ready(&world.queue).await == 0).await;
    assert_eq!(first.said().matches("consuming from").count(), 3);
    first.terminate().await.expect_exit(0);
    second.terminate().await.expect_exit(0);
    // One that the second worker holds, and has not asked about since, goes back: a duplicate for whoever is next.
    if world_again.ready(&world.queue).await > 0 {
        let before = world.rows()[0].duplicates;
        let third = world.worker(&["--exec", &handler]);
        until("the copy is a duplicate", LIMIT, async || world.rows()[0].duplicates > before).await;
        third.terminate().await.expect_exit(0);
    }
    assert_eq!(world_again.ready(&world.queue).await, 0);
    assert_eq!(world.effects(), ["a"]);
    let log = node.log();
    assert!(!log.contains("unknown delivery tag"), "{log}");
}

/// K31, K32, K33: the broker is stopped for 20 s while handlers run, started, killed, started.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_for_20_seconds_costs_nothing_but_time() {
    let node = Node::start_new();
    let world = World::at(&node.url, "away").await;
    world.declare(&world.queue, "quorum").await;
    for number in 0..200 {
        world.publish(&number.to_string(), b"x").await;
    }
    let handler = world.handler("sleep 0.05", "");
    let worker = world.worker(&["--concurrency", "4", "--exec", &handler]);
    until("some are done", LIMIT, async || world.effects().len() >= 20).await;
    node.stop();
    let stopped = Instant::now();
    worker.until_said("no session with the broker").await;
    // Part of what is tested: an outage longer than any retry inside a library.
    tokio::time::sleep(Duration::from_secs(20).saturating_sub(stopped.elapsed())).await;
    node.start();
    until("more are done", LIMIT, async || world.effects().len() >= 100).await;
    node.kill();
    node.start();
    until("all are done", LIMIT * 2, async || {
        world.rows().iter().filter(|row| row.state == "done").count() == 200
    })
    .await;
    let again = World::at(&node.url, "probe").await;
    until("all is acked", LIMIT, async || again.ready(&world.queue).await == 0).await;
    worker.terminate().await.expect_exit(0);
    assert_eq!(again.ready(&world.queue).await, 0);
    let mut effects = world.effects();
    assert_eq!(effects.len(), 200, "handlers went on, so no effect came twice");
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 200);
}

/// K33: ten restarts in a row.
#[tokio::test(flavor = "multi_thread")]
async fn ten_lost_connections_in_a_row_are_ten_new_sessions() {
    let node = Node::start_new();
    let world = World::at(&node.url, "ten").await;
    let worker = world.worker(&["--log"]);
    for round in 1..=10 {
        let consuming = || worker.said().matches("consuming from").count();
        until("it consumes", LIMIT * 2, async || consuming() >= round).await;
        node.ctl(&["close_all_connections", "test"]);
    }
    until("it consumes again", LIMIT * 2, async || worker.said().matches("consuming from").count() >= 11)
        .await;
    World::at(&node.url, "probe").await;
    worker.terminate().await.expect_exit(0);
}

/// K05, K26: a ledger that another program holds pauses the worker. It answers heartbeats and
/// signals meanwhile, says so once, and goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_ledger_pauses_the_worker_and_nothing_else() {
    let node = Node::start_new();
    let mut world = World::at(&node.url, "busy").await;
    world.declare(&world.queue, "classic").await;
    let plain = world.url.clone();
    world.url = format!("{plain}?heartbeat=2");
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.publish("before", b"x").await;
    world.until_state("done", 1).await;
    let database = rusqlite::Connection::open(world.path("ackonce.db")).unwrap();
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    world.publish("a", b"x").await;
    worker.until_said("paused, nothing is acked meanwhile").await;
    // Three times the heartbeat: a runtime that stood still would lose the connection.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.effects(), ["before"]);
    database.execute_batch("ROLLBACK").unwrap();
    world.until_state("done", 2).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("the ledger answers again").expect_said("duplicates=0");
    assert_eq!(ended.said.matches("paused").count(), 1, "{}", ended.said);
    assert_eq!(ended.said.matches("consuming from").count(), 1, "{}", ended.said);
    assert_eq!(world.effects(), ["before", "a"]);
    assert_eq!(world.ready(&world.queue).await, 0);
}
