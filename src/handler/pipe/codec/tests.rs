use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::*;
use crate::{
    key::Key,
    message::{Message, Properties, Value},
};

fn work(body: &[u8], properties: Properties) -> Work {
    Work {
        message: Arc::new(Message {
            exchange: "e".into(),
            routing_key: "r".into(),
            redelivered: true,
            properties,
            body: body.to_vec(),
        }),
        key: Key::new("k\n").unwrap(),
        scope: "s".into(),
        queue: "q".into(),
        attempt: 2,
        interrupted: false,
        stop: watch::channel(false).1,
        span: None,
    }
}

fn encoded(framing: Framing, work: &Work) -> Vec<u8> {
    let mut out = Vec::new();
    encode(framing, 7, work, &mut out).unwrap();
    out
}

fn body_of(message: &Json) -> Vec<u8> {
    match (&message["body"], &message["body_base64"]) {
        (Json::String(text), Json::Null) => text.clone().into_bytes(),
        (Json::Null, Json::String(base64)) => STANDARD.decode(base64).unwrap(),
        both => panic!("one of the two: {both:?}"),
    }
}

/// All replies in a stream that arrives in pieces of that size.
fn replies(framing: Framing, bytes: &[u8], piece: usize) -> Vec<Result<Reply, String>> {
    let mut replies = Replies::new(framing);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        replies.space().extend_from_slice(piece);
        while let Some(reply) = replies.next() {
            let trusted = reply.is_ok();
            found.push(reply);
            if !trusted {
                return found;
            }
        }
    }
    found
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

#[test]
fn a_message_is_told_whole() {
    let properties = Properties {
        message_id: Some("m".into()),
        kind: Some("t".into()),
        timestamp: Some(u64::MAX),
        headers: Some(BTreeMap::from([("h".into(), Value::F64(f64::NAN))])),
        ..Properties::default()
    };
    let line = encoded(Framing::Lines, &work("a\u{2028}b\u{85}\n".as_bytes(), properties));
    assert_eq!(
        String::from_utf8(line).unwrap(),
        concat!(
            r#"{"id":7,"key":"k\n","message_id":"m","scope":"s","queue":"q","exchange":"e","routing_key":"r","#,
            r#""attempt":2,"interrupted":false,"redelivered":true,"type":"t","content_type":null,"#,
            r#""correlation_id":null,"reply_to":null,"timestamp":18446744073709551615,"headers":{"h":"NaN"},"#,
            r#""body":"a\u2028b\u0085\n"}"#,
            "\n"
        )
    );
    let bare = work(b"\xff\n", Properties::default());
    let line: Json = serde_json::from_slice(&encoded(Framing::Lines, &bare)).unwrap();
    assert_eq!((&line["headers"], &line["body_base64"]), (&json!({}), &json!("/wo=")));
    assert_eq!(line.get("body"), None);
}

