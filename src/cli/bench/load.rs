//! The messages of a round, confirmed before the clock starts.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    broker::{Outgoing, Publisher},
    cli::Failure,
    message::Properties,
};

/// Unconfirmed messages at the same time.
pub(super) const WINDOW: usize = 1000;
const LIMIT: Duration = Duration::from_secs(60);

/// Publishes one persistent message for each id.
pub(super) async fn publish(
    publisher: &Publisher,
    queue: &str,
    body: &Arc<[u8]>,
    ids: &[String],
) -> Result<(), Failure> {
    let mut confirms = FuturesUnordered::new();
    for id in ids {
        let outgoing = Outgoing {
            exchange: String::new(),
            routing_key: queue.to_owned(),
            properties: Properties {
                message_id: Some(id.clone()),
                delivery_mode: Some(2),
                ..Properties::default()
            },
            body: body.clone(),
            mandatory: true,
        };
        confirms.push(publisher.send(outgoing, Instant::now() + LIMIT).await.map_err(Failure::failed)?);
        if confirms.len() >= WINDOW
            && let Some(confirm) = confirms.next().await
        {
            confirm.map_err(Failure::failed)?;
        }
    }
    while let Some(confirm) = confirms.next().await {
        confirm.map_err(Failure::failed)?;
    }
    Ok(())
}
