//! The raw publisher: keeps a window of unconfirmed messages full.

use std::{collections::VecDeque, time::Instant};

use lapin::{
    BasicProperties, Confirmation, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use serde_json::{Value, json};

use crate::{Failure, keys::Keys, open};

/// Seconds from the first message until the last confirm.
pub(crate) async fn run(
    url: &str,
    queue: &str,
    messages: u64,
    window: usize,
    body: &[u8],
    keys: Keys,
) -> Result<Value, Failure> {
    let (connection, channel) = open(url).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let mut waiting = VecDeque::with_capacity(window);
    let start = Instant::now();
    for _ in 0..messages {
        if waiting.len() == window
            && let Some(oldest) = waiting.pop_front()
        {
            confirmed(oldest).await?;
        }
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(keys.make().into());
        waiting.push_back(channel.basic_publish("".into(), queue.into(), options, body, properties).await?);
    }
    for confirm in waiting {
        confirmed(confirm).await?;
    }
    let seconds = start.elapsed().as_secs_f64();
    connection.close(200, "OK".into()).await?;
    Ok(json!({ "seconds": seconds }))
}

async fn confirmed(confirm: PublisherConfirm) -> Result<(), Failure> {
    match confirm.await? {
        Confirmation::Ack(None) => Ok(()),
        other => Err(format!("not confirmed: {other:?}").into()),
    }
}
