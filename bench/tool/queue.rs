//! Queues, and what the broker says of them.

use std::time::Duration;

use ackonce::broker::topology::QueueType;
use lapin::{
    options::{QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Failure, open};

/// How often the broker is asked.
const LOOK: Duration = Duration::from_millis(5);

/// A classic queue is declared without arguments, so that programs which declare it themselves, plainly, find it theirs.
pub(crate) async fn declare(url: &str, queue: &str, kind: QueueType) -> Result<Value, Failure> {
    let (connection, channel) = open(url).await?;
    let mut arguments = FieldTable::default();
    if kind == QueueType::Quorum {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, arguments).await?;
    connection.close(200, "OK".into()).await?;
    Ok(json!({}))
}

pub(crate) async fn purge(url: &str, queue: &str) -> Result<Value, Failure> {
    let (connection, channel) = open(url).await?;
    let messages = channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await?;
    connection.close(200, "OK".into()).await?;
    Ok(json!({ "messages": messages }))
}

/// Tells how many messages were left, of those that nobody holds.
pub(crate) async fn delete(url: &str, queue: &str) -> Result<Value, Failure> {
    let (connection, channel) = open(url).await?;
    let messages = channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
    connection.close(200, "OK".into()).await?;
    Ok(json!({ "messages": messages }))
}

/// Prints a line `consuming` at the first consumer; returns when all messages have been handed over.
pub(crate) async fn watch(url: &str, queue: &str) -> Result<Value, Failure> {
    let (_connection, channel) = open(url).await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let mut consuming = false;
    loop {
        let info = channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
        if info.consumer_count() > 0 && !consuming {
            println!("consuming");
            consuming = true;
        }
        if consuming && info.message_count() == 0 {
            return Ok(json!({}));
        }
        sleep(LOOK).await;
    }
}
