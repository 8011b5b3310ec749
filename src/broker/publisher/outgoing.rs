//! A message to be published, and what can become of it.

use std::sync::Arc;

use lapin::{BasicProperties, types::ShortString};

use crate::broker::{
    BrokerError, Kind,
    convert::{properties_out, short, table_wire_bytes},
};
use crate::message::Properties;

/// One message to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Empty for the default exchange, where the routing key is a queue's name.
    pub exchange: String,
    pub routing_key: String,
    pub properties: Properties,
    pub body: Arc<[u8]>,
    /// Without it the broker confirms, and drops, what no queue gets.
    pub mandatory: bool,
}

impl Outgoing {
    /// Whether it fits into AMQP's limits at all; a connection's own are checked when it is sent.
    ///
    /// # Errors
    ///
    /// [`PublishError::TooLarge`], naming what is too long.
    pub fn check(&self) -> Result<(), PublishError> {
        Prepared::new(self.clone()).map(|_| ())
    }
}

/// Why a message is not known to have arrived.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No queue gets it: the broker's code and text.
    #[error("unroutable: {0}")]
    Unroutable(String),
    /// A queue did not take it, for instance because it is full (`reject-publish`).
    #[error("nacked: a queue did not take it; is it full or without a majority?")]
    Nacked,
    /// By the deadline, the broker still took no messages: its reason. It may arrive later.
    #[error("blocked: the broker takes no messages now: {0}")]
    Blocked(String),
    /// By the deadline there was no confirm. It may arrive later.
    #[error("timed out: no confirm in time")]
    Timeout,
    #[error("too large: {0}")]
    TooLarge(String),
    /// No such exchange.
    #[error("not found: {0}")]
    NotFound(String),
    /// A permission is missing.
    #[error("denied: {0}")]
    Denied(String),
    /// A property has a value that the broker refuses.
    #[error("refused: {0}")]
    Refused(String),
    /// There is no connection; nothing was sent.
    #[error("not connected: {0}")]
    NotConnected(BrokerError),
    /// The connection or channel ended before the confirm: it may or may not have arrived.
    #[error("lost: {0}")]
    Lost(String),
}

impl PublishError {
    /// It may have arrived, or may do so later: sending it again may make a second copy.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, Self::Blocked(_) | Self::Timeout | Self::Lost(_))
    }

    /// Sending the same again cannot help until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::TooLarge(_) | Self::NotFound(_) | Self::Denied(_) | Self::Refused(_) => true,
            Self::NotConnected(error) => error.is_permanent(),
            Self::Unroutable(_) | Self::Nacked | Self::Blocked(_) | Self::Timeout | Self::Lost(_) => false,
        }
    }
}

/// A message in the form the wire takes; it can only be made if it fits.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Arc<[u8]>,
    pub(super) mandatory: bool,
    properties_bytes: usize,
}

/// Frame header and end, class, weight, body size, flags, and the properties of fixed size.
const HEADER_FRAME_FIXED_BYTES: usize = 7 + 1 + 2 + 2 + 8 + 2 + (1 + 1 + 8);

