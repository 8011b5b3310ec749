//! Goal: whatever a message carries becomes a request, and can be read back from it.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use tokio::sync::watch;

use super::*;
use crate::{
    key::Key,
    message::{Properties, Table, TraceContext, Value},
    secret_file::Secret,
};

fn work(key: &str, properties: Properties) -> Work {
    let message = Message {
        exchange: "ex".into(),
        routing_key: "rk".into(),
        redelivered: true,
        properties,
        body: b"body".to_vec(),
    };
    Work {
        message: Arc::new(message),
        key: Key::new(key).unwrap(),
        scope: "scope".into(),
        queue: "queue".into(),
        attempt: 2,
        interrupted: false,
        stop: watch::channel(false).1,
        span: None,
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
}

proptest! {
    #[test]
    fn any_text_becomes_a_header_value_that_decodes_to_it(given: String) {
        let encoded = encoded(&given);
        prop_assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{encoded}");
        prop_assert!(HeaderValue::from_str(&encoded).is_ok());
        prop_assert_eq!(encoded.trim_matches(' '), &*encoded);
        prop_assert_eq!(percent_decode_str(&encoded).decode_utf8().unwrap(), given.as_str());
    }

    #[test]
    fn any_headers_become_ascii_json_that_reads_the_same(name: String, given: String) {
        let table = Table::from([(name, Value::text(given))]);
        let json = table_json(&table);
        let ascii = ascii(&json.to_string());
        prop_assert!(ascii.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{ascii}");
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&ascii).unwrap(), json);
    }
}

#[test]
fn values_are_encoded_only_where_they_must_be() {
    for (given, expected) in [
        ("order-1042", "order-1042"),
        ("a b \"c\"; d=é", "a b \"c\"; d=%C3%A9"),
        ("50%", "50%25"),
        (" ", "%20"),
        (" a ", "%20a%20"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
        ("a\tb\0\u{7f}", "a%09b%00%7F"),
    ] {
        assert_eq!(encoded(given), expected);
    }
}

#[test]
fn the_trace_is_handed_on_if_it_is_valid() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let with = |parent: &str| {
        let entries = [("traceparent", parent), ("tracestate", "a=50%")];
        let entries = entries.map(|(name, text)| (name.to_owned(), Value::text(text)));
        work("k", Properties { headers: Some(Table::from(entries)), ..Properties::default() })
    };
    let headers = metadata(&with(parent));
    assert_eq!(
        (text(&headers, "traceparent"), text(&headers, "tracestate")),
        (parent.into(), "a=50%".into())
    );
    let headers = metadata(&with("00-forged\r\nAuthorization: x"));
    assert!(!headers.contains_key("traceparent") && !headers.contains_key("tracestate"));
    let span = TraceContext::parse(&parent.replace("00f", "11f"), None);
    let headers = metadata(&Work { span, ..with(parent) });
    assert_eq!(text(&headers, "traceparent"), parent.replace("00f", "11f"), "this run's own comes first");
    assert!(!headers.contains_key("tracestate"));
}

