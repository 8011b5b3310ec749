//! A collector that is away, or does not answer, takes nothing from the work.

use crate::harness::{Endpoint, LIMIT, Reply, World, until};

/// Messages are handled and the worker ends, although no span can be sent; it says so, and shows no password.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_is_mentioned_and_no_hindrance() {
    let world = World::new("otel.away").await;
    let gone = Endpoint::start(|_| Reply::status("200 OK")).await.stop().await;
    let worker = world.worker_with(
        |command| {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://user:hidden@{gone}"));
            command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "100").env("OTEL_BSP_SCHEDULE_DELAY", "50");
        },
        &["--log"],
    );
    for number in 0..50 {
        world.publish(&format!("m{number}"), b"x").await;
    }
    world.until_state("done", 50).await;
    worker.until_said("spans cannot be sent, and are lost").await;
    // Its span is lost in the end, which is not worth a second line.
    world.publish("again", b"x").await;
    world.until_state("done", 51).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    let said: Vec<_> = ended.said.lines().filter(|line| line.contains("spans")).collect();
    assert!(
        matches!(said[..], [line] if line.contains("WARN") && line.contains("refused")),
        "once a minute: {said:?}"
    );
    assert!(!ended.said.contains("hidden"), "{}", ended.said);
}

/// A collector that takes requests and is silent is waited for in the end, but not for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_silent_does_not_keep_the_worker_from_ending() {
    let world = World::new("otel.silent").await;
    let silent = Endpoint::start(|_| Reply::Trickle).await;
    let worker = world.worker_with(
        |command| {
            command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{}/v1/traces", silent.address));
            // Far longer than this test waits for anything.
            command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000").env("OTEL_BSP_SCHEDULE_DELAY", "10");
        },
        &["--log"],
    );
    world.publish("a", b"x").await;
    until("a request is under way", LIMIT, async || !silent.requests().is_empty()).await;
    for number in 0..50 {
        world.publish(&format!("m{number}"), b"x").await;
    }
    world.until_state("done", 51).await;
    worker.terminate().await.expect_exit(0);
}
