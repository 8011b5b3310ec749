//! What a delivery carries, in our own words: no broker library's type appears here.

mod trace_context;
mod value;

pub use trace_context::TraceContext;
pub use value::{Table, Value, table_json};

/// One message as it came from the broker, immutable and shared between a delivery's copies of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The exchange it was published to; empty for the default exchange.
    pub exchange: String,
    /// The routing key it was published with.
    pub routing_key: String,
    /// The broker says that it has delivered this message before.
    pub redelivered: bool,
    pub properties: Properties,
    pub body: Vec<u8>,
}

/// The basic properties of AMQP 0-9-1 (`basic` class, section 1.8 of the XML specification).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub headers: Option<Table>,
    /// 2 is persistent.
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
    /// A time to live in milliseconds, written as a decimal number.
    pub expiration: Option<String>,
    pub message_id: Option<String>,
    /// By convention seconds since 1970, but senders put anything here; never converted to a date.
    pub timestamp: Option<u64>,
    /// The property called `type`.
    pub kind: Option<String>,
    pub user_id: Option<String>,
    pub app_id: Option<String>,
    pub cluster_id: Option<String>,
}

impl Properties {
    /// The header of that exact name, if there is one.
    pub fn header(&self, name: &str) -> Option<&Value> {
        self.headers.as_ref()?.get(name)
    }
}

/// A message handed over by the broker together with the one receipt that can settle it.
#[derive(Debug)]
pub struct Delivery {
    pub message: std::sync::Arc<Message>,
    pub receipt: Receipt,
}

/// The right to settle one delivery, once, in the session that handed it over.
///
/// Not `Clone`: settling consumes it, so that settling twice does not compile. A receipt of an
/// earlier session settles nothing; the broker has taken that delivery back already.
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    session: SessionId,
    tag: u64,
}

/// Counts the sessions of one worker; never used twice in a process.
pub type SessionId = u64;

impl Receipt {
    /// For whoever hands over deliveries: the session and its delivery tag.
    pub fn new(session: SessionId, tag: u64) -> Self {
        Self { session, tag }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The AMQP delivery tag: counts from 1 within a channel.
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

/// What is said to the broker about one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is dealt with; the broker forgets it.
    Ack,
    /// `basic.reject` without requeue: the queue's own dead-letter policy takes it.
    Reject,
    /// `basic.nack` with requeue. Only at shutdown, for what has not started.
    Return,
}
