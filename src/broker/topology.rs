//! The queues a worker needs, as plain descriptions, and how they are looked up and made.

use std::time::Duration;

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    BrokerError, Connection, Kind,
    convert::{SHORT_BYTES_MAX, short, table_out},
};
use crate::message::{Table, Value};

/// For one declaration or look-up.
const DECLARE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a queue is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Replicated; has a delivery limit; the default.
    #[default]
    Quorum,
    Classic,
}

impl QueueType {
    /// The value of `x-queue-type`.
    pub fn as_str(self) -> &'static str {
        match self {
            QueueType::Quorum => "quorum",
            QueueType::Classic => "classic",
        }
    }
}

impl std::str::FromStr for QueueType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "quorum" => Ok(QueueType::Quorum),
            "classic" => Ok(QueueType::Classic),
            _ => Err(format!("unknown queue type '{text}': it is quorum or classic")),
        }
    }
}

/// A durable queue to be declared.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    pub name: String,
    pub arguments: Table,
}

/// What is known of a queue after looking for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    pub name: String,
    /// It was not there and has been made just now.
    pub created: bool,
    /// Messages ready for delivery at the time; 0 for one just made.
    pub messages: u32,
    /// Consumers at the time.
    pub consumers: u32,
}

/// Where the dead letters of a queue go.
pub fn dead_letter_queue(queue: &str) -> String {
    format!("{queue}.dead")
}

/// A work queue that dead-letters to [`dead_letter_queue`], so that a broker's own limits lose nothing.
pub fn work_queue(queue: &str, kind: QueueType) -> QueueSpec {
    QueueSpec {
        name: queue.to_owned(),
        arguments: Table::from([
            ("x-queue-type".into(), Value::text(kind.as_str())),
            ("x-dead-letter-exchange".into(), Value::text("")),
            ("x-dead-letter-routing-key".into(), Value::text(dead_letter_queue(queue))),
        ]),
    }
}

/// The queue that dead letters end in.
pub fn dead_queue(queue: &str, kind: QueueType) -> QueueSpec {
    QueueSpec {
        name: dead_letter_queue(queue),
        arguments: Table::from([("x-queue-type".into(), Value::text(kind.as_str()))]),
    }
}

/// The queue in which messages wait `delay_ms` before they go back to `queue`.
///
/// A quorum one passes them on at least once; a classic one may lose them if the broker dies just then.
pub fn retry_queue(queue: &str, delay_ms: u64, kind: QueueType) -> QueueSpec {
    let delay = i64::try_from(delay_ms).unwrap_or(i64::MAX);
    let mut arguments = Table::from([
        ("x-queue-type".into(), Value::text(kind.as_str())),
        ("x-message-ttl".into(), Value::I64(delay)),
        ("x-dead-letter-exchange".into(), Value::text("")),
        ("x-dead-letter-routing-key".into(), Value::text(queue)),
    ]);
    if kind == QueueType::Quorum {
        arguments.insert("x-dead-letter-strategy".into(), Value::text("at-least-once"));
        // At-least-once asks for it: a queue that drops its head could not keep the promise.
        arguments.insert("x-overflow".into(), Value::text("reject-publish"));
    }
    QueueSpec { name: format!("{queue}.retry.{delay_ms}"), arguments }
}

/// Checks that a queue's name and those derived from it fit into AMQP's 255 bytes.
///
/// # Errors
///
/// One sentence.
pub fn check_queue_name(queue: &str) -> Result<(), String> {
    let suffix = dead_letter_queue("").len();
    if queue.is_empty() {
        return Err("the queue's name is empty".into());
    }
    if queue.len() + suffix > SHORT_BYTES_MAX {
        return Err(format!(
            "the queue's name has {} bytes: AMQP allows {SHORT_BYTES_MAX}, of which '{}' takes {suffix}",
            queue.len(),
            dead_letter_queue("")
        ));
    }
    Ok(())
}

/// Looks a queue up without changing anything; `None` if there is none.
///
/// # Errors
///
/// Anything but 404.
pub async fn look(connection: &Connection, queue: &str) -> Result<Option<QueueInfo>, BrokerError> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let spec = QueueSpec { name: queue.to_owned(), arguments: Table::new() };
    match declare(connection, &spec, passive).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.context(format!("looking up the queue '{queue}'"))),
    }
}

