//! What became of a delivery: one word that drives the settlement, the log line and the count.

use std::time::Duration;

use tracing::{debug, error, warn};

use crate::{key::Key, message::Settlement};

use super::decide::Reason;

/// What became of a delivery, as far as this worker is concerned with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The handler succeeded and the ledger says so.
    Handled { attempt: u32 },
    /// Handled before, or shared another copy's run.
    Duplicate,
    /// An attempt failed; kept here until the next one.
    Retried { attempt: u32, error: String, delay: Duration },
    /// An attempt failed; a confirmed copy waits in a delay queue for the next one.
    Delayed { attempt: u32, error: String, delay: Duration },
    /// Given up, published to the dead-letter queue, confirmed.
    DeadLettered { reason: Reason, error: String },
    /// Given up and left to the queue's own dead-letter exchange.
    Rejected { reason: Reason, error: String },
    /// Not started, and the worker stops.
    Returned,
}

impl Outcome {
    /// What the broker is told; `None` while the delivery is kept.
    pub fn settlement(&self) -> Option<Settlement> {
        match self {
            Outcome::Handled { .. }
            | Outcome::Duplicate
            | Outcome::Delayed { .. }
            | Outcome::DeadLettered { .. } => Some(Settlement::Ack),
            Outcome::Rejected { .. } => Some(Settlement::Reject),
            Outcome::Returned => Some(Settlement::Return),
            Outcome::Retried { .. } => None,
        }
    }

    /// One line for people: what is normal is `debug`, a retry `warn`, a dead letter `error`.
    pub fn log(&self, queue: &str, key: Option<&Key>) {
        let key = key.map_or("", Key::as_str);
        match self {
            Outcome::Handled { attempt } => debug!(queue, key, attempt, "handled"),
            Outcome::Duplicate => debug!(queue, key, "duplicate"),
            Outcome::Retried { attempt, error, delay } | Outcome::Delayed { attempt, error, delay } => {
                let delay = humantime::format_duration(rounded(*delay)).to_string();
                warn!(queue, key, attempt, delay, error, "failed, will be tried again");
            }
            Outcome::DeadLettered { reason, error } => {
                error!(queue, key, reason = reason.as_str(), error, "dead-lettered");
            }
            Outcome::Rejected { reason, error } => {
                error!(queue, key, reason = reason.as_str(), error, "rejected");
            }
            Outcome::Returned => debug!(queue, key, "returned to the queue"),
        }
    }
}

fn rounded(delay: Duration) -> Duration {
    Duration::from_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

/// How often each outcome came, since the worker started. A count is of deliveries settled so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub handled: u64,
    pub duplicates: u64,
    pub retried: u64,
    pub dead_lettered: u64,
    pub rejected: u64,
    pub returned: u64,
    /// Messages without a key, whatever became of them.
    pub missing_key: u64,
    pub takeovers: u64,
    pub lost_claims: u64,
    /// Dead-lettered and rejected ones, in the order of [`Reason::ALL`].
    pub given_up: [u64; Reason::ALL.len()],
}

impl Counts {
    pub fn add(&mut self, outcome: &Outcome, deliveries: u64) {
        match outcome {
            Outcome::Handled { .. } => self.handled += deliveries,
            Outcome::Duplicate => self.duplicates += deliveries,
            Outcome::Retried { .. } | Outcome::Delayed { .. } => self.retried += deliveries,
            Outcome::DeadLettered { reason, .. } => {
                self.dead_lettered += deliveries;
                self.given_up[*reason as usize] += deliveries;
            }
            Outcome::Rejected { reason, .. } => {
                self.rejected += deliveries;
                self.given_up[*reason as usize] += deliveries;
            }
            Outcome::Returned => self.returned += deliveries,
        }
    }
}
