//! What a request holds.

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString},
};

use super::ok;
use crate::harness::{Endpoint, World};

/// Body, properties and headers arrive as documented, whatever the sender put there.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_all_there_is_to_say() {
    let world = World::new("http").await;
    let endpoint = Endpoint::start(ok).await;
    let mut headers = FieldTable::default();
    headers.insert("Authorization".into(), AMQPValue::LongString("Bearer forged".into()));
    headers.insert("ñ".into(), AMQPValue::LongString("é".into()));
    let properties = BasicProperties::default()
        .with_message_id("a\r\nX-Evil: é%".into())
        .with_content_type("application/json".into())
        .with_content_encoding("gzip".into())
        .with_correlation_id("c 1".into())
        .with_reply_to("r".into())
        .with_type("t".into())
        .with_timestamp(1_772_000_000)
        .with_headers(headers);
    world.publish_with(br#"{"a":1}"#, properties).await;
    let url = endpoint.url();
    let worker = world.worker_with(
        |command| {
            // No proxy is used, whatever the environment says.
            for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
                command.env(name, "http://127.0.0.1:1");
            }
        },
        &["--http", &url, "--http-header", "X-Team: a b"],
    );
    world.until_state("done", 1).await;
    worker.until_said("posted until it is answered with 2xx once").await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.line, "POST /hook?x=1 HTTP/1.1");
    assert_eq!(request.body, br#"{"a":1}"#);
    for (name, expected) in [
        ("host", endpoint.address.to_string().as_str()),
        ("content-length", "7"),
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("user-agent", concat!("ackonce/", env!("CARGO_PKG_VERSION"))),
        ("x-team", "a b"),
        ("idempotency-key", "a%0D%0AX-Evil: %C3%A9%25"),
        ("ackonce-message-id", "a%0D%0AX-Evil: %C3%A9%25"),
        ("ackonce-attempt", "1"),
        ("ackonce-interrupted", "0"),
        ("ackonce-redelivered", "0"),
        ("ackonce-scope", &world.queue),
        ("ackonce-queue", &world.queue),
        ("ackonce-exchange", ""),
        ("ackonce-routing-key", &world.queue),
        ("ackonce-type", "t"),
        ("ackonce-correlation-id", "c 1"),
        ("ackonce-reply-to", "r"),
        ("ackonce-timestamp", "1772000000"),
        ("ackonce-headers", r#"{"Authorization":"Bearer forged","\u00f1":"\u00e9"}"#),
    ] {
        assert!(request.has(name), "{name} is missing: {:?}", request.headers);
        assert_eq!(request.header(name), expected, "{name}");
    }
    for name in ["authorization", "x-evil", "transfer-encoding", "cookie", "referer", "accept-encoding"] {
        assert!(!request.has(name), "{name}: {:?}", request.headers);
    }
}

/// K37, and bodies of any bytes up to the broker's limit.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_arrive_unchanged() {
    let world = World::new("http.bodies").await;
    let endpoint = Endpoint::start(ok).await;
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let largest: Vec<u8> =
        (0..16 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bodies = [("empty", Vec::new()), ("binary", binary), ("largest", largest)];
    for (id, body) in &bodies {
        world.publish(id, body).await;
    }
    let worker = world.http(&endpoint, &[]);
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    for (id, body) in &bodies {
        let request = requests.iter().find(|request| request.header("idempotency-key") == *id).expect(id);
        assert_eq!(request.header("content-length"), body.len().to_string());
        assert_eq!(request.header("content-type"), "application/octet-stream");
        assert!(request.body == *body, "the body of {id} was changed");
    }
    assert_eq!(requests.len(), 3);
}

/// K34, K35, K36: absurd timestamps, every type of header, and deep nesting are handled and shown.
#[tokio::test(flavor = "multi_thread")]
async fn any_header_is_handled() {
    let world = World::new("http.headers").await;
    let endpoint = Endpoint::start(ok).await;
    let mut deep = AMQPValue::Void;
    for _ in 0..200 {
        let mut table = FieldTable::default();
        table.insert("t".into(), deep);
        deep = AMQPValue::FieldTable(table);
    }
    let mut inner = every_type();
    inner.insert(
        "list".into(),
        AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(every_type())])),
    );
    let mut outer = every_type();
    outer.insert("table".into(), AMQPValue::FieldTable(inner));
    let headers_of = |name: &str, value: AMQPValue| {
        let mut table = FieldTable::default();
        table.insert(ShortString::from(name), value);
        table
    };
    let times = [0, 1 << 63, u64::MAX, 1_772_000_000_000];
    for time in times {
        let properties = BasicProperties::default()
            .with_message_id(time.to_string().into())
            .with_timestamp(time)
            .with_headers(headers_of("T", AMQPValue::Timestamp(time)));
        world.publish_with(b"x", properties).await;
    }
    let properties = BasicProperties::default().with_message_id("types".into()).with_headers(outer);
    world.publish_with(b"x", properties).await;
    let properties =
        BasicProperties::default().with_message_id("deep".into()).with_headers(headers_of("d", deep));
    world.publish_with(b"x", properties).await;
    world.publish("b", b"x").await;
    let worker = world.worker(&["--http", &endpoint.url()]);
    world.until_state("done", times.len() + 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    let of =
        |key: &str| requests.iter().find(|request| request.header("idempotency-key") == key).expect("it");
    for time in times {
        let request = of(&time.to_string());
        assert_eq!(request.header("ackonce-timestamp"), time.to_string());
        assert_eq!(request.header("ackonce-headers"), format!("{{\"T\":{time}}}"));
    }
    let json: serde_json::Value = serde_json::from_str(&of("types").header("ackonce-headers")).expect("JSON");
    for table in [&json, &json["table"], &json["table"]["list"][0]] {
        assert_eq!((&table["double"], &table["float"]), (&(-1.5).into(), &0.5.into()));
        assert_eq!(table["bytes"], "hex:ff00");
        assert_eq!(table["decimal"], "0.05");
        assert_eq!(table["u64"], u64::MAX);
        assert_eq!(table["void"], serde_json::Value::Null);
        assert_eq!(table["i64"], i64::MIN);
        assert_eq!(table["empty"], serde_json::json!({}));
    }
    assert!(of("deep").header("ackonce-headers").contains("..."));
}

/// NaN and the infinities never arrive: RabbitMQ closes the connection that publishes one.
fn every_type() -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in [
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-1)),
        ("u8", AMQPValue::ShortShortUInt(u8::MAX)),
        ("i16", AMQPValue::ShortInt(-1)),
        ("u16", AMQPValue::ShortUInt(u16::MAX)),
        ("i32", AMQPValue::LongInt(-1)),
        ("u32", AMQPValue::LongUInt(u32::MAX)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("double", AMQPValue::Double(-1.5)),
        ("float", AMQPValue::Float(0.5)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 })),
        ("text", AMQPValue::LongString("t".into())),
        ("u64", AMQPValue::Timestamp(u64::MAX)),
        ("bytes", AMQPValue::ByteArray(vec![0xff, 0].into())),
        ("empty", AMQPValue::FieldTable(FieldTable::default())),
        ("array", AMQPValue::FieldArray(FieldArray::default())),
        ("void", AMQPValue::Void),
    ] {
        table.insert(name.into(), value);
    }
    table
}
