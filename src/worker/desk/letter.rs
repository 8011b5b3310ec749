//! One dead letter, as it is told and as it is chosen.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::{
    message::{Delivery, Message, Receipt},
    worker::letter::Notes,
};

/// One letter of an open dead-letter queue.
#[derive(Debug)]
pub struct DeadLetter {
    pub notes: Notes,
    pub message: Arc<Message>,
    pub(super) receipt: Receipt,
}

impl DeadLetter {
    pub(super) fn new(delivery: Delivery, queue: &str) -> Self {
        let Delivery { message, receipt } = delivery;
        Self { notes: Notes::of(&message, queue), message, receipt }
    }

    /// For one that only waits to be removed.
    pub fn without_body(self) -> Self {
        let mut message = Arc::unwrap_or_clone(self.message);
        message.body = Vec::new();
        message.properties.headers = None;
        Self { message: message.into(), ..self }
    }

    pub fn message_id(&self) -> Option<&str> {
        self.message.properties.message_id.as_deref()
    }

    /// What it is called: its key, if it has one.
    pub fn name(&self) -> &str {
        self.notes.key.as_deref().unwrap_or("(no key)")
    }

    /// Which it is, for a report.
    pub fn id_json(&self) -> Json {
        json!({ "key": self.notes.key, "message_id": self.message_id() })
    }

    /// All but headers and body.
    pub fn json(&self) -> Json {
        let notes = &self.notes;
        json!({
            "key": notes.key,
            "message_id": self.message_id(),
            "reason": notes.reason,
            "by": self.by(),
            "error": notes.error,
            "attempts": notes.attempts,
            "first_seen_ms": notes.first_seen_ms,
            "dead_ms": notes.dead_ms,
            "queue": notes.queue,
            "exchange": notes.exchange,
            "routing_key": notes.routing_key,
            "bytes": self.message.body.len(),
            "returns": notes.returns,
        })
    }

    /// Who put it here.
    pub fn by(&self) -> Option<&'static str> {
        let notes = &self.notes;
        if notes.is_ours { Some("worker") } else { notes.reason.is_some().then_some("broker") }
    }
}
