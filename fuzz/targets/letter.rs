//! Whatever headers a sender makes up, a message becomes the one that it was, once: doing it again changes nothing.

#![no_main]

use std::sync::Arc;

use ackonce::{
    message::{Message, Properties, Table, Value},
    worker::letter,
};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Any {
    Null,
    Bool(bool),
    I64(i64),
    U32(u32),
    F64(f64),
    Text(Vec<u8>),
    List(Vec<Any>),
    Table(Vec<(Name, Any)>),
}

/// Mostly the names that mean something.
#[derive(Arbitrary, Debug)]
enum Name {
    Retry,
    Attempt,
    Exchange,
    RoutingKey,
    Expiration,
    Key,
    NoHeaders,
    Cc,
    XDeath,
    Other(String),
}

impl Name {
    fn text(self) -> String {
        match self {
            Name::Retry => "x-ackonce-retry".into(),
            Name::Attempt => "attempt".into(),
            Name::Exchange => "exchange".into(),
            Name::RoutingKey => "routing-key".into(),
            Name::Expiration => "expiration".into(),
            Name::Key => "key".into(),
            Name::NoHeaders => "no-headers".into(),
            Name::Cc => "CC".into(),
            Name::XDeath => "x-death".into(),
            Name::Other(text) => text,
        }
    }
}

fn value(any: Any) -> Value {
    match any {
        Any::Null => Value::Null,
        Any::Bool(v) => Value::Bool(v),
        Any::I64(v) => Value::I64(v),
        Any::U32(v) => Value::U32(v),
        Any::F64(v) => Value::F64(v),
        Any::Text(v) => Value::Text(v),
        Any::List(v) => Value::List(v.into_iter().map(value).collect()),
        Any::Table(v) => Value::Table(table(v)),
    }
}

fn table(entries: Vec<(Name, Any)>) -> Table {
    entries.into_iter().map(|(name, any)| (name.text(), value(any))).collect()
}

fuzz_target!(|input: (Vec<(Name, Any)>, Vec<u8>, bool)| {
    let (headers, body, redelivered) = input;
    let properties = Properties { headers: Some(table(headers)), ..Properties::default() };
    let sent = Message { properties, body, redelivered, ..Message::default() };
    let mut message = Arc::new(sent.clone());
    letter::restore(&mut message);
    assert_eq!(message.body, sent.body, "the body is the sender's");
    assert!(
        message.properties.header("x-ackonce-retry").is_none()
            || message.properties.headers == sent.properties.headers
    );
});
