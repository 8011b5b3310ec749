//! What a span says, and how it hangs together with what came before and comes after.

use std::{collections::BTreeMap, fs};

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};

use super::collector::{Collector, Seen, traced};
use crate::harness::World;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

async fn publish_traced(world: &World, id: &str) {
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let mut headers = FieldTable::default();
    headers.insert("traceparent".into(), text(&format!("00-{TRACE}-{PARENT}-01")));
    headers.insert("tracestate".into(), text("vendor=1"));
    let properties = BasicProperties::default().with_message_id(id.into()).with_headers(headers);
    world.publish_with(b"body", properties.with_correlation_id("c".into())).await;
}

fn attempt<'a>(spans: &'a [Seen], key: &str, attempt: &str) -> &'a Seen {
    let is_it =
        |span: &&Seen| span.attributes["ackonce.key"] == key && span.attributes["ackonce.attempt"] == attempt;
    let mut found = spans.iter().filter(is_it);
    let span = found.next().unwrap_or_else(|| panic!("{key} {attempt}: {spans:#?}"));
    assert!(found.next().is_none(), "one span for each run: {spans:#?}");
    span
}

/// Each attempt of a command is a span below the sender's, with the conventional attributes, and the command is told
/// that span as its parent. What was not run is none.
#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_a_span_and_its_command_has_it_as_parent() {
    let world = World::new("otel.exec").await;
    let collector = Collector::start().await;
    publish_traced(&world, "good").await;
    world.publish("bad", b"x").await;
    let handler = world.script(
        r#"echo "$ACKONCE_KEY $ACKONCE_ATTEMPT $TRACEPARENT $TRACESTATE" >> traces
[ "$ACKONCE_KEY" = good ] || { echo broken >&2; [ "$ACKONCE_ATTEMPT" = 1 ] || exit 65; exit 1; }"#,
    );
    let worker = traced(&world, &collector, &["--initial-interval", "10ms", "--exec", &handler]);
    world.until_state("done", 1).await;
    world.until_state("dead", 1).await;
    world.publish("good", b"body").await;
    worker.until_said("duplicate").await;
    let spans = collector.until_spans(3).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(collector.spans().len(), 3, "a duplicate does not run");

    let good = attempt(&spans, "good", "1");
    let queue = &world.queue;
    assert_eq!((good.name.as_str(), good.service.as_str()), (format!("process {queue}").as_str(), "ackonce"));
    assert_eq!((good.trace.as_str(), good.parent.as_str(), good.state.as_str()), (TRACE, PARENT, "vendor=1"));
    let expected = [
        ("ackonce.attempt", "1"),
        ("ackonce.key", "good"),
        // Published to the queue through the default exchange.
        ("messaging.destination.name", queue),
        ("messaging.message.body.size", "4"),
        ("messaging.message.conversation_id", "c"),
        ("messaging.message.id", "good"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.rabbitmq.destination.routing_key", queue),
        ("messaging.system", "rabbitmq"),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    assert_eq!(good.attributes, expected);
    assert!(!good.failed);

    let (first, second) = (attempt(&spans, "bad", "1"), attempt(&spans, "bad", "2"));
    for (span, class, status) in [(first, "retry", "exit status 1"), (second, "give-up", "exit status 65")] {
        assert!(span.failed && span.message.starts_with(status), "{span:?}");
        assert_eq!((span.attributes["error.type"].as_str(), span.parent.as_str()), (class, ""), "{span:?}");
    }
    let mut traces = world.lines("traces");
    traces.sort();
    let told = |key: &str, span: &Seen, state: &str| {
        format!("{key} {} 00-{}-{}-01 {state}", span.attributes["ackonce.attempt"], span.trace, span.id)
    };
    assert_eq!(traces, [told("bad", first, ""), told("bad", second, ""), told("good", good, "vendor=1")]);
}

/// A statement's run is a span as well; the service's name comes from the standard variable.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_inside_the_ledger_is_a_span() {
    let world = World::new("otel.sql").await;
    let collector = Collector::start().await;
    publish_traced(&world, "good").await;
    world.publish("bad", b"x").await;
    fs::write(world.path("schema.sql"), "CREATE TABLE IF NOT EXISTS t (k TEXT CHECK (k = 'good'))").unwrap();
    fs::write(world.path("effects.sql"), "INSERT INTO t VALUES (:key)").unwrap();
    let (name, endpoint) = collector.variable();
    let worker = world.worker_with(
        |command| {
            command.env(name, endpoint).env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop");
            command.env("OTEL_SERVICE_NAME", "billing");
        },
        &["--max-attempts", "1", "--sql-schema", "schema.sql", "--sql", "effects.sql"],
    );
    world.until_state("done", 1).await;
    world.until_state("dead", 1).await;
    // The batch is not due for seconds: it is sent because the worker ends.
    worker.terminate().await.expect_exit(0);
    let spans = collector.spans();
    let (good, bad) = (attempt(&spans, "good", "1"), attempt(&spans, "bad", "1"));
    assert_eq!(
        (good.service.as_str(), good.trace.as_str(), good.parent.as_str()),
        ("billing", TRACE, PARENT)
    );
    assert!(!good.failed && bad.failed && bad.message.contains("CHECK"), "{bad:?}");
    assert_eq!(bad.attributes["error.type"], "retry");
}