/// Makes sure that a queue is there: looked up first, so that any existing arguments will do, and
/// declared only if it is missing.
///
/// # Errors
///
/// What the broker says, with the queue's name.
///
/// # Cancellation
///
/// The queue may be made all the same; asking again finds it.
pub async fn ensure(connection: &Connection, spec: &QueueSpec) -> Result<QueueInfo, BrokerError> {
    if let Some(info) = look(connection, &spec.name).await? {
        return Ok(info);
    }
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    match declare(connection, spec, durable).await {
        Ok(info) => Ok(QueueInfo { created: true, ..info }),
        Err(error) => {
            // Another process may have made it in between, with arguments of its own.
            if error.kind() == Kind::PreconditionFailed
                && let Some(info) = look(connection, &spec.name).await?
            {
                return Ok(info);
            }
            Err(error.context(format!("creating the queue '{}'", spec.name)))
        }
    }
}

/// Makes sure of a work queue and its dead-letter queue. Returns what is known of the work queue.
///
/// The dead-letter queue comes first: there must be no moment in which dead letters go nowhere. It
/// is made only along with the work queue; one that exists may dead-letter elsewhere.
///
/// # Errors
///
/// As [`ensure`].
pub async fn ensure_work_queue(
    connection: &Connection,
    queue: &str,
    kind: QueueType,
) -> Result<QueueInfo, BrokerError> {
    if let Some(info) = look(connection, queue).await? {
        return Ok(info);
    }
    ensure(connection, &dead_queue(queue, kind)).await?;
    ensure(connection, &work_queue(queue, kind)).await
}

/// Deletes a queue if it is there. Returns how many messages went with it.
///
/// # Errors
///
/// What the broker says, with the queue's name.
pub async fn delete(connection: &Connection, queue: &str) -> Result<u32, BrokerError> {
    let name = short(queue, "the queue's name")?;
    let channel = connection.channel().await?;
    let deleting = channel.queue_delete(name, QueueDeleteOptions::default());
    let result = bounded(deleting).await.map_err(|e| e.context(format!("deleting the queue '{queue}'")));
    goodbye(&channel).await;
    result
}

/// One declaration on a channel of its own: a refusal closes the channel it is asked on.
pub(super) async fn declare(
    connection: &Connection,
    spec: &QueueSpec,
    options: QueueDeclareOptions,
) -> Result<QueueInfo, BrokerError> {
    let name = short(&spec.name, "the queue's name")?;
    let arguments = table_out(&spec.arguments)?;
    let channel = connection.channel().await?;
    let queue = bounded(channel.queue_declare(name, options, arguments)).await?;
    goodbye(&channel).await;
    Ok(QueueInfo {
        name: spec.name.clone(),
        created: false,
        messages: queue.message_count(),
        consumers: queue.consumer_count(),
    })
}

pub(super) async fn bounded<T>(operation: impl Future<Output = lapin::Result<T>>) -> Result<T, BrokerError> {
    match timeout(DECLARE_TIMEOUT, operation).await {
        Ok(result) => result.map_err(|error| BrokerError::from_lapin(&error)),
        Err(_) => Err(BrokerError::new(
            Kind::Timeout,
            format!("the broker does not answer within {DECLARE_TIMEOUT:?}"),
        )),
    }
}

/// Closes a throw-away channel. It has done its work: how the close ends changes nothing.
pub(super) async fn goodbye(channel: &lapin::Channel) {
    if channel.status().connected() {
        let _ = timeout(DECLARE_TIMEOUT, channel.close(200, "OK".into())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_queue_dead_letters_to_its_own_dead_queue() {
        let work = work_queue("orders", QueueType::Quorum);
        let dead = dead_queue("orders", QueueType::Quorum);
        assert_eq!(dead.name, "orders.dead");
        assert_eq!(work.arguments["x-dead-letter-routing-key"], Value::text("orders.dead"));
        assert_eq!(work.arguments["x-dead-letter-exchange"], Value::text(""));
        for spec in [work, dead] {
            assert_eq!(spec.arguments["x-queue-type"], Value::text("quorum"));
        }
    }

    #[test]
    fn a_retry_queue_keeps_messages_safe_where_it_can() {
        let quorum = retry_queue("orders", 60_000, QueueType::Quorum);
        assert_eq!(quorum.name, "orders.retry.60000");
        assert_eq!(quorum.arguments["x-message-ttl"], Value::I64(60_000));
        assert_eq!(quorum.arguments["x-dead-letter-strategy"], Value::text("at-least-once"));
        let classic = retry_queue("orders", 60_000, QueueType::Classic);
        assert!(!classic.arguments.contains_key("x-dead-letter-strategy"));
    }

    /// K59: no suffix may push a name over the limit.
    #[test]
    fn a_name_leaves_room_for_its_suffix() {
        assert_eq!(check_queue_name(&"q".repeat(250)), Ok(()));
        assert!(check_queue_name(&"q".repeat(251)).unwrap_err().contains("251 bytes"));
        assert!(check_queue_name("").is_err());
    }
}