#[test]
fn properties_travel_under_names_of_our_own() {
    let headers = Table::from([
        ("Authorization".to_owned(), Value::text("Bearer forged")),
        ("é\u{1F600}\u{7f}".to_owned(), Value::F64(f64::NAN)),
    ]);
    let properties = Properties {
        content_type: Some("text/plain; charset=utf-8".into()),
        content_encoding: Some("gzip".into()),
        headers: Some(headers),
        message_id: Some("ïd".into()),
        timestamp: Some(u64::MAX),
        kind: Some(String::new()),
        ..Properties::default()
    };
    let headers = metadata(&work("k\n", properties));
    for (name, expected) in [
        ("idempotency-key", "k%0A"),
        ("ackonce-attempt", "2"),
        ("ackonce-interrupted", "0"),
        ("ackonce-redelivered", "1"),
        ("ackonce-scope", "scope"),
        ("ackonce-queue", "queue"),
        ("ackonce-exchange", "ex"),
        ("ackonce-routing-key", "rk"),
        ("ackonce-message-id", "%C3%AFd"),
        ("ackonce-type", ""),
        ("ackonce-reply-to", "-"),
        ("ackonce-timestamp", "18446744073709551615"),
        ("ackonce-headers", r#"{"Authorization":"Bearer forged","\u00e9\ud83d\ude00\u007f":"NaN"}"#),
        ("content-type", "text/plain; charset=utf-8"),
        ("content-encoding", "gzip"),
        ("authorization", "-"),
    ] {
        assert_eq!(text(&headers, name), expected, "{name}");
    }
}

#[test]
fn what_no_http_header_holds_is_not_forced_into_one() {
    for (content_type, coding, expected) in [
        (Some("text/plain\r\nX: 1"), Some("utf-8"), ("application/octet-stream", "-", "utf-8")),
        (Some("tëxt"), Some("gzip, BR"), ("application/octet-stream", "gzip, BR", "-")),
        (Some(" "), Some(""), ("application/octet-stream", "-", "-")),
        (None, Some("gzip\n"), ("application/octet-stream", "-", "gzip%0A")),
        (Some("application/json"), None, ("application/json", "-", "-")),
    ] {
        let properties = Properties {
            content_type: content_type.map(Into::into),
            content_encoding: coding.map(Into::into),
            ..Properties::default()
        };
        let headers = metadata(&work("k", properties));
        let found =
            ["content-type", "content-encoding", "ackonce-content-encoding"].map(|name| text(&headers, name));
        assert_eq!(found, [expected.0, expected.1, expected.2]);
    }
}

#[test]
fn long_and_deep_headers_are_bounded() {
    let mut deep = Value::I8(1);
    for _ in 0..200 {
        deep = Value::Table(Table::from([("t".to_owned(), Value::List(vec![deep]))]));
    }
    for (value, expected) in [(deep, "..."), (Value::text("é".repeat(1000)), r#"{"ackonce_too_long":true}"#)]
    {
        let headers = Some(Table::from([("h".to_owned(), value)]));
        let headers = metadata(&work("k", Properties { headers, ..Properties::default() }));
        let json = text(&headers, "ackonce-headers");
        assert!(json.contains(expected) && json.len() <= HEADERS_JSON_BYTES_MAX, "{json}");
    }
    assert_eq!(text(&metadata(&work("k", Properties::default())), "ackonce-headers"), "{}");
}

#[test]
fn static_headers_cannot_take_the_place_of_ours() {
    let parse = |headers: &[(&str, &str)]| {
        let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        StaticHeaders::parse(&headers)
    };
    for (headers, expected) in [
        (vec![("Idempotency-Key", "hidden")], "'idempotency-key' is set by ackonce itself"),
        (vec![("ackonce-X", "hidden")], "set by ackonce itself"),
        (vec![("Webhook-Id", "hidden")], "set by ackonce itself"),
        (vec![("Host", "hidden")], "set by ackonce itself"),
        (vec![("transfer-encoding", "hidden")], "set by ackonce itself"),
        (vec![("a b", "hidden")], "a name is not one of HTTP's"),
        (vec![("", "hidden")], "a name is not one of HTTP's"),
        (vec![("a", "hidden\n")], "'a': a control character"),
        (vec![("a", "hidden"), ("A", "x")], "'a' is given twice"),
    ] {
        let error = parse(&headers).unwrap_err();
        assert!(error.contains(expected) && !error.contains("hidden"), "{error}");
    }
    assert!(parse(&[("authorization", "Basic x"), ("User-Agent", "us")]).unwrap().authorize());
}

#[test]
fn a_request_holds_all_of_it() {
    let client = Client::builder()
        .tls_backend_preconfigured(super::super::endpoint::trusting_nobody().unwrap())
        .timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let headers =
        StaticHeaders::parse(&[("X-Team".into(), "a".into()), ("Content-Type".into(), "a/b".into())])
            .unwrap();
    let secrets = Secrets {
        bearer_token: Some(Arc::new(BearerToken::parse("token\n").unwrap())),
        signing_keys: Some(Arc::new(SigningKeys::parse("whsec_b25l").unwrap())),
    };
    let url = Url::parse("http://h/p?q").unwrap();
    let request = build(&client, &url, &headers, &secrets, &work("é", Properties::default())).unwrap();
    assert_eq!((request.method().as_str(), request.url().as_str()), ("POST", "http://h/p?q"));
    assert_eq!(request.body().unwrap().as_bytes(), Some(&b"body"[..]));
    let timestamp: u64 = text(request.headers(), "webhook-timestamp").parse().unwrap();
    let expected = SigningKeys::parse("b25l").unwrap().sign("%C3%A9", timestamp, b"body");
    for (name, expected) in [
        ("x-team", "a"),
        ("content-type", "a/b"),
        ("user-agent", concat!("ackonce/", env!("CARGO_PKG_VERSION"))),
        ("authorization", "Bearer token"),
        ("webhook-id", "%C3%A9"),
        ("webhook-signature", &*expected),
    ] {
        assert_eq!(text(request.headers(), name), expected, "{name}");
    }
}
