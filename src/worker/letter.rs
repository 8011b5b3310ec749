//! Copies of a message that go on in its place: what they carry, and how a returned one becomes the
//! message again that it was.

mod notes;
mod replay;

use std::sync::Arc;

use crate::{
    broker::{Destination, Outgoing},
    key::Key,
    ledger::{Origin, bounded_error, unix_millis},
    message::{Message, Properties, Table, Value},
};

use super::core::{Letter, Purpose};
pub use notes::Notes;
pub use replay::{in_place, replay};

/// What our own headers begin with.
const OURS: &str = "x-ackonce-";

/// The table in which a waiting copy keeps what the broker would change or act on.
const RETRY: &str = "x-ackonce-retry";

/// What begins a key that we made up for a message without one.
pub(super) const MADE_UP: &str = "generated:";

/// Headers that a broker acts on when a message is published (`CC`: it would be routed again), or
/// adds to when a message expires. They travel in our own table.
const BROKER_HEADERS: [&str; 8] = [
    "CC",
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
];

/// Our headers on a dead letter have at most a few such texts: properties cannot be split into frames.
const TEXT_BYTES_MAX: usize = 1024;

/// What is published for a letter, and where it goes.
pub fn compose(letter: &Letter, queue: &str) -> (Destination, Outgoing) {
    match letter.purpose {
        Purpose::Dead(reason) => {
            let destination = Destination::DeadLetters { queue: queue.to_owned() };
            let headers = dead_headers(letter, reason.as_str(), queue);
            let outgoing = outgoing(&letter.message, headers, &destination);
            (destination, outgoing)
        }
        Purpose::Delay(delay) => {
            let destination = Destination::Delay { queue: queue.to_owned(), delay };
            let outgoing = outgoing(&letter.message, retry_headers(letter), &destination);
            (destination, outgoing)
        }
    }
}

/// The same dead letter with ever less beside the body, for a message whose own headers leave no room
/// in a frame, or are nested deeper than can be sent: first without ours, then without the sender's.
pub fn compose_smaller(letter: &Letter, queue: &str) -> Vec<(Destination, Outgoing)> {
    let Purpose::Dead(reason) = letter.purpose else { return Vec::new() };
    let (destination, mut without_ours) = compose(letter, queue);
    let headers = without_ours.properties.headers.get_or_insert_default();
    headers.retain(|name, _| !name.starts_with(OURS));
    headers.insert("x-ackonce-reason".into(), Value::text(reason.as_str()));

    let (_, mut without_theirs) = compose(letter, queue);
    let headers = without_theirs.properties.headers.get_or_insert_default();
    headers.retain(|name, _| name.starts_with(OURS) && name != "x-ackonce-cc");
    headers.insert("x-ackonce-headers-dropped".into(), Value::Bool(true));
    vec![(destination.clone(), without_ours), (destination, without_theirs)]
}

/// Turns a copy that comes back from a delay queue, or was sent back from the dead-letter queue, into
/// the message it was, and says so.
///
/// One that an operator sent back has no attempt behind it, and so is always [`Origin::Fresh`], also
/// when the broker hands it over again: nothing may be concluded against it.
///
/// What a sender may have forged changes nothing but its own message's exchange and routing key as
/// the handler sees them: attempts are counted by the ledger alone.
pub fn restore(message: &mut Arc<Message>) -> Origin {
    let is_copy = message.properties.header(RETRY).is_some();
    if !is_copy {
        return if message.redelivered { Origin::Redelivered } else { Origin::Fresh };
    }
    let message = Arc::make_mut(message);
    let headers = message.properties.headers.get_or_insert_default();
    let Some(Value::Table(mut kept)) = headers.remove(RETRY) else { return Origin::Fresh };
    for name in BROKER_HEADERS {
        headers.remove(name);
        if let Some(value) = kept.remove(name) {
            headers.insert(name.to_owned(), value);
        }
    }
    if headers.is_empty() && kept.remove("no-headers").is_some() {
        message.properties.headers = None;
    }
    let mut text = |name: &str| kept.remove(name).and_then(|value| value.to_text());
    if let Some(exchange) = text("exchange") {
        message.exchange = exchange;
    }
    if let Some(routing_key) = text("routing-key") {
        message.routing_key = routing_key;
    }
    message.properties.expiration = text("expiration");
    message.properties.user_id = text("user-id");
    match kept.get("attempt") {
        Some(Value::I64(attempt)) => u32::try_from(*attempt).map_or(Origin::Fresh, Origin::Sequel),
        _ => Origin::Fresh,
    }
}

