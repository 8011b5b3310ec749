//! A dead letter: the original message, with headers that say why it is one.

use crate::{
    broker::{Outgoing, topology::dead_letter_queue},
    message::{Properties, Table, Value},
};

use super::core::Letter;

/// All our headers together stay well below the smallest frame a broker may negotiate (4096 bytes
/// are allowed; everyone speaks at least 128 KiB), because properties cannot be split into frames.
const TEXT_BYTES_MAX: usize = 1024;

/// What is published to the dead-letter queue: body, properties and headers as they came, and beside
/// them `x-ackonce-…` headers of bounded size.
///
/// The sender's expiration becomes a header, so that it deletes nothing from the dead-letter queue.
pub fn dead_letter(letter: &Letter, queue: &str) -> Outgoing {
    let original = &*letter.message;
    let mut headers: Table = original.properties.headers.clone().unwrap_or_default();
    let mut set = |name: &str, value: Value| {
        headers.insert(format!("x-ackonce-{name}"), value);
    };
    let text = |text: &str| Value::text(head(text, TEXT_BYTES_MAX));
    set("reason", Value::text(letter.reason.as_str()));
    set("error", text(crate::ledger::bounded_error(&letter.error)));
    set("attempts", Value::I64(i64::from(letter.attempts)));
    set("queue", text(queue));
    set("exchange", text(&original.exchange));
    set("routing-key", text(&original.routing_key));
    if let Some(key) = &letter.key {
        set("key", text(key.as_str()));
    }
    if let Some(first_seen) = letter.first_seen {
        set("first-seen-ms", Value::I64(first_seen));
    }
    if let Some(expiration) = &original.properties.expiration {
        set("expiration", text(expiration));
    }
    let properties = Properties {
        headers: Some(headers),
        expiration: None,
        delivery_mode: Some(2),
        // The broker refuses a user id that is not the publisher's own.
        user_id: None,
        ..original.properties.clone()
    };
    Outgoing {
        exchange: String::new(),
        routing_key: dead_letter_queue(queue),
        properties,
        body: original.body.clone().into(),
        mandatory: true,
    }
}

fn head(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
