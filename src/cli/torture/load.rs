//! Sending the numbered messages, each several times, in an order that the seed decides.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    broker::{Outgoing, PublishError, Publisher},
    cli::Failure,
    message::Properties,
};

use super::{TortureArgs, WINDOW, plan::Plan};

/// Numbers whose copies are mixed with each other.
const CHUNK: u32 = 500;
/// For one confirm; then it is sent again.
const LIMIT: Duration = Duration::from_secs(30);
/// After a failure, such as a broker that is away.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends every copy, never a number beyond what is allowed so far. Says how many were confirmed.
///
/// # Errors
///
/// What cannot be sent at all, or could not be for as long as the patience lasts.
pub(super) async fn send(
    args: &TortureArgs,
    plan: &Plan,
    publisher: &Publisher,
    mut allowed: watch::Receiver<u32>,
) -> Result<u64, Failure> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let sender = Sender { args, queue: &plan.queue, publisher };
    let mut sending: FuturesUnordered<BoxFuture<'_, Result<(), Failure>>> = FuturesUnordered::new();
    let (mut next, mut confirmed) = (0, 0);
    while next < args.messages {
        // The other side outlives this one.
        let limit = match allowed.wait_for(|allowed| *allowed > next).await {
            Ok(limit) => (*limit).min(args.messages),
            Err(_) => args.messages,
        };
        let end = limit.min(next.saturating_add(CHUNK));
        let mut numbers: Vec<u32> =
            (next..end).flat_map(|n| std::iter::repeat_n(n, args.copies as usize)).collect();
        random.shuffle(&mut numbers);
        for number in numbers {
            sending.push(Box::pin(sender.send(number)));
            if sending.len() >= WINDOW
                && let Some(result) = sending.next().await
            {
                result?;
                confirmed += 1;
            }
        }
        next = end;
        // A chunk is in the broker's hands before the next wait, which may depend on it.
        while let Some(result) = sending.next().await {
            result?;
            confirmed += 1;
        }
    }
    Ok(confirmed)
}

struct Sender<'a> {
    args: &'a TortureArgs,
    queue: &'a str,
    publisher: &'a Publisher,
}

impl Sender<'_> {
    /// Until it is confirmed: one more copy does no harm.
    async fn send(&self, number: u32) -> Result<(), Failure> {
        let since = Instant::now();
        loop {
            let error = match self.publisher.send(self.message(number), Instant::now() + LIMIT).await {
                Ok(confirm) => match confirm.await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let hopeless = matches!(error, PublishError::Unroutable(_) | PublishError::TooLarge(_));
            if hopeless || since.elapsed() > self.args.patience {
                return Err(Failure::failed(format!("cannot send message {number}: {error}")));
            }
            sleep(PAUSE).await;
        }
    }

    fn message(&self, number: u32) -> Outgoing {
        let body = self.args.body.replace("{n}", &number.to_string());
        Outgoing {
            exchange: String::new(),
            routing_key: self.queue.to_owned(),
            properties: Properties {
                message_id: Some(number.to_string()),
                delivery_mode: Some(2),
                ..Properties::default()
            },
            body: Arc::from(body.into_bytes()),
            mandatory: true,
        }
    }
}
