//! Slow and hostile clients: they get little, and the worker does not notice.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::harness::{LIMIT, World, until};

use super::{
    client::{ask, exchange, get, port},
    listening, until_ready,
};

/// What is no request for something that is there is answered shortly, or cut off.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_good_request_is_refused_shortly() {
    let world = World::new("refusals").await;
    let worker = listening(&world, &["--log"]);
    let port = port(&worker).await;
    until_ready(port).await;
    assert_eq!(get(port, "/nothing").await.0, 404);
    assert_eq!(get(port, "/metrics/../healthz").await.0, 404);
    assert_eq!(ask(port, "POST", "/healthz").await.0, 405);
    assert_eq!(ask(port, "HEAD", "/healthz").await, (200, String::new()));

    let huge = [&b"GET /healthz HTTP/1.1\r\nX: "[..], &vec![b'x'; 1 << 20]].concat();
    let (answer, ended) = exchange(port, &huge, Duration::from_secs(3)).await;
    assert!(ended && !answer.contains(" 200 "), "{answer}");
    let (answer, ended) = exchange(port, b"\x16\x03\x01\0\xff\0\0 no HTTP\r\n\r\n", LIMIT).await;
    assert!(ended && !answer.contains(" 200 "), "{answer}");
    // Half a request: its time is limited.
    let (answer, ended) = exchange(port, b"GET /healthz HT", Duration::from_secs(12)).await;
    assert!(ended && !answer.contains(" 200 "), "{answer}");
    assert_eq!(get(port, "/healthz").await.0, 200);
    worker.terminate().await.expect_exit(0);
}

/// A thousand connections that say nothing: nearly all are closed at once, the worker works on, and when their
/// time is over the listener answers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_hurt_nobody() {
    let world = World::new("thousand").await;
    let worker = listening(&world, &["--exec", &world.handler("", "")]);
    let port = port(&worker).await;
    until_ready(port).await;
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).map_or(0, std::iter::Iterator::count);
    let before = descriptors();
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(TcpStream::connect(("127.0.0.1", port)).await.expect("accepted by the system"));
    }
    for number in 0..10 {
        world.publish(&number.to_string(), b"x").await;
    }
    world.until_state("done", 10).await;
    assert!(descriptors() <= before + 64 + 20, "{} descriptors, {before} before", descriptors());
    until("it answers again", LIMIT, async || get(port, "/healthz").await.0 == 200).await;
    drop(idle);
    world.stop_and_find_nothing_left(worker).await;
}
