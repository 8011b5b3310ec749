//! A dead-letter queue that is open: its letters are looked at, kept, taken, or sent back to the work queue.
//!
//! Looking takes nothing away, but a quorum queue counts it as one return of each letter. Where the
//! queue's limit of returns comes near, a letter is put back as a new one instead: see [`Desk::keep`].

mod letter;
mod replay;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use thiserror::Error;

use super::letter::in_place;
use crate::{
    broker::{BrokerError, DeadLetters, Endpoint, Publisher, ReturnLimit},
    message::Delivery,
};

pub use self::{
    letter::DeadLetter,
    replay::{Fresh, RowWas, Sending, Sent},
};

/// Letters that wait for their confirm at once: as many as a window can have.
const CONFIRM_WINDOW: usize = 1000;
/// For each letter that is put back as a new one.
const KEEP_TIMEOUT: Duration = Duration::from_secs(30);
/// In a queue of up to so many letters, those that were not needed are read as well: see [`Desk::read_on`].
const ORDER_KEPT_MAX: u64 = 10_000;
/// For closing the publishing connection.
const GOODBYE: Duration = Duration::from_secs(2);

/// See the module. Dropping it returns what was not taken, in no certain order; see [`Desk::close`].
pub struct Desk {
    queue: String,
    dead_queue: String,
    letters: DeadLetters,
    publisher: Arc<Publisher>,
    /// Is told what may go wrong, a sentence each.
    warn: Box<dyn FnMut(&str) + Send>,
    /// The most returns that any letter has seen.
    returned: u64,
    /// Letters that should have been put back as new ones, but could not.
    at_risk: u64,
}

/// Why not all is certain to be well after [`Desk::close`].
#[derive(Debug, Error)]
pub enum CloseError {
    /// Not everything that was taken is known to be removed.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("{0} letters may have been dropped by the broker")]
    AtRisk(u64),
}

impl Desk {
    /// Opens the dead-letter queue of the work queue `queue`. What `warn` is told may hold any text that
    /// a sender chose.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::open`].
    pub async fn open(
        endpoints: Vec<Endpoint>,
        queue: &str,
        dead_queue: &str,
        warn: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, BrokerError> {
        let letters = DeadLetters::open(&endpoints, dead_queue).await?;
        let publisher = Publisher::new(endpoints, format!("letters of {dead_queue}"), CONFIRM_WINDOW);
        Ok(Self {
            queue: queue.to_owned(),
            dead_queue: dead_queue.to_owned(),
            letters,
            publisher: Arc::new(publisher),
            warn: Box::new(warn),
            returned: 0,
            at_risk: 0,
        })
    }

    pub fn dead_queue(&self) -> &str {
        &self.dead_queue
    }

    /// Letters in the queue at the start.
    pub fn total(&self) -> u64 {
        self.letters.total()
    }

    pub fn limit(&self) -> ReturnLimit {
        self.letters.limit()
    }

    /// The next letters, at most `most`; none at the end. Each is then kept or taken.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::next`].
    pub async fn next(&mut self, most: u64) -> Result<Vec<DeadLetter>, BrokerError> {
        let deliveries = self.letters.next(most).await?;
        Ok(self.open_all(deliveries))
    }

    fn open_all(&mut self, deliveries: Vec<Delivery>) -> Vec<DeadLetter> {
        let letters: Vec<_> =
            deliveries.into_iter().map(|delivery| DeadLetter::new(delivery, &self.queue)).collect();
        let returned = letters.iter().map(|letter| letter.notes.returns).max();
        self.returned = self.returned.max(returned.unwrap_or(0));
        letters
    }

    /// Removes letters: see [`DeadLetters::take`].
    pub fn take(&mut self, letters: impl IntoIterator<Item = DeadLetter>) {
        self.letters.take(letters.into_iter().map(|letter| letter.receipt));
    }

    /// Leaves letters where they are; they go back at the end. One that the broker would drop then, or
    /// after a crash of ours now, is published to the queue's end as a new one and only then removed.
    pub async fn keep(&mut self, letters: Vec<DeadLetter>) {
        let Some(returns_max) = self.letters.limit().returns_max() else { return };
        // This return, and one to spare.
        let near = |letter: &DeadLetter| letter.notes.returns + 2 > u64::from(returns_max);
        let copies = letters.into_iter().filter(near).map(async |letter| {
            let copy = in_place(&letter.message, &self.dead_queue);
            (letter, self.publisher.publish(copy, KEEP_TIMEOUT).await)
        });
        let mut safe = Vec::new();
        for (letter, result) in join_all(copies).await {
            match result {
                Ok(()) => safe.push(letter),
                Err(error) => {
                    self.at_risk += 1;
                    (self.warn)(&format!("the broker may drop {}: {error}", letter.name()));
                }
            }
        }
        self.take(safe);
    }

    /// Reads the rest of a queue that puts what is returned at its end: so the order stays. A long queue
    /// is turned instead.
    async fn read_on(&mut self) {
        let turns = self.letters.limit() != ReturnLimit::None;
        while turns && self.letters.held() > 0 && self.letters.total() <= ORDER_KEPT_MAX {
            // An error is told when the letters are returned.
            match self.next(u64::MAX).await {
                Ok(letters) if !letters.is_empty() => self.keep(letters).await,
                _ => return,
            }
        }
    }

    /// Returns what was not taken. Tells how many letters there are then.
    ///
    /// # Errors
    ///
    /// See [`CloseError`].
    pub async fn close(mut self) -> Result<u64, CloseError> {
        self.read_on().await;
        let limit = match self.letters.limit() {
            ReturnLimit::Stated(limit) => Some(format!("after {limit} returns")),
            ReturnLimit::Unstated => Some("after 20 returns if this is RabbitMQ 4".to_owned()),
            ReturnLimit::Unknown if self.returned > 0 => {
                Some("after 20 returns, unless it has another limit".to_owned())
            }
            ReturnLimit::Unknown | ReturnLimit::None | ReturnLimit::Far => None,
        };
        if let Some(limit) = limit {
            (self.warn)(&format!(
                "'{}' drops a message {limit}, and each look is one: letters that come \
                 near are put back at its end as new ones. A queue with x-delivery-limit=2147483647 has no \
                 such limit",
                self.dead_queue
            ));
        }
        let flushed = self.letters.flush().await;
        let flushed = match flushed {
            Ok(letters) => {
                let letters = self.open_all(letters);
                self.keep(letters).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.publisher.close(GOODBYE).await;
        let left = self.letters.close().await?;
        flushed?;
        if self.at_risk == 0 { Ok(left) } else { Err(CloseError::AtRisk(self.at_risk)) }
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("dead_queue", &self.dead_queue).finish_non_exhaustive()
    }
}
