//! What `--listen` serves: health, readiness and metrics of a real worker.

pub mod client;
mod clients;
mod health;
mod metrics;
mod scrape;

use std::net::TcpListener;

use rustix::process::Signal;

use crate::harness::{LIMIT, Path, Process, SLOW, Way, World, until};
use client::{get, gone, port};

/// A worker that listens on a port of its own choice.
fn listening(world: &World, handler: &[&str]) -> Process {
    world.worker(&[&["--listen", "127.0.0.1:0"], handler].concat())
}

async fn until_ready(port: u16) {
    until("it is ready", LIMIT, async || get(port, "/readyz").await == (200, "ready\n".to_owned())).await;
}

/// Waits until it is not ready for a reason that holds `why`; returns all that it says.
async fn until_unready(port: u16, why: &str) -> String {
    let mut said = String::new();
    until(&format!("it is not ready: {why}"), LIMIT, async || {
        let (status, text) = get(port, "/readyz").await;
        said = text;
        status == 503 && said.contains(why)
    })
    .await;
    assert!(said.ends_with('\n') && said.lines().all(|line| line.starts_with("test.")), "{said}");
    said
}

/// Ready is who consumes: not before, not while the broker is away, and again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_ready_while_it_consumes_and_says_why_when_it_does_not() {
    let mut world = World::new("ready").await;
    let broker = world.url.rsplit(['/', '@']).find(|part| part.contains(':')).unwrap().to_owned();
    let path = Path::to(broker).await;
    path.set(Way::Silent);
    world.url = format!("amqp://127.0.0.1:{}", path.port);
    let worker = listening(&world, &["--log"]);
    let port = port(&worker).await;
    until_unready(port, "no session with the broker for").await;
    assert!(!worker.said().contains("consuming from"), "{}", worker.said());
    assert_eq!(get(port, "/healthz").await, (200, "ok\n".to_owned()), "that is no illness");

    path.set(Way::Open);
    path.cut();
    until_ready(port).await;
    assert!(worker.said().contains("consuming from"), "{}", worker.said());

    path.set(Way::Silent);
    path.cut();
    until_unready(port, "no session with the broker for 0 s: ").await;
    path.set(Way::Open);
    path.cut();
    until_ready(port).await;
    worker.terminate().await.expect_exit(0);
}

/// A ledger that another program has for itself pauses the worker, which says so, and stays healthy.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_ledger_is_held_is_not_ready_and_says_why() {
    let world = World::new("held").await;
    let worker = listening(&world, &["--exec", &world.handler("", "")]);
    let port = port(&worker).await;
    until_ready(port).await;
    let other = rusqlite::Connection::open(world.path("ackonce.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    world.publish("a", b"x").await;
    let said = until_unready(port, "paused by its ledger for").await;
    assert!(said.contains("ackonce.db") && said.lines().count() == 1, "{said}");
    assert_eq!(get(port, "/healthz").await.0, 200);
    let (status, text) = get(port, "/metrics").await;
    assert!(status == 200 && text.contains("ackonce_ledger_away{queue="), "{text}");
    other.execute_batch("COMMIT").unwrap();
    until_ready(port).await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
}

/// A handler that cannot start any more is named, without using an attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_handler_is_gone_is_not_ready_and_says_why() {
    let world = World::new("gone").await;
    let handler = world.handler("", "");
    let worker = listening(&world, &["--exec", &handler]);
    let port = port(&worker).await;
    until_ready(port).await;
    let hidden = world.path("hidden");
    std::fs::rename(&handler, &hidden).unwrap();
    world.publish("a", b"x").await;
    until_unready(port, "paused because its handler cannot start for").await;
    std::fs::rename(&hidden, &handler).unwrap();
    until_ready(port).await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
}

/// It answers while the worker drains, says so, and goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn the_listener_stops_with_the_drain() {
    let world = World::new("listen.drain").await;
    let worker = listening(&world, &["--exec", &world.handler(SLOW, "")]);
    let port = port(&worker).await;
    until_ready(port).await;
    world.publish("a", b"x").await;
    until("it runs", LIMIT, async || world.lines("started").len() == 1).await;
    worker.signal(Signal::TERM);
    let said = until_unready(port, "draining").await;
    assert_eq!(said.lines().count(), 1, "no other reason: {said}");
    assert_eq!(get(port, "/healthz").await.0, 200);
    world.touch("go");
    worker.ended(LIMIT).await.expect_exit(0).expect_said("handled=1");
    assert!(gone(port).await, "somebody still listens");
}

/// An address in use is one sentence, before anything is consumed.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_one_sentence() {
    let world = World::new("in.use").await;
    world.publish("a", b"x").await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = world.worker(&["--listen", &address, "--log"]).ended(LIMIT).await;
    ended.expect_exit(1);
    let sentence = ended.said.lines().last().unwrap();
    assert!(sentence.starts_with(&format!("ackonce: cannot listen on {address} (")), "{sentence}");
    assert_eq!(world.ready(&world.queue).await, 1);
    assert!(!world.path("ackonce.db").exists(), "nothing was begun");
}

/// Unless it is asked for, nothing listens.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_nothing_listens() {
    let world = World::new("quiet").await;
    let worker = world.worker(&["--log"]);
    worker.until_consuming().await;
    assert!(!worker.said().contains("listening"), "{}", worker.said());
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{}/net/{table}", worker.pid())).unwrap_or_default()
    });
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", worker.pid()))
        .unwrap()
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
        .collect();
    for line in tables.iter().flat_map(|table| table.lines()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // State 0A is LISTEN; the tenth field is the socket's inode.
        if fields.get(3) == Some(&"0A") {
            assert!(!sockets.contains(&format!("socket:[{}]", fields[9])), "it listens: {line}");
        }
    }
    worker.terminate().await.expect_exit(0);
}
