//! Keys of each source, missing keys, and the sentences for specifications that cannot be read.

use super::*;
use crate::message::Table;

fn key(spec: &[&str], message: &Message) -> Result<String, String> {
    KeySpec::parse(spec.iter().copied())
        .expect("a valid specification")
        .extract(message)
        .map(|key| key.to_string())
        .map_err(|missing| missing.to_string())
}

fn message() -> Message {
    Message {
        routing_key: "orders".into(),
        properties: Properties {
            message_id: Some("m-1".into()),
            kind: Some("paid".into()),
            timestamp: Some(u64::MAX),
            headers: Some(Table::from([
                ("biz_key".into(), Value::text("order-7")),
                ("n".into(), Value::I64(42)),
                ("raw".into(), Value::Bytes(vec![0xff])),
                ("blank".into(), Value::text(" \t")),
                ("table".into(), Value::Table(Table::new())),
            ])),
            ..Properties::default()
        },
        body: br#"{"id":"a","n":7,"ok":true,"deep":{"x/y":["z"]},"no":null}"#.to_vec(),
        ..Message::default()
    }
}

#[test]
fn each_source_gives_its_text() {
    for (spec, expected) in [
        ("message-id", "m-1"),
        ("property:type", "paid"),
        ("property:routing_key", "orders"),
        ("property:timestamp", "18446744073709551615"),
        ("header:biz_key", "order-7"),
        ("header:n", "42"),
        ("header:raw", "hex:ff"),
        ("json:/id", "a"),
        ("json:/n", "7"),
        ("json:/ok", "true"),
        ("json:/deep/x~1y/0", "z"),
    ] {
        assert_eq!(key(&[spec], &message()).as_deref(), Ok(expected), "{spec}");
    }
    assert_eq!(key(&["body"], &message()), Ok(body_key(&message().body)));
}

#[test]
fn parts_are_joined_so_that_no_two_lists_meet() {
    let spec = ["header:biz_key", "property:type"];
    assert_eq!(key(&spec, &message()).as_deref(), Ok(r#"["order-7","paid"]"#));
    let mut other = message();
    other.properties.kind = Some(r#"paid","x"#.into());
    assert_ne!(key(&spec, &message()), key(&spec, &other));
}

#[test]
fn absent_empty_and_blank_are_missing_and_said_so() {
    let mut empty = message();
    empty.properties.message_id = Some(String::new());
    assert_eq!(key(&["message-id"], &empty), Err("message-id is empty".into()));
    assert_eq!(key(&["message-id"], &Message::default()), Err("message-id is absent".into()));
    assert_eq!(key(&["header:blank"], &message()), Err("header:blank is empty".into()));
    assert_eq!(key(&["header:x"], &message()), Err("header:x is absent".into()));
    assert_eq!(key(&["header:table"], &message()), Err("header:table is neither a text nor a number".into()));
    assert_eq!(key(&["json:/no"], &message()), Err("json:/no is neither a text nor a number".into()));
    assert_eq!(key(&["json:/x"], &Message::default()), Err("json:/x: the body is not JSON".into()));
    assert_eq!(key(&["header:biz_key", "header:blank"], &message()), Err("header:blank is empty".into()));
}

#[test]
fn keys_are_bytes_not_letters() {
    for (a, b) in [("a", "A"), ("a", "a "), ("é", "e\u{301}"), ("a", "aa"), ("1", "1.0")] {
        assert_ne!(Key::new(a), Key::new(b));
    }
}

#[test]
fn a_long_key_is_hashed_and_stays_unique() {
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    let hashed = Key::new(&long).expect("a key");
    assert!(hashed.as_str().starts_with("blake3:") && hashed.as_str().len() < 100);
    assert_ne!(Some(hashed), Key::new(&format!("{long}y")));
    assert_eq!(Key::new(&long[1..]).expect("a key").as_str(), &long[1..]);
}

#[test]
fn a_specification_that_cannot_be_read_is_refused_with_a_hint() {
    for (spec, part) in [
        ("", "unknown key ''"),
        ("messageid", "unknown key 'messageid'"),
        ("header:", "names no header"),
        ("property:colour", "unknown property 'colour'"),
        ("json:id", "not a JSON pointer"),
        ("json:/a~2", "not a JSON pointer"),
    ] {
        let error = KeySpec::parse([spec]).expect_err(spec);
        assert!(error.contains(part), "{spec}: {error}");
    }
    assert!(KeySpec::parse([]).is_err());
}

proptest::proptest! {
    /// What is refused is refused in one line; what is taken is said as it was written.
    #[test]
    fn no_specification_panics(
        text in r"(message-id|body|header|property|json)?:?(/|~0|~1|~|[a-z_-]{0,12}|\PC{0,6}|.{0,6}){0,4}",
    ) {
        match KeySpec::parse([text.as_str()]) {
            Ok(spec) => proptest::prop_assert_eq!(KeySpec::parse([spec.to_string().as_str()]), Ok(spec)),
            Err(why) => proptest::prop_assert!(!why.contains(char::is_control), "{:?}", why),
        }
    }

    /// Any message gives a key that is one, or the reason why not, in one line.
    #[test]
    fn no_message_panics(
        header in ".{0,2000}",
        body in proptest::prop_oneof![".{0,100}", r#"(\{"a":)?("\PC{0,9}"|-?[0-9]{1,30}(e[0-9]{1,4})?|null|true|\[\[1\]\])\}?"#],
        pointer in r"(/(a|0|~0|~1|\PC{0,3})){1,3}",
    ) {
        let mut message = message();
        message.properties.headers = Some([("h".to_owned(), Value::text(&header))].into());
        message.body = body.into_bytes();
        let pointer = format!("json:{pointer}");
        for spec in [vec!["header:h"], vec![&pointer], vec!["body"], vec!["header:h", &pointer, "message-id"]] {
            match KeySpec::parse(spec).map(|spec| spec.extract(&message)) {
                Ok(Ok(key)) => {
                    proptest::prop_assert!(!key.as_str().trim().is_empty());
                    proptest::prop_assert!(key.as_str().len() <= KEY_BYTES_MAX);
                }
                Ok(Err(MissingKey(why))) => proptest::prop_assert!(!why.trim().is_empty()),
                Err(why) => proptest::prop_assert!(!why.trim().is_empty()),
            }
        }
    }
}