impl Prepared {
    pub(super) fn new(outgoing: Outgoing) -> Result<Self, PublishError> {
        let too_large = |error: BrokerError| PublishError::TooLarge(error.to_string());
        Ok(Self {
            exchange: short(&outgoing.exchange, "the exchange's name").map_err(too_large)?,
            routing_key: short(&outgoing.routing_key, "the routing key").map_err(too_large)?,
            properties: properties_out(&outgoing.properties).map_err(too_large)?,
            properties_bytes: properties_bytes(&outgoing.properties),
            body: outgoing.body,
            mandatory: outgoing.mandatory,
        })
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Properties cannot be split over frames: the broker closes the connection on too large a one,
    /// and lapin tries for ever to write one that exceeds its buffer.
    pub(super) fn check_frame(&self, frame_max_bytes: usize) -> Result<(), PublishError> {
        let bytes = HEADER_FRAME_FIXED_BYTES + self.properties_bytes;
        if bytes <= frame_max_bytes {
            return Ok(());
        }
        Err(PublishError::TooLarge(format!(
            "its properties and headers take {bytes} bytes: one frame of this connection holds {frame_max_bytes}"
        )))
    }

    /// The same message, as far as a returned copy tells.
    pub(super) fn is(&self, returned: &lapin::message::Delivery) -> bool {
        self.routing_key == returned.routing_key
            && self.exchange == returned.exchange
            && self.properties.message_id() == returned.properties.message_id()
            && *self.body == *returned.data
    }

    /// What became of this message when the broker closed its channel or connection. The broker
    /// does not say which message it minded; `alone` means that no other was under way.
    pub(super) fn after(&self, cause: &BrokerError, alone: bool) -> PublishError {
        let text = cause.to_string();
        // The broker's name for the default exchange, which has none.
        let exchange = if self.exchange.as_str().is_empty() { "amq.default" } else { self.exchange.as_str() };
        // Long names are cut off in the broker's text.
        let names_exchange =
            text.contains(&format!("exchange '{exchange}'")) || (alone && text.ends_with("..."));
        let properties = &self.properties;
        let names_property = [
            ("user_id property set to", properties.user_id()),
            ("invalid expiration", properties.expiration()),
        ]
        .into_iter()
        .any(|(what, value)| value.as_ref().is_some_and(|v| text.contains(&format!("{what} '{v}'"))));
        match cause.kind() {
            Kind::TooLarge if limit_in(&text).map_or(alone, |limit| self.body.len() > limit) => {
                PublishError::TooLarge(format!("its body has {} bytes; {text}", self.body.len()))
            }
            Kind::NotFound if names_exchange => PublishError::NotFound(text),
            Kind::Denied if names_exchange => PublishError::Denied(text),
            Kind::PreconditionFailed if alone || names_property => PublishError::Refused(text),
            Kind::Lost => PublishError::Lost(text),
            _ => PublishError::Lost(format!("another message closed the channel: {text}")),
        }
    }
}

/// The number at the end of "… larger than configured max size 16777216".
fn limit_in(text: &str) -> Option<usize> {
    text.rsplit(' ').next()?.parse().ok()
}

fn properties_bytes(properties: &Properties) -> usize {
    let texts = [
        &properties.content_type,
        &properties.content_encoding,
        &properties.correlation_id,
        &properties.reply_to,
        &properties.expiration,
        &properties.message_id,
        &properties.kind,
        &properties.user_id,
        &properties.app_id,
        &properties.cluster_id,
    ];
    let texts: usize = texts.into_iter().flatten().map(|text| 1 + text.len()).sum();
    texts + properties.headers.as_ref().map_or(0, table_wire_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Table, Value};

    fn outgoing() -> Outgoing {
        Outgoing {
            exchange: "x".into(),
            routing_key: "k".into(),
            properties: Properties::default(),
            body: Arc::from(&b"12345"[..]),
            mandatory: true,
        }
    }

    fn after(kind: Kind, text: &str, alone: bool) -> PublishError {
        Prepared::new(outgoing()).unwrap().after(&BrokerError::new(kind, text), alone)
    }

    /// K59
    #[test]
    fn overlong_names_are_an_error_before_anything_is_sent() {
        let error = Prepared::new(Outgoing { routing_key: "k".repeat(300), ..outgoing() }).unwrap_err();
        assert_eq!(error.to_string(), "too large: the routing key has 300 bytes: AMQP allows 255");
        let error = Prepared::new(Outgoing { exchange: "x".repeat(300), ..outgoing() }).unwrap_err();
        assert!(error.to_string().contains("the exchange's name has 300 bytes"), "{error}");
    }

    #[test]
    fn headers_must_fit_into_one_frame() {
        let headers = Table::from([("h".into(), Value::Text(vec![0; 5000]))]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        let prepared = Prepared::new(Outgoing { properties, ..outgoing() }).unwrap();
        assert_eq!(prepared.check_frame(131_072), Ok(()));
        assert!(matches!(prepared.check_frame(4096), Err(PublishError::TooLarge(_))));
    }

    /// A closed channel fails many messages; only the one that was minded is told so.
    #[test]
    fn only_the_message_that_was_minded_is_refused() {
        let not_found = "404 NOT_FOUND - no exchange 'x' in vhost '/'";
        assert!(matches!(after(Kind::NotFound, not_found, false), PublishError::NotFound(_)));
        let other = "404 NOT_FOUND - no exchange 'y' in vhost '/'";
        assert!(matches!(after(Kind::NotFound, other, false), PublishError::Lost(_)));
        let size = |limit: usize| format!("406 message size 9 larger than configured max size {limit}");
        assert!(matches!(after(Kind::TooLarge, &size(4), false), PublishError::TooLarge(_)));
        assert!(matches!(after(Kind::TooLarge, &size(5), false), PublishError::Lost(_)));
        assert!(matches!(after(Kind::PreconditionFailed, "406 odd", true), PublishError::Refused(_)));
        assert!(matches!(after(Kind::PreconditionFailed, "406 odd", false), PublishError::Lost(_)));
        assert!(matches!(after(Kind::Lost, "320 CONNECTION_FORCED", true), PublishError::Lost(_)));
    }
}
