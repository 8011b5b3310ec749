//! Copies of a message that go on in its place: what they carry, and how a returned one becomes the
//! message again that it was.

use std::sync::Arc;

use crate::{
    broker::{Destination, Outgoing},
    ledger::{Origin, bounded_error},
    message::{Message, Properties, Table, Value},
};

use super::core::{Letter, Purpose};

/// The table in which a waiting copy keeps what the broker would change or act on.
const RETRY: &str = "x-ackonce-retry";

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
    headers.retain(|name, _| !name.starts_with("x-ackonce-"));
    headers.insert("x-ackonce-reason".into(), Value::text(reason.as_str()));

    let (_, mut without_theirs) = compose(letter, queue);
    let headers = without_theirs.properties.headers.get_or_insert_default();
    headers.retain(|name, _| name.starts_with("x-ackonce-") && name != "x-ackonce-cc");
    headers.insert("x-ackonce-headers-dropped".into(), Value::Bool(true));
    vec![(destination.clone(), without_ours), (destination, without_theirs)]
}

/// Turns a copy that comes back from a delay queue into the message it was, and says so.
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
    message.exchange = text("exchange").unwrap_or_default();
    message.routing_key = text("routing-key").unwrap_or_default();
    message.properties.expiration = text("expiration");
    message.properties.user_id = text("user-id");
    match kept.get("attempt") {
        Some(Value::I64(attempt)) => u32::try_from(*attempt).map_or(Origin::Fresh, Origin::Sequel),
        _ => Origin::Fresh,
    }
}

/// The table that [`restore`] reads.
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
        headers.insert(format!("x-ackonce-{name}"), value);
    };
    let text = |text: &str| Value::text(head(text, TEXT_BYTES_MAX));
    set("reason", Value::text(reason));
    set("error", text(bounded_error(&letter.error)));
    set("attempts", Value::I64(i64::from(letter.attempt)));
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker::decide::Reason;

    fn original(headers: Option<Table>) -> Message {
        Message {
            exchange: "shop".into(),
            routing_key: "order.created".into(),
            redelivered: true,
            properties: Properties {
                headers,
                message_id: Some("a".into()),
                expiration: Some("3000".into()),
                user_id: Some("shop".into()),
                delivery_mode: Some(2),
                timestamp: Some(u64::MAX),
                ..Properties::default()
            },
            body: vec![0, 255],
        }
    }

    fn letter(message: Message, purpose: Purpose) -> Letter {
        Letter {
            purpose,
            message: message.into(),
            key: None,
            error: "e".into(),
            attempt: 3,
            first_seen: Some(1),
        }
    }

    /// What the broker makes of it on its way through the delay queue.
    fn returned(outgoing: Outgoing) -> Message {
        let mut properties = outgoing.properties;
        properties.headers.get_or_insert_default().insert("x-death".into(), Value::text("expired"));
        Message {
            exchange: String::new(),
            routing_key: "orders".into(),
            redelivered: false,
            properties,
            body: outgoing.body.to_vec(),
        }
    }

    #[test]
    fn a_waiting_copy_comes_back_as_the_message_it_was() {
        let own = Table::from([
            ("CC".into(), Value::List(vec![Value::text("elsewhere")])),
            ("x-death".into(), Value::text("its own")),
            ("n".into(), Value::F64(f64::MAX)),
        ]);
        for headers in [None, Some(Table::new()), Some(own)] {
            let message = original(headers);
            let (_, copy) =
                compose(&letter(message.clone(), Purpose::Delay(Duration::from_secs(9))), "orders");
            assert_eq!(copy.properties.expiration, None, "it must not expire where it waits");
            assert!(copy.properties.header("CC").is_none(), "it must not be routed elsewhere again");
            let mut back = Arc::new(returned(copy));
            assert_eq!(restore(&mut back), Origin::Sequel(3));
            let expected = Message { redelivered: false, ..message };
            assert_eq!(*back, expected);
        }
    }

    #[test]
    fn a_message_that_is_no_copy_is_left_as_it_is() {
        for redelivered in [true, false] {
            let message = Message { redelivered, ..original(None) };
            let mut arrived = Arc::new(message.clone());
            let expected = if redelivered { Origin::Redelivered } else { Origin::Fresh };
            assert_eq!(restore(&mut arrived), expected);
            assert_eq!(*arrived, message);
        }
    }

    #[test]
    fn a_forged_table_is_no_sequel() {
        for value in
            [Value::text("x"), Value::Null, Value::Table(Table::from([("attempt".into(), Value::I64(-1))]))]
        {
            let mut arrived = Arc::new(original(Some(Table::from([(RETRY.into(), value)]))));
            assert_eq!(restore(&mut arrived), Origin::Fresh);
        }
    }

    #[test]
    fn a_dead_letter_says_why_in_bounded_size() {
        let mut long = letter(original(None), Purpose::Dead(Reason::GaveUp));
        long.error = "é".repeat(100_000);
        let (destination, copy) = compose(&long, "orders");
        assert_eq!(destination.queue_name(), "orders.dead");
        assert_eq!(copy.properties.expiration, None);
        assert_eq!(copy.properties.header("x-ackonce-expiration"), Some(&Value::text("3000")));
        assert_eq!(copy.properties.header("x-ackonce-exchange"), Some(&Value::text("shop")));
        let size: usize =
            copy.properties.headers.iter().flatten().map(|(n, v)| n.len() + v.to_text().unwrap().len()).sum();
        assert!(size < 4096, "{size}");
        let smaller = compose_smaller(&long, "orders");
        assert_eq!(smaller[0].1.properties.headers.as_ref().unwrap().len(), 1);
        assert!(smaller[1].1.properties.header("x-ackonce-error").is_some());
    }
}
