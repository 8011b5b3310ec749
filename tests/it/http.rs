//! The http handler: one POST per attempt, and what its answer means, on real sockets.

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString},
};

use crate::harness::{Endpoint, LIMIT, Reply, Request, World, answer, header, until};

/// Retries without delay, so that a test waits for none.
const FAST: [&str; 2] = ["--initial-interval", "20ms"];

fn ok(_: &Request) -> Reply {
    Reply::status("200 OK")
}

impl World {
    fn http(&self, endpoint: &Endpoint, arguments: &[&str]) -> crate::harness::Process {
        let url = endpoint.url();
        self.worker(&[&["--http", url.as_str()], &FAST[..], arguments].concat())
    }
}

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
    // lapin reads tables by recursion: in a debug build, a thread's usual stack ends before 200.
    let worker = world.worker_with(
        |command| {
            command.env("RUST_MIN_STACK", "16777216");
        },
        &["--http", &endpoint.url()],
    );
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

/// The status decides; no redirect is followed (K74), and a reason reaches the dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_decides() {
    let world = World::new("http.status").await;
    let endpoint = Endpoint::start(|request| {
        let key = request.header("idempotency-key");
        let first = request.header("ackonce-attempt") == "1";
        match key.as_str() {
            "302" | "307" => Reply::Bytes(answer(&format!("{key} Found"), "location: /elsewhere\r\n", "")),
            "408" | "409" | "425" | "429" | "500" | "503" if first => Reply::status(&format!("{key} Again")),
            "400" | "404" => Reply::Bytes(answer(&format!("{key} X"), "", "no\r\nsuch \u{7} order")),
            // Answered before the body, so to say: 100 Continue is no answer.
            "100" => Reply::Bytes(format!("HTTP/1.1 100 Continue\r\n\r\n{}", answer("200 OK", "", ""))),
            "204" => Reply::Bytes("HTTP/1.1 204 No Content\r\n\r\n".into()),
            "chunked" => Reply::Bytes(
                "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".into(),
            ),
            _ => ok(request),
        }
    })
    .await;
    let done = ["100", "200", "204", "408", "409", "425", "429", "500", "503", "chunked"];
    let dead = ["302", "307", "400", "404"];
    for id in done.iter().chain(&dead) {
        world.publish(id, b"x").await;
    }
    let worker = world.http(&endpoint, &[]);
    world.until_state("done", done.len()).await;
    world.until_state("dead", dead.len()).await;
    world.stop_and_find_nothing_left(worker).await;
    for row in world.rows() {
        let retried = ["408", "409", "425", "429", "500", "503"].contains(&row.key.as_str());
        assert_eq!(row.attempts, if retried { 2 } else { 1 }, "{row:?}");
        assert_eq!(row.state, if dead.contains(&row.key.as_str()) { "dead" } else { "done" }, "{row:?}");
    }
    assert!(endpoint.requests().iter().all(|request| request.line == "POST /hook?x=1 HTTP/1.1"));
    assert_eq!(endpoint.requests().len(), done.len() + 6 + dead.len());
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let of = |id: &str| {
        let is = |id: &str, letter: &&lapin::message::Delivery| {
            letter.properties.message_id().as_ref().is_some_and(|found| found.as_str() == id)
        };
        let letter = letters.iter().find(|letter| is(id, letter)).expect("a dead letter");
        (header(letter, "x-ackonce-reason"), header(letter, "x-ackonce-error"))
    };
    assert_eq!(of("404"), ("gave-up".into(), "HTTP 404 Not Found: no such order".into()));
    assert_eq!(of("302"), ("gave-up".into(), "HTTP 302 Found".into()));
}

/// K73: the endpoint's wish is heard, within our bounds; what is no wish changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_within_bounds() {
    let world = World::new("http.after").await;
    let endpoint = Endpoint::start(|request| {
        let key = request.header("idempotency-key");
        if request.header("ackonce-attempt") != "1" {
            return ok(request);
        }
        let date = |shift: i64| {
            let now = SystemTime::now();
            let shifted = Duration::from_secs(shift.unsigned_abs());
            httpdate::fmt_http_date(if shift < 0 { now - shifted } else { now + shifted })
        };
        let wish = match key.as_str() {
            "date" => date(3),
            "past" => date(-100),
            other => other.to_owned(),
        };
        let status = if key == "2" { "503 Busy" } else { "429 Slow Down" };
        Reply::Bytes(answer(status, &format!("retry-after: {wish}\r\n"), ""))
    })
    .await;
    let cases = [
        ("2", 2000..3500),
        ("date", 1900..4500),
        ("9999999999", 4000..6000),
        ("0", 0..1500),
        ("-5", 0..1500),
        ("abc", 0..1500),
        ("past", 0..1500),
    ];
    for (id, _) in &cases {
        world.publish(id, b"x").await;
    }
    let worker = world.http(&endpoint, &["--max-interval", "4s"]);
    world.until_state("done", cases.len()).await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    for (id, expected) in cases {
        let times: Vec<_> =
            requests.iter().filter(|request| request.header("idempotency-key") == id).map(|r| r.at).collect();
        assert_eq!(times.len(), 2, "{id}");
        let waited = times[1].duration_since(times[0]).as_millis();
        assert!(expected.contains(&waited), "{id}: waited {waited} ms");
    }
}

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

