//! The examples, run as a reader would: workers made by a Rust program.

use std::{path::PathBuf, process::Command};

use crate::{
    harness::{LIMIT, Process, World, until},
    sql::number,
};

/// Cargo builds the examples beside this test's own folder whenever it builds all tests.
fn example(world: &World, name: &str) -> Process {
    let own = std::env::current_exe().expect("a path");
    let built: PathBuf = own.parent().and_then(|deps| deps.parent()).expect("target/debug").into();
    let program = built.join("examples").join(name);
    assert!(program.exists(), "a run of one test target does not build examples: cargo build --examples");
    let mut command = Command::new(program);
    command.args([&world.url, &world.queue, "ackonce.db"]).current_dir(world.folder.path());
    Process::start(command, world.folder.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_is_a_handler() {
    let world = World::new("closure").await;
    for body in [&b"one"[..], b"one", b"\xff"] {
        world.publish(if body == b"one" { "a" } else { "b" }, body).await;
    }
    let worker = example(&world, "handler");
    until("all is settled", LIMIT, async || {
        let rows = world.rows();
        rows.len() == 2 && rows[0].duplicates == 1 && rows[1].state == "dead"
    })
    .await;
    worker.signal(rustix::process::Signal::INT);
    let ended = worker.ended(LIMIT).await;
    ended.expect_exit(0);
    assert_eq!(ended.printed, "a one (attempt 1)\nhandled 1, duplicates 1\n");
    assert_eq!(world.ready(&world.queue).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transactional_handler_writes_with_its_row() {
    let world = World::new("transaction").await;
    for (id, body) in [("a", "30"), ("a", "30"), ("b", "12"), ("c", "much")] {
        world.publish(id, body.as_bytes()).await;
    }
    let worker = example(&world, "transaction");
    until("all is settled", LIMIT, async || {
        let rows = world.rows();
        rows.len() == 3 && rows[0].duplicates == 1 && rows[1].state == "done" && rows[2].state == "dead"
    })
    .await;
    assert_eq!(number(&world, "SELECT cents FROM account"), 42);
    worker.signal(rustix::process::Signal::INT);
    let ended = worker.ended(LIMIT).await;
    ended.expect_exit(0);
    assert_eq!(ended.printed, "handled 2, duplicates 1\n");
    assert_eq!(world.ready(&world.queue).await, 0);
}
