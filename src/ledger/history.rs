//! What went wrong with a message: a bounded history of its failed attempts.

use std::time::Duration;

use serde::Serialize;

use super::{Ending, Millis};

/// So many failed attempts of each message are kept, the latest.
pub const FAILURES_MAX: u32 = 10;

/// One attempt that failed or gave the message up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedAttempt {
    /// From 1 again after the message was dead.
    pub attempt: u32,
    /// When it was recorded.
    pub ended_ms: Millis,
    /// How long the handler ran; `None` if it did not run.
    pub ran_ms: Option<Millis>,
    /// What it said, bounded (see [`super::bounded_error`]).
    pub error: String,
}

impl Ending {
    /// When the next attempt is due, if it is known.
    pub(crate) fn next_attempt(&self, now: Millis) -> Option<Millis> {
        match self {
            Ending::Failed { next_after: Some(delay), .. } => Some(now.saturating_add(millis(*delay))),
            Ending::Failed { next_after: None, .. }
            | Ending::Done
            | Ending::Dead { .. }
            | Ending::Released { .. } => None,
        }
    }
}

/// A time as it is stored.
pub(crate) fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}
