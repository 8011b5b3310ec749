//! OpenTelemetry: each run is a span, where an endpoint is named and the binary can send to it.

#[cfg(feature = "otel-tests")]
mod away;
#[cfg(feature = "otel-tests")]
mod collector;
#[cfg(feature = "otel-tests")]
mod spans;

/// A binary that cannot send spans says so in one sentence, and works.
#[cfg(not(feature = "otel"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_binary_without_the_feature_says_that_it_sends_no_spans() {
    let world = crate::harness::World::new("otel.none").await;
    let worker = world.worker_with(
        |command| {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hidden@127.0.0.1:9");
        },
        &["--exec", "true"],
    );
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    let said: Vec<_> = ended.said.lines().filter(|line| line.contains("spans")).collect();
    let sentence = "no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT is set, but this ackonce was built without OpenTelemetry";
    assert!(matches!(said[..], [line] if line.contains("WARN") && line.contains(sentence)), "{said:?}");
    assert!(!ended.said.contains("hidden"), "{}", ended.said);
}
