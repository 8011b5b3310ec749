//! The least that a consumer can do: the reference that the full path is measured against.

use futures::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};

use super::{
    BrokerError, Endpoint, Kind, connect, convert,
    topology::{self, bounded},
};

/// Acks once for so many deliveries, as a careful hand-written consumer would.
const ACK_EVERY: u64 = 100;

/// Takes `messages` from a queue and acks them, doing nothing else with them.
///
/// # Errors
///
/// Whatever ends the consumer before that.
pub async fn consume(
    endpoints: &[Endpoint],
    queue: &str,
    prefetch: u16,
    messages: u64,
) -> Result<(), BrokerError> {
    let connection = connect::connect(endpoints, "raw consumer").await?;
    let channel = connection.channel().await?;
    bounded(channel.basic_qos(prefetch, BasicQosOptions { global: false })).await?;
    let name = convert::short(queue, "the queue's name")?;
    let consuming =
        channel.basic_consume(name, "raw".into(), BasicConsumeOptions::default(), Default::default());
    let mut consumer = bounded(consuming).await?;
    for number in 1..=messages {
        let delivery = match consumer.next().await {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Err(BrokerError::from_lapin(&error)),
            None => return Err(BrokerError::new(Kind::Lost, "the broker ended the consumer")),
        };
        if number % ACK_EVERY == 0 || number == messages {
            bounded(channel.basic_ack(delivery.delivery_tag, BasicAckOptions { multiple: true })).await?;
        }
    }
    topology::goodbye(&channel).await;
    Ok(())
}
