//! The decision what to do: a pure function of (claim, verdict, policy), and nothing else.

use std::time::Duration;

use crate::{
    handler::Verdict,
    ledger::{Claim, Ticket},
};

use super::policy::{OnInterrupted, OnMismatch, Policy, Retry};

/// Why a message is given up. Fixed words: they are header values and metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    MissingKey,
    /// Its key is done, for another body.
    Mismatch,
    /// It failed as often as it may.
    MaxAttempts,
    /// The handler said that no attempt can help.
    GaveUp,
    /// A crash cut its handler off, and the policy says not to run it again.
    Interrupted,
}

impl Reason {
    /// In the order of the variants.
    pub const ALL: [Reason; 5] =
        [Reason::MissingKey, Reason::Mismatch, Reason::MaxAttempts, Reason::GaveUp, Reason::Interrupted];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::MissingKey => "missing-key",
            Reason::Mismatch => "mismatch",
            Reason::MaxAttempts => "max-attempts",
            Reason::GaveUp => "gave-up",
            Reason::Interrupted => "interrupted",
        }
    }
}

/// What follows an answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterClaim {
    Run(Ticket),
    /// Ack it: it was handled before.
    Duplicate,
    /// Another process runs it: ask again later.
    Wait,
    /// Claim it again under its key and fingerprint.
    Rekey,
    /// Give it up; with a ticket if the row is ours to finish.
    DeadLetter {
        ticket: Option<Ticket>,
        reason: Reason,
        error: String,
    },
    /// The ledger would not take this row: keep the delivery and try again later.
    Refused(String),
}

pub fn after_claim(claim: Claim, policy: &Policy) -> AfterClaim {
    match claim {
        Claim::Claimed(ticket) => {
            if ticket.interrupted && policy.on_interrupted == OnInterrupted::DeadLetter {
                AfterClaim::DeadLetter {
                    error: "an attempt was cut off, and may have taken effect".to_owned(),
                    ticket: Some(ticket),
                    reason: Reason::Interrupted,
                }
            } else if ticket.attempt > policy.retry.max_attempts {
                AfterClaim::DeadLetter {
                    error: format!("used up its {} attempts", policy.retry.max_attempts),
                    ticket: Some(ticket),
                    reason: Reason::MaxAttempts,
                }
            } else {
                AfterClaim::Run(ticket)
            }
        }
        // Superseded: a confirmed copy of it goes on, or lies in the dead-letter queue.
        Claim::Duplicate | Claim::Superseded => AfterClaim::Duplicate,
        Claim::Mismatch => match policy.on_mismatch {
            OnMismatch::DeadLetter => AfterClaim::DeadLetter {
                ticket: None,
                reason: Reason::Mismatch,
                error: "this key was handled before with another body".into(),
            },
            OnMismatch::Ack => AfterClaim::Duplicate,
            OnMismatch::Process => AfterClaim::Rekey,
        },
        Claim::InFlight { owner: _ } => AfterClaim::Wait,
        Claim::Refused(error) => AfterClaim::Refused(error),
    }
}

/// What follows a handler's verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterRun {
    Done,
    /// Row `failed`; not before `delay` again.
    Retry {
        error: String,
        delay: Duration,
    },
    DeadLetter {
        reason: Reason,
        error: String,
    },
    /// The attempt is taken back, and the worker pauses until the handler can start.
    Pause {
        error: String,
    },
    /// The attempt is taken back: the drain deadline came first.
    Stopped,
}

/// `chance` is uniform in `[0, 1)` and decides the jitter.
pub fn after_run(verdict: Verdict, attempt: u32, retry: &Retry, chance: f64) -> AfterRun {
    match verdict {
        Verdict::Done => AfterRun::Done,
        Verdict::Retry { error, after: _ } if attempt >= retry.max_attempts => {
            AfterRun::DeadLetter { reason: Reason::MaxAttempts, error }
        }
        Verdict::Retry { error, after } => {
            let own = delay(retry, attempt, chance);
            let asked = after.unwrap_or_default().min(retry.max_interval);
            AfterRun::Retry { error, delay: own.max(asked) }
        }
        Verdict::GiveUp { error } => AfterRun::DeadLetter { reason: Reason::GaveUp, error },
        Verdict::CannotStart { error } => AfterRun::Pause { error },
        Verdict::Stopped => AfterRun::Stopped,
    }
}

/// The pause after the given failed attempt: `initial × multiplier^(attempt-1)`, at most the
/// maximum, spread by the jitter.
pub fn delay(retry: &Retry, attempt: u32, chance: f64) -> Duration {
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    let max_s = retry.max_interval.as_secs_f64();
    let exact_s = (retry.initial_interval.as_secs_f64() * retry.multiplier.powi(exponent)).min(max_s);
    let spread = 1.0 + retry.jitter * (2.0 * chance - 1.0);
    Duration::try_from_secs_f64(exact_s * spread).unwrap_or(retry.max_interval)
}

/// A delay of up to this long is waited for in the worker, as far as there is room.
const HELD_DELAY_MAX: Duration = Duration::from_secs(5);

/// Whether a failed delivery waits in the worker, unacked, or as a copy in a delay queue. Those that
/// wait here are at most half of the prefetch, so that good messages pass them.
pub fn waits_here(delay: Duration, held: usize, prefetch: usize) -> bool {
    delay <= HELD_DELAY_MAX && held < prefetch / 2
}

#[cfg(test)]
mod tests;
