//! The raw consumer: the least that one can do.

use std::time::Instant;

use futures::StreamExt;
use lapin::{
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use serde_json::{Value, json};

use crate::{Failure, open};

/// Acks once for so many deliveries, as a careful hand-written consumer would.
const ACK_EVERY: u64 = 100;

/// Seconds from the start of consuming until the broker has every ack.
pub(crate) async fn run(url: &str, queue: &str, messages: u64, prefetch: u16) -> Result<Value, Failure> {
    let (connection, channel) = open(url).await?;
    channel.basic_qos(prefetch, BasicQosOptions { global: false }).await?;
    let start = Instant::now();
    let consuming = channel.basic_consume(
        queue.into(),
        "raw".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut consumer = consuming.await?;
    for number in 1..=messages {
        let delivery = consumer.next().await.ok_or("the broker ended the consumer")??;
        if number % ACK_EVERY == 0 || number == messages {
            channel.basic_ack(delivery.delivery_tag, BasicAckOptions { multiple: true }).await?;
        }
    }
    // The answer comes behind the acks.
    channel.close(200, "OK".into()).await?;
    let seconds = start.elapsed().as_secs_f64();
    connection.close(200, "OK".into()).await?;
    Ok(json!({ "seconds": seconds }))
}