#[test]
fn replies_say_done_retry_or_give_up() {
    let retry = |error: &str, after| Verdict::Retry { error: error.into(), after };
    let none = "the child gave no reason";
    for (said, verdict) in [
        (r#"{"id": 1, "result": "done"}"#, Verdict::Done),
        (r#"{"result": "done", "id": 1, "error": "x", "more": [1]}"#, Verdict::Done),
        (r#"{"id": 1, "result": "retry"}"#, retry(none, None)),
        (r#"{"id": 1, "result": "retry", "error": null, "retry_after": null}"#, retry(none, None)),
        (
            r#"{"id": 1, "result": "retry", "error": "e", "retry_after": 1.5}"#,
            retry("e", Some(Duration::from_millis(1500))),
        ),
        (r#"{"id": 1, "result": "retry", "error": "e", "retry_after": 0}"#, retry("e", Some(Duration::ZERO))),
        (r#"{"id": 1, "result": "retry", "error": "e", "retry_after": -5}"#, retry("e", None)),
        (r#"{"id": 1, "result": "retry", "error": "e", "retry_after": 1e300}"#, retry("e", None)),
        (r#"{"id": 1, "result": "retry", "error": {"a": 1}, "retry_after": "5"}"#, retry(r#"{"a":1}"#, None)),
        (r#"{"id": 1, "result": "give-up", "error": "e"}"#, Verdict::GiveUp { error: "e".into() }),
    ] {
        assert_eq!(parse(said.as_bytes()), Ok(Reply { id: 1, verdict }), "{said}");
    }
    let long = format!(r#"{{"id": 1, "result": "give-up", "error": "{}"}}"#, "e".repeat(5000));
    let Ok(Reply { verdict: Verdict::GiveUp { error }, .. }) = parse(long.as_bytes()) else { panic!() };
    assert_eq!(error.len(), 1024);
}

#[test]
fn what_is_no_reply_is_shown_in_part() {
    for said in [
        "hello",
        "{}",
        "null",
        r#"{"id": 1}"#,
        r#"{"id": -1, "result": "done"}"#,
        r#"{"id": "1", "result": "done"}"#,
        r#"{"id": 1, "result": "fine"}"#,
        r#"{"id": 1, "result": "done"} {"id": 1, "result": "done"}"#,
    ] {
        let why = parse(said.as_bytes()).unwrap_err();
        assert!(
            why.starts_with("something that is no reply (") && why.contains(&format!("{said:?}")),
            "{why}"
        );
    }
    let long = "x".repeat(REPLY_BYTES_MAX + 1);
    for piece in [1000, 100_000] {
        let found = replies(Framing::Lines, long.as_bytes(), piece);
        let Some(Err(why)) = found.first() else { panic!("{found:?}") };
        assert!(why.starts_with("a line of more than 65536 bytes: ") && why.len() < 500, "{why}");
    }
    let found = replies(Framing::LengthPrefixed, b"hello there", 3);
    let Some(Err(why)) = found.first() else { panic!("{found:?}") };
    assert!(why.contains("a frame of 1751477356 bytes") && why.ends_with("\"hell\""), "{why}");
}

#[test]
fn replies_are_cut_however_they_arrive() {
    let said = |id: u64| format!(r#"{{"id":{id},"result":"done"}}"#);
    let expected: Vec<_> = [1, 2, 3].map(|id| Ok(Reply { id, verdict: Verdict::Done })).into();
    let lines = format!("\n{}\n  \r\n{}\r\n{}\n{{\"id\":4", said(1), said(2), said(3));
    let frames = [1, 2, 3].map(|id| framed(said(id).as_bytes())).concat();
    for piece in [1, 2, 7, 1000] {
        assert_eq!(replies(Framing::Lines, lines.as_bytes(), piece), expected, "{piece}");
        assert_eq!(replies(Framing::LengthPrefixed, &frames, piece), expected, "{piece}");
    }
}

proptest! {
    #[test]
    fn any_body_arrives(body in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), ".*".prop_map(String::into_bytes)]) {
        let work = work(&body, Properties::default());
        let line = encoded(Framing::Lines, &work);
        let text = std::str::from_utf8(&line).unwrap();
        let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
        prop_assert_eq!(text.find(ends), Some(text.len() - 1));
        prop_assert_eq!(body_of(&serde_json::from_str(text).unwrap()), body.clone());

        let frames = encoded(Framing::LengthPrefixed, &work);
        let (length, rest) = frames.split_first_chunk::<4>().unwrap();
        let (message, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let message: Json = serde_json::from_slice(message).unwrap();
        prop_assert_eq!(message.get("body").or(message.get("body_base64")), None);
        prop_assert_eq!(rest, framed(&body));
    }

    #[test]
    fn any_bytes_as_replies_end_in_an_error_or_in_nothing(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            r#"(\{"id":[0-9]{1,3},"result":"(done|retry|oops)"\}\n?){0,4}.{0,20}"#.prop_map(String::into_bytes),
        ],
        piece in 1usize..40,
    ) {
        for framing in [Framing::Lines, Framing::LengthPrefixed] {
            let whole = replies(framing, &bytes, bytes.len());
            prop_assert_eq!(&replies(framing, &bytes, piece), &whole);
            prop_assert!(whole.iter().rev().skip(1).all(Result::is_ok));
        }
    }
}