/// K77: of an answer without end only the start is read, whatever its status.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_cut() {
    let world = World::new("http.endless").await;
    let endpoint = Endpoint::start(|request| {
        let status = if request.header("idempotency-key") == "good" { "200 OK" } else { "404 X" };
        Reply::Endless(format!("HTTP/1.1 {status}\r\ncontent-length: 5368709120\r\n\r\n"))
    })
    .await;
    let worker = world.http(&endpoint, &[]);
    world.publish("good", b"x").await;
    world.until_state("done", 1).await;
    world.publish("bad", b"x").await;
    world.until_state("dead", 1).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).expect("its status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 256 * 1024, "{peak_kib} KiB");
    world.stop_and_find_nothing_left(worker).await;
    // What lay in socket buffers counts as sent.
    assert!(endpoint.sent_bytes.load(Ordering::SeqCst) < 64 * 1024 * 1024);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let error = header(&letters[0], "x-ackonce-error");
    assert!(error.starts_with("HTTP 404 Not Found: xxx") && error.len() <= 1024, "{error}");
}

/// The timeout covers the whole run: an endpoint that is silent, and one that never gets to the point.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_at_its_timeout() {
    let world = World::new("http.slow").await;
    let endpoint = Endpoint::start(|request| match request.header("ackonce-attempt").as_str() {
        "1" => Reply::Bytes(String::new()),
        "2" => Reply::Trickle,
        _ => ok(request),
    })
    .await;
    world.publish("a", b"x").await;
    let worker = world.http(&endpoint, &["--timeout", "600ms"]);
    world.until_state("done", 1).await;
    worker.until_said("timed out after 600ms without an answer from http://127.0.0.1").await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.rows()[0].attempts, 3);
    assert_eq!(endpoint.requests().len(), 3);
}

/// At the drain deadline the request is dropped and its attempt taken back; the next run has the same key.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_dropped_at_the_drain_deadline() {
    let world = World::new("http.drain").await;
    let endpoint = Endpoint::start(|request| match request.connection {
        // The first connection may be the probe's.
        _ if request.header("ackonce-redelivered") == "0" => Reply::Bytes(String::new()),
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

/// Tokens and signing secrets are read from files, and read again when those have changed; a file that
/// is away pauses the worker.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_come_from_files_that_may_change() {
    let world = World::new("http.secrets").await;
    let endpoint = Endpoint::start(ok).await;
    let (token, secret) = (world.path("token"), world.path("secret"));
    std::fs::write(&token, "hidden-1\n").unwrap();
    std::fs::write(&secret, "whsec_aGlkZGVu\n").unwrap();
    let files = [token.display().to_string(), secret.display().to_string()];
    let worker = world
        .http(&endpoint, &["--http-bearer-token-file", &files[0], "--http-signature-secret-file", &files[1]]);
    world.publish("a", b"body").await;
    world.until_state("done", 1).await;
    std::fs::remove_file(&token).unwrap();
    world.publish("b", b"body").await;
    worker.until_said("paused, no attempt is used: the bearer token file").await;
    std::fs::write(&token, "hidden-2\n").unwrap();
    std::fs::write(&secret, "whsec_aGlkZGVu whsec_aGlkZGVuMg==\n").unwrap();
    world.until_state("done", 2).await;
    let said = worker.said();
    world.stop_and_find_nothing_left(worker).await;
    assert!(!said.contains("hidden") && !said.contains("aGlkZGVu"), "{said}");
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 2);
    for (request, token, signatures) in [(&requests[0], "hidden-1", 1), (&requests[1], "hidden-2", 2)] {
        assert_eq!(request.header("authorization"), format!("Bearer {token}"));
        assert_eq!(request.header("webhook-id"), request.header("idempotency-key"));
        assert_eq!(
            request.header("webhook-signature").split(' ').filter(|s| s.starts_with("v1,")).count(),
            signatures
        );
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let timestamp: u64 = request.header("webhook-timestamp").parse().unwrap();
        assert!((now - 60..=now).contains(&timestamp), "{timestamp} at {now}");
    }
}

/// K63: what the URL holds beside its host is neither logged nor part of any error, however it fails.
#[tokio::test(flavor = "multi_thread")]
async fn the_credentials_of_the_url_are_used_and_never_shown() {
    let world = World::new("http.user").await;
    let endpoint = Endpoint::start(|request| match request.header("idempotency-key").as_str() {
        "closes" => Reply::Last(String::new()),
        "dead" => Reply::status("410 Gone"),
        _ => ok(request),
    })
    .await;
    for id in ["closes", "dead", "good"] {
        world.publish(id, b"x").await;
    }
    let url = format!("http://user:hid%20den@{}/hidden?hidden", endpoint.address);
    let worker = world.worker_with(
        |command| {
            command.env("ACKONCE_LOG_LEVEL", "trace").env("ACKONCE_HTTP", &url);
        },
        &["--max-attempts", "1"],
    );
    world.until_state("dead", 2).await;
    world.until_state("done", 1).await;
    let address = endpoint.address;
    assert_eq!(endpoint.requests()[0].line, "POST /hidden?hidden HTTP/1.1");
    assert_eq!(endpoint.requests()[0].header("authorization"), "Basic dXNlcjpoaWQgZGVu");
    endpoint.stop().await;
    world.publish("refused", b"x").await;
    worker.until_said(&format!("cannot reach http://{address}")).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    for letter in world.take_all(&format!("{}.dead", world.queue)).await {
        assert!(!header(&letter, "x-ackonce-error").contains("hid"));
    }
    let database = std::fs::read(world.path("ackonce.db")).unwrap();
    for secret in ["hidden", "hid den", "hid%20den", "dXNlcjpoaWQgZGVu"] {
        assert!(!ended.said.contains(secret), "{}", ended.said);
        assert!(!database.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}
