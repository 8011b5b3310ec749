//! How often a queue's messages may be returned, as far as that can be seen.

use crate::{
    broker::{BrokerError, Connection, route},
    message::Value,
};

/// A limit that nobody reaches by looking.
const RETURNS_MANY: u32 = 1_000_000;
/// RabbitMQ 4's limit for quorum queues that do not state one; earlier ones have none.
const RETURNS_DEFAULT: u32 = 20;

/// How often a queue's messages can be returned before the broker drops them or moves them on. What a
/// policy sets cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnLimit {
    /// A classic queue: as often as anyone likes, and each message goes back to its own place.
    None,
    /// A limit that nobody reaches by looking. As in any quorum queue that has one, what is returned
    /// goes to the end of the queue.
    Far,
    /// The queue states this limit.
    Stated(u32),
    /// A quorum queue that states none: 20 in RabbitMQ 4, no limit before.
    Unstated,
    /// The broker does not let us look, or the queue does not even state its type.
    Unknown,
}

impl ReturnLimit {
    /// Returns that are certain to do no harm; `None` if all are.
    pub fn returns_max(self) -> Option<u32> {
        match self {
            ReturnLimit::None | ReturnLimit::Far => None,
            ReturnLimit::Stated(limit) => Some(limit),
            ReturnLimit::Unstated | ReturnLimit::Unknown => Some(RETURNS_DEFAULT),
        }
    }
}

/// Looks it up.
///
/// # Errors
///
/// Only if the connection fails.
pub(super) async fn return_limit(connection: &Connection, queue: &str) -> Result<ReturnLimit, BrokerError> {
    let Ok(arguments) = route::arguments(connection, queue).await? else { return Ok(ReturnLimit::Unknown) };
    let stated = match arguments.get("x-delivery-limit") {
        // -1 means none to RabbitMQ 4. Before, it meant that the first return is too much.
        Some(Value::I64(limit)) => Some(u32::try_from(*limit).unwrap_or(u32::MAX)),
        _ => None,
    };
    let kind = arguments.get("x-queue-type").and_then(Value::to_text);
    Ok(match (kind.as_deref(), stated) {
        (Some("classic"), _) => ReturnLimit::None,
        (_, Some(limit)) if limit >= RETURNS_MANY => ReturnLimit::Far,
        (_, Some(limit)) => ReturnLimit::Stated(limit),
        (Some(_), None) => ReturnLimit::Unstated,
        (None, None) => ReturnLimit::Unknown,
    })
}
