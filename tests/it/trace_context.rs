//! W3C Trace Context: the sender's headers reach each kind of handler, if they are valid.

use std::fs;

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};
use serde_json::Value as Json;

use crate::harness::{Endpoint, Reply, World, header};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const STATE: &str = "vendor=a b%,other=1";
/// Its trace is all zeros.
const INVALID: &str = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";

/// Three messages: `traced`, `invalid`, and `plain` without any trace.
async fn publish_three(world: &World) {
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    for (id, parent) in [("traced", Some(PARENT)), ("invalid", Some(INVALID)), ("plain", None)] {
        let mut headers = FieldTable::default();
        if let Some(parent) = parent {
            headers.insert("traceparent".into(), text(parent));
            headers.insert("tracestate".into(), text(STATE));
        }
        let properties = BasicProperties::default().with_message_id(id.into()).with_headers(headers);
        world.publish_with(b"x", properties).await;
    }
}

/// A command's environment, at each attempt: in the worker, from a delay queue; and the dead letter keeps it. What
/// the worker was itself started with is not a message's.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_the_trace_at_each_attempt_and_its_dead_letter_too() {
    let world = World::new("trace.exec").await;
    publish_three(&world).await;
    let handler = world.script(
        r#"echo "$ACKONCE_KEY $ACKONCE_ATTEMPT ${TRACEPARENT-none} ${TRACESTATE-none}" >> traces
[ "$ACKONCE_KEY" = plain ]"#,
    );
    let worker = world.worker_with(
        |command| {
            command.env("TRACEPARENT", PARENT).env("TRACESTATE", "worker=1");
        },
        &["--max-attempts", "2", "--initial-interval", "5500ms", "--jitter", "0", "--exec", &handler],
    );
    world.until_state("dead", 2).await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut traces = world.lines("traces");
    traces.sort();
    let expected = [
        "invalid 1 none none".to_owned(),
        "invalid 2 none none".to_owned(),
        "plain 1 none none".to_owned(),
        format!("traced 1 {PARENT} {STATE}"),
        format!("traced 2 {PARENT} {STATE}"),
    ];
    assert_eq!(traces, expected);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let mut parents: Vec<_> = letters.iter().map(|letter| header(letter, "traceparent")).collect();
    parents.sort();
    assert_eq!(parents, [INVALID, PARENT], "a letter is what the sender sent");
}

/// Headers of the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_the_trace() {
    let world = World::new("trace.http").await;
    publish_three(&world).await;
    let endpoint = Endpoint::start(|_| Reply::status("204 No Content")).await;
    let worker = world.worker(&["--http", &endpoint.url()]);
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    for request in endpoint.requests() {
        let got = (request.header("traceparent"), request.header("tracestate"));
        if request.header("idempotency-key") == "traced" {
            assert_eq!(got, (PARENT.to_owned(), STATE.to_owned()));
        } else {
            assert!(!request.has("traceparent") && !request.has("tracestate"), "{request:?}");
        }
    }
}

/// Fields of the JSON object.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_a_pipe_has_the_trace() {
    let world = World::new("trace.pipe").await;
    publish_three(&world).await;
    let program = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    with open("told", "a") as file:
        file.write(line)
    print(json.dumps({"id": message["id"], "result": "done"}), flush=True)
"#;
    fs::write(world.path("child.py"), program).unwrap();
    let worker = world.worker(&["--concurrency", "1", "--pipe", "python3", "child.py"]);
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let told: Vec<Json> =
        world.lines("told").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 3);
    for message in told {
        if message["key"] == "traced" {
            assert_eq!((&message["traceparent"], &message["tracestate"]), (&PARENT.into(), &STATE.into()));
        } else {
            assert!(message.get("traceparent").is_none() && message.get("tracestate").is_none(), "{message}");
        }
    }
}

/// Parameters of a statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_the_trace() {
    let world = World::new("trace.sql").await;
    publish_three(&world).await;
    fs::write(
        world.path("schema.sql"),
        "CREATE TABLE IF NOT EXISTS trace (key TEXT, parent TEXT, state TEXT)",
    )
    .unwrap();
    fs::write(world.path("effects.sql"), "INSERT INTO trace VALUES (:key, :traceparent, :tracestate)")
        .unwrap();
    let worker = world.worker(&["--sql-schema", "schema.sql", "--sql", "effects.sql"]);
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let database = rusqlite::Connection::open(world.path("ackonce.db")).unwrap();
    let sql = "SELECT key || ' ' || coalesce(parent, 'none') || ' ' || coalesce(state, 'none') FROM trace ORDER BY key";
    let mut statement = database.prepare(sql).unwrap();
    let rows: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, ["invalid none none", "plain none none", &format!("traced {PARENT} {STATE}")]);
}
