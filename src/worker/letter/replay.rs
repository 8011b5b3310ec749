//! Dead letters that go on: back to the work queue, or to the end of their own.

use crate::{
    broker::Outgoing,
    message::{Message, Properties, Table, Value},
};

use super::{BROKER_HEADERS, Notes, OURS, RETRY};

/// Counts a quorum queue's deliveries of this very copy.
const COUNTS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// A dead letter as the work queue gets it: without what made it one, and with the table from which
/// [`super::restore`] makes the message that it was. Its expiration stays away: it would delete it.
pub fn replay(letter: &Message, queue: &str) -> Outgoing {
    let notes = Notes::of(letter, queue);
    let mut headers = letter.properties.headers.clone().unwrap_or_default();
    let mut kept = match headers.remove(RETRY) {
        // A waiting copy that the broker moved here; its attempt counts no more.
        Some(Value::Table(kept)) => Kept(kept),
        _ => Kept::default(),
    };
    kept.0.remove("attempt");
    kept.0.remove("expiration");
    for name in BROKER_HEADERS {
        let Some(value) = headers.remove(name) else { continue };
        // What the broker noted on the way here is not the sender's.
        if notes.is_ours || name == "CC" {
            kept.add(name, Some(value));
        }
    }
    kept.add("CC", headers.remove(&format!("{OURS}cc")));
    let user_id = letter.properties.user_id.as_deref().map(Value::text);
    kept.add("user-id", user_id.or_else(|| headers.remove(&format!("{OURS}user-id"))));
    kept.add("exchange", notes.exchange.map(Value::text));
    kept.add("routing-key", notes.routing_key.map(Value::text));
    headers.retain(|name, _| !name.starts_with(OURS) && !COUNTS.contains(&name.as_str()));
    if headers.is_empty() {
        kept.add("no-headers", Some(Value::Bool(true)));
    }
    headers.insert(RETRY.to_owned(), Value::Table(kept.0));
    outgoing(letter, headers, queue)
}

/// The same letter again for the end of its queue, where it has not been looked at yet.
pub fn in_place(letter: &Message, dead_queue: &str) -> Outgoing {
    let mut headers = letter.properties.headers.clone().unwrap_or_default();
    headers.retain(|name, _| !COUNTS.contains(&name.as_str()));
    let mut move_aside = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            headers.entry(format!("{OURS}{name}")).or_insert(value);
        }
    };
    move_aside("expiration", letter.properties.expiration.as_deref().map(Value::text));
    move_aside("user-id", letter.properties.user_id.as_deref().map(Value::text));
    if let Some(value) = headers.remove("CC") {
        headers.insert(format!("{OURS}cc"), value);
    }
    outgoing(letter, headers, dead_queue)
}

/// The table; what is in it already counts more.
#[derive(Default)]
struct Kept(Table);

impl Kept {
    fn add(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.entry(name.to_owned()).or_insert(value);
        }
    }
}

fn outgoing(letter: &Message, headers: Table, queue: &str) -> Outgoing {
    let properties = Properties {
        headers: (!headers.is_empty()).then_some(headers),
        expiration: None,
        user_id: None,
        delivery_mode: Some(2),
        ..letter.properties.clone()
    };
    Outgoing {
        exchange: String::new(),
        routing_key: queue.to_owned(),
        properties,
        body: letter.body.clone().into(),
        mandatory: true,
    }
}