/// The key that was made up for the message of which this is a waiting copy: it goes on under it. To be asked
/// before [`restore`]. A forged one makes up nothing but the sender's own.
pub(super) fn made_up_key(message: &Message) -> Option<Key> {
    let Some(Value::Table(kept)) = message.properties.header(RETRY) else { return None };
    let text = kept.get("key")?.to_text()?;
    if text.starts_with(MADE_UP) { Key::new(&text) } else { None }
}

/// The table that [`restore`] and [`made_up_key`] read.
fn retry_headers(letter: &Letter) -> Table {
    let original = &*letter.message;
    let mut headers = original.properties.headers.clone().unwrap_or_default();
    let mut kept = Table::new();
    for name in BROKER_HEADERS {
        if let Some(value) = headers.remove(name) {
            kept.insert(name.to_owned(), value);
        }
    }
    kept.insert("attempt".into(), Value::I64(i64::from(letter.attempt)));
    kept.insert("exchange".into(), Value::text(&original.exchange));
    kept.insert("routing-key".into(), Value::text(&original.routing_key));
    if let Some(key) = letter.key.as_ref().map(Key::as_str).filter(|key| key.starts_with(MADE_UP)) {
        kept.insert("key".into(), Value::text(key));
    }
    if original.properties.headers.is_none() {
        kept.insert("no-headers".into(), Value::Bool(true));
    }
    for (name, value) in
        [("expiration", &original.properties.expiration), ("user-id", &original.properties.user_id)]
    {
        if let Some(value) = value {
            kept.insert(name.into(), Value::text(value));
        }
    }
    headers.insert(RETRY.into(), Value::Table(kept));
    headers
}

/// The sender's headers, and `x-ackonce-…` ones that say why, in bounded size.
fn dead_headers(letter: &Letter, reason: &str, queue: &str) -> Table {
    let original = &*letter.message;
    let mut headers = original.properties.headers.clone().unwrap_or_default();
    let routed_again = headers.remove("CC");
    let mut set = |name: &str, value: Value| {
        headers.insert(format!("{OURS}{name}"), value);
    };
    let text = |text: &str| Value::text(head(text, TEXT_BYTES_MAX));
    set("reason", Value::text(reason));
    set("error", text(bounded_error(&letter.error)));
    set("attempts", Value::I64(i64::from(letter.attempt)));
    set("dead-ms", Value::I64(unix_millis()));
    set("queue", text(queue));
    set("exchange", text(&original.exchange));
    set("routing-key", text(&original.routing_key));
    if let Some(key) = &letter.key {
        set("key", text(key.as_str()));
    }
    if let Some(first_seen) = letter.first_seen {
        set("first-seen-ms", Value::I64(first_seen));
    }
    if let Some(value) = routed_again {
        set("cc", value);
    }
    for (name, value) in
        [("expiration", &original.properties.expiration), ("user-id", &original.properties.user_id)]
    {
        if let Some(value) = value {
            set(name, text(value));
        }
    }
    headers
}

/// Everything of the original but what would harm its copy: an expiration would delete it where it
/// waits or lies, and a user id must be the publisher's own.
fn outgoing(original: &Message, headers: Table, destination: &Destination) -> Outgoing {
    let properties = Properties {
        headers: Some(headers),
        expiration: None,
        user_id: None,
        delivery_mode: Some(2),
        ..original.properties.clone()
    };
    Outgoing {
        exchange: String::new(),
        routing_key: destination.queue_name(),
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

#[cfg(test)]
mod tests;
