//! `ackonce dead`: what lies in a dead-letter queue: look at it, send it back, remove it.
//!
//! Looking takes nothing away, but a quorum queue counts it as one return of each letter. Where the
//! queue's limit of returns comes near, a letter is put back as a new one instead: see `Desk::keep`.

mod letter;
mod list;
mod purge;
mod replay;
mod report;
mod selection;
mod show;

use std::time::Duration;

use clap::{Args, Subcommand};
use futures::future::join_all;

use super::{Failure, broker::BrokerArgs, ledger::output};
use crate::{
    broker::{BrokerError, DeadLetters, Kind, Publisher, ReturnLimit, topology},
    message::Delivery,
    worker::letter::in_place,
};
use letter::DeadLetter;

#[derive(Args, Clone, Debug)]
pub struct DeadArgs {
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum DeadCommand {
    /// List letters, the oldest first
    List(list::ListArgs),
    /// Show one letter whole: properties, headers, body
    Show(show::ShowArgs),
    /// Send letters back to the work queue, as fresh runs
    Replay(replay::ReplayArgs),
    /// Remove letters for good
    Purge(purge::PurgeArgs),
}

/// Which queue, where.
#[derive(Args, Clone, Debug)]
struct Place {
    /// The work queue whose dead letters these are
    #[arg(long, value_name = "QUEUE", env = "ACKONCE_QUEUE")]
    queue: String,

    /// The dead-letter queue [default: the work queue's name and .dead]
    #[arg(long, value_name = "QUEUE")]
    dead_queue: Option<String>,

    /// One JSON object per line on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

/// Letters that wait for their confirm at once: as many as a window can have.
const CONFIRM_WINDOW: usize = 1000;
/// For each letter that is put back as a new one.
const KEEP_TIMEOUT: Duration = Duration::from_secs(30);
/// In a queue of up to so many letters, those that were not needed are read as well: see [`Desk::read_on`].
const ORDER_KEPT_MAX: u64 = 10_000;
/// For closing the publishing connection.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs one of the commands.
///
/// # Errors
///
/// A usage failure before anything was touched; a failure if not all was done that was asked for.
pub async fn run(args: DeadArgs) -> Result<(), Failure> {
    match args.command {
        DeadCommand::List(args) => list::run(args).await,
        DeadCommand::Show(args) => show::run(args).await,
        DeadCommand::Replay(args) => replay::run(args).await,
        DeadCommand::Purge(args) => purge::run(args).await,
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        Self::failed(error)
    }
}

impl Place {
    async fn open(&self) -> Result<Desk, Failure> {
        topology::check_queue_name(&self.queue).map_err(Failure::usage)?;
        let dead_queue = self.dead_queue.clone().unwrap_or_else(|| topology::dead_letter_queue(&self.queue));
        if dead_queue == self.queue {
            return Err(Failure::usage("the dead-letter queue is the work queue itself"));
        }
        let endpoints = self.broker.endpoints()?;
        for warning in endpoints.iter().flat_map(|endpoint| endpoint.warnings()) {
            output::note(&format!("warning: {warning}"));
        }
        let letters =
            DeadLetters::open(&endpoints, &dead_queue).await.map_err(|error| match error.kind() {
                Kind::NotFound => Failure::failed(format!(
                    "{error}: nothing was ever dead-lettered there, or --dead-queue names where it was"
                )),
                _ => Failure::from(error),
            })?;
        let publisher = Publisher::new(endpoints, format!("letters of {dead_queue}"), CONFIRM_WINDOW);
        Ok(Desk { queue: self.queue.clone(), dead_queue, letters, publisher, returned: 0, at_risk: 0 })
    }
}

/// An open dead-letter queue.
struct Desk {
    queue: String,
    dead_queue: String,
    letters: DeadLetters,
    publisher: Publisher,
    /// The most returns that any letter has seen.
    returned: u64,
    /// Letters that should have been put back as new ones, but could not.
    at_risk: u64,
}

impl Desk {
    /// The next letters, at most `most`; none at the end. Each is then kept or taken.
    async fn next(&mut self, most: u64) -> Result<Vec<DeadLetter>, Failure> {
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

    fn take(&mut self, letters: impl IntoIterator<Item = DeadLetter>) {
        self.letters.take(letters.into_iter().map(|letter| letter.receipt));
    }

    /// Leaves letters where they are; they go back at the end. One that the broker would drop then, or
    /// after a crash of ours now, is published to the queue's end as a new one and only then removed.
    async fn keep(&mut self, letters: Vec<DeadLetter>) {
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
                    output::note(&format!("warning: the broker may drop {}: {error}", letter.shown()));
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
    async fn close(mut self) -> Result<u64, Failure> {
        self.read_on().await;
        let dead_queue = output::printable(&self.dead_queue);
        let limit = match self.letters.limit() {
            ReturnLimit::Stated(limit) => Some(format!("after {limit} returns")),
            ReturnLimit::Unstated => Some("after 20 returns if this is RabbitMQ 4".to_owned()),
            ReturnLimit::Unknown if self.returned > 0 => {
                Some("after 20 returns, unless it has another limit".to_owned())
            }
            ReturnLimit::Unknown | ReturnLimit::None | ReturnLimit::Far => None,
        };
        if let Some(limit) = limit {
            output::note(&format!(
                "warning: '{dead_queue}' drops a message {limit}, and each look is one: letters that come \
                 near are put back at its end as new ones. A queue with x-delivery-limit=2147483647 has no \
                 such limit"
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
        match self.at_risk {
            0 => Ok(left),
            count => Err(Failure::failed(format!("{count} letters may have been dropped by the broker"))),
        }
    }
}
