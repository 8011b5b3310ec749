//! What a dead letter says about itself: in our own headers, or in those of the broker that moved it.

use crate::{
    key::Key,
    message::{Message, Table, Value},
};

use super::OURS;

/// Why a message is where it is. Whatever is absent is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// A worker put it there and says why; otherwise all of this is the broker's word, if anyone's.
    pub is_ours: bool,
    /// The ledger's key, or the message id.
    pub key: Option<String>,
    /// A worker's reason, or the broker's: `rejected`, `expired`, `maxlen`, `delivery_limit`.
    pub reason: Option<String>,
    pub error: Option<String>,
    pub attempts: Option<i64>,
    pub first_seen_ms: Option<i64>,
    pub dead_ms: Option<i64>,
    /// The queue it died in.
    pub queue: Option<String>,
    /// Where it was published, before it died in the work queue.
    pub exchange: Option<String>,
    pub routing_key: Option<String>,
    /// How often it was handed over in its queue and came back, as far as that is counted.
    pub returns: u64,
}

impl Notes {
    /// Reads a message of the dead-letter queue of `queue`.
    pub fn of(message: &Message, queue: &str) -> Self {
        let header = |name: &str| message.properties.header(name);
        let text = |name: &str| header(&format!("{OURS}{name}")).and_then(Value::to_text);
        let number = |name: &str| header(&format!("{OURS}{name}")).and_then(integer);
        let message_id = || message.properties.message_id.as_deref().and_then(Key::new);
        let deaths = Deaths::of(message);
        let (last, in_queue) = (deaths.last(), deaths.in_queue(queue));
        let reason = text("reason");
        Self {
            is_ours: reason.is_some(),
            key: text("key").or_else(|| message_id().map(|key| key.to_string())),
            reason: reason.or_else(|| last.and_then(|death| death.text("reason"))),
            error: text("error"),
            attempts: number("attempts"),
            first_seen_ms: number("first-seen-ms"),
            dead_ms: number("dead-ms").or_else(|| last.and_then(|death| death.time_ms())),
            queue: text("queue").or_else(|| last.and_then(|death| death.text("queue"))),
            exchange: text("exchange").or_else(|| in_queue.and_then(|death| death.text("exchange"))),
            routing_key: text("routing-key").or_else(|| in_queue.and_then(|death| death.routing_key())),
            returns: header("x-delivery-count")
                .and_then(integer)
                .map_or(0, |count| count.max(0).unsigned_abs()),
        }
    }
}

/// The broker's header `x-death`: one entry for each queue and reason, the latest first.
struct Deaths<'a>(Vec<Death<'a>>);

struct Death<'a>(&'a Table);

impl<'a> Deaths<'a> {
    fn of(message: &'a Message) -> Self {
        let Some(Value::List(items)) = message.properties.header("x-death") else { return Self(Vec::new()) };
        let table = |item: &'a Value| match item {
            Value::Table(table) => Some(Death(table)),
            _ => None,
        };
        Self(items.iter().filter_map(table).collect())
    }

    fn last(&self) -> Option<&Death<'a>> {
        self.0.first()
    }

    /// What happened in that queue; if nothing is said of it, what happened last.
    fn in_queue(&self, queue: &str) -> Option<&Death<'a>> {
        self.0.iter().find(|death| death.text("queue").as_deref() == Some(queue)).or(self.last())
    }
}

impl Death<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.to_text()
    }

    fn routing_key(&self) -> Option<String> {
        match self.0.get("routing-keys")? {
            Value::List(keys) => keys.first()?.to_text(),
            _ => None,
        }
    }

    fn time_ms(&self) -> Option<i64> {
        match self.0.get("time")? {
            Value::Time(seconds) => i64::try_from(*seconds).ok()?.checked_mul(1000),
            _ => None,
        }
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::I8(v) => Some(i64::from(*v)),
        Value::U8(v) => Some(i64::from(*v)),
        Value::I16(v) => Some(i64::from(*v)),
        Value::U16(v) => Some(i64::from(*v)),
        Value::I32(v) => Some(i64::from(*v)),
        Value::U32(v) => Some(i64::from(*v)),
        Value::I64(v) => Some(*v),
        _ => None,
    }
}
