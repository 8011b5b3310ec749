//! One attempt is one request, whatever becomes of connections.

use super::ok;
use crate::harness::{Endpoint, LIMIT, Reply, World, answer, header, until};

/// K74: a connection that ends without an answer is a failed attempt, and nothing is sent twice by
/// itself: neither on a fresh connection nor on one that has served before.
#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_one_post() {
    let world = World::new("http.once").await;
    let endpoint = Endpoint::start(|request| {
        let attempt = request.header("ackonce-attempt");
        match request.header("idempotency-key").as_str() {
            "first" => ok(request),
            "half" if attempt == "1" => Reply::Last("HTTP/1.1 200 O".into()),
            "half" => ok(request),
            _ => Reply::Last(String::new()),
        }
    })
    .await;
    let worker = world.http(&endpoint, &["--max-attempts", "3", "--concurrency", "1"]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    world.publish("never", b"x").await;
    world.until_state("dead", 1).await;
    world.publish("half", b"x").await;
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    let pair = |(key, attempt): (&str, &str)| (key.to_owned(), attempt.to_owned());
    let expected =
        [("first", "1"), ("never", "1"), ("never", "2"), ("never", "3"), ("half", "1"), ("half", "2")];
    assert_eq!(endpoint.attempts(), expected.map(pair));
    assert_eq!(requests[0].connection, requests[1].connection, "the first loss was on a used connection");
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    assert!(header(&letters[0], "x-ackonce-error").contains("no answer from http://127.0.0.1"));
}

/// K74: a kept connection that the server closes between two requests costs no attempt; one that stays
/// is used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_closed_between_requests_costs_no_attempt() {
    let world = World::new("http.idle").await;
    let endpoint = Endpoint::start(|request| match request.header("idempotency-key").as_str() {
        "closes" => Reply::Last(answer("200 OK", "", "")),
        _ => ok(request),
    })
    .await;
    let worker = world.http(&endpoint, &["--concurrency", "1"]);
    for (count, id) in ["stays", "closes", "last"].into_iter().enumerate() {
        world.publish(id, b"x").await;
        world.until_state("done", count + 1).await;
    }
    world.stop_and_find_nothing_left(worker).await;
    assert!(world.rows().iter().all(|row| row.attempts == 1), "{:?}", world.rows());
    let requests = endpoint.requests();
    let connections: Vec<_> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(connections.len(), 3);
    assert_eq!(connections[0], connections[1], "a kept connection is used again");
    assert_ne!(connections[1], connections[2]);
}

/// K75: an endpoint that is not there pauses the worker, at the start and later; no attempt is used,
/// and nothing is claimed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_pauses_the_worker() {
    let world = World::new("http.refused").await;
    let endpoint = Endpoint::start(ok).await;
    let url = endpoint.url();
    let address = endpoint.stop().await;
    for number in 0..20 {
        world.publish(&format!("a{number}"), b"x").await;
    }
    let worker = world.worker(&["--http", &url]);
    worker.until_said("paused, no attempt is used: cannot reach http://127.0.0.1").await;
    worker.until_said("Connection refused").await;
    worker.until_consuming().await;
    until("it has taken the messages", LIMIT, async || world.ready(&world.queue).await == 0).await;
    assert_eq!(world.rows(), [], "nothing is claimed for an endpoint that is not there");

    let endpoint = Endpoint::at(address, ok).await;
    world.until_state("done", 20).await;
    endpoint.stop().await;
    for number in 0..20 {
        world.publish(&format!("b{number}"), b"x").await;
    }
    until("it pauses again", LIMIT, async || {
        worker.said().matches("paused, no attempt is used").count() == 2
    })
    .await;
    let endpoint = Endpoint::at(address, ok).await;
    world.until_state("done", 40).await;
    world.stop_and_find_nothing_left(worker).await;
    assert!(world.rows().iter().all(|row| row.attempts == 1), "{:?}", world.rows());
    assert_eq!(endpoint.requests().len(), 20);
}

/// At the drain deadline the request is dropped and its attempt taken back; the next run has the same key.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_dropped_at_the_drain_deadline() {
    let world = World::new("http.drain").await;
    let endpoint = Endpoint::start(|request| match request.header("ackonce-redelivered").as_str() {
        "0" => Reply::Bytes(String::new()),
        _ => ok(request),
    })
    .await;
    world.publish("a", b"x").await;
    let worker = world.http(&endpoint, &["--drain-timeout", "500ms"]);
    endpoint.until_requests(1).await;
    worker.terminate().await.expect_exit(0).expect_said("the drain timeout has passed");
    assert_eq!((world.rows()[0].state.as_str(), world.rows()[0].attempts), ("failed", 0));
    let worker = world.http(&endpoint, &[]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(endpoint.attempts(), [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "1".to_owned())]);
}

/// Once the status is there it counts, however long the body takes and whoever asks to stop meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_has_come_is_not_dropped() {
    let world = World::new("http.late").await;
    let endpoint =
        Endpoint::start(|_| Reply::Bytes("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlate".into())).await;
    world.publish("a", b"x").await;
    let worker = world.http(&endpoint, &["--drain-timeout", "500ms"]);
    endpoint.until_requests(1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!((world.rows()[0].state.as_str(), world.rows()[0].attempts), ("done", 1));
    assert_eq!(endpoint.requests().len(), 1);
}
