//! K65: work that takes every processor for longer than the broker waits for a heartbeat.

use std::time::Duration;

use crate::{
    harness::{LIMIT, World, until},
    sql::{SQL, write},
};

/// Four heartbeats of 2 s, in shell lines: a loop that never waits.
const BURN: &str = r#"end=$(($(date +%s) + 9))
while [ "$(date +%s)" -lt "$end" ]; do i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; done"#;

/// As many commands as there are processors burn all of them; the connection stays. Named so that it
/// runs beside no other test that needs both cores.
#[tokio::test(flavor = "multi_thread")]
async fn commands_that_burn_all_processors_cost_no_connection_own_broker() {
    let mut world = World::new("burn").await;
    let cores = std::thread::available_parallelism().expect("a number").get();
    for number in 0..cores {
        world.publish(&number.to_string(), b"x").await;
    }
    let direct = world.url.clone();
    world.url = format!("{direct}?heartbeat=2");
    let handler = world.handler(BURN, "");
    let worker = world.worker(&["--concurrency", &cores.to_string(), "--exec", &handler]);
    world.until_state("done", cores).await;
    assert_eq!(worker.said().matches("consuming from").count(), 1, "{}", worker.said());
    assert!(!worker.said().contains("no session with the broker"), "{}", worker.said());
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects().len(), cores);
}

/// A statement that takes as long: it runs in the ledger's thread, and heartbeats go on beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_statement_costs_no_connection_own_broker() {
    let mut world = World::new("long").await;
    // It would never end; the time limit is how long it takes on any machine.
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;";
    write(&world, "CREATE TABLE IF NOT EXISTS effects (key TEXT);", endless);
    world.publish("a", b"x").await;
    let direct = world.url.clone();
    world.url = format!("{direct}?heartbeat=2");
    let arguments = [&SQL[..], &["--timeout", "9s", "--max-attempts", "1"]].concat();
    let started = std::time::Instant::now();
    let worker = world.worker(&arguments);
    world.until_state("dead", 1).await;
    assert!(started.elapsed() >= Duration::from_secs(9), "{:?}", started.elapsed());
    let dead = format!("{}.dead", world.queue);
    until("it is dead-lettered", LIMIT, async || world.ready(&dead).await == 1).await;
    assert_eq!(worker.said().matches("consuming from").count(), 1, "{}", worker.said());
    world.stop_and_find_nothing_left(worker).await;
}
