//! What is said to a ledger, and what it answers.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use super::Millis;
use crate::key::{Fingerprint, Key};

/// Where a row stands. Each variant says how it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Claimed: left by a finish of the same owner and attempt, or by another owner's claim once this one is dead.
    Processing,
    /// Handled. Final; only pruning or an operator removes it.
    Done,
    /// An attempt failed or was given back: left by the next claim.
    Failed,
    /// Given up and dead-lettered: left by a claim, which counts attempts from 1 again.
    Dead,
}

impl State {
    pub const ALL: [State; 4] = [State::Processing, State::Done, State::Failed, State::Dead];

    /// The word stored in the ledger and shown everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Processing => "processing",
            State::Done => "done",
            State::Failed => "failed",
            State::Dead => "dead",
        }
    }
}

impl std::str::FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        State::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("unknown state '{text}': it is one of processing, done, failed, dead"))
    }
}

/// Asks for one key.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    pub scope: Arc<str>,
    pub key: Key,
    /// Of the body; `None` where another body under the same key does not matter.
    pub fingerprint: Option<Fingerprint>,
    pub origin: Origin,
    /// Deliveries behind this request, at least 1: so many duplicates are counted if it is one.
    pub copies: u32,
}

/// What is known of where a delivery comes from: which of two deliveries of one message it is.
///
/// Ordered by how little may be concluded against it; of several copies the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The broker hands it over again: it may be the original of a copy that we had published.
    Redelivered,
    /// It is the copy that was published after this attempt had failed.
    Sequel(u32),
    /// It may be anything.
    #[default]
    Fresh,
}

impl Origin {
    /// Whether a delivery of that origin is superseded, by a row of the same body: see
    /// [`Claim::Superseded`] for the rules. `own`: the row's owner is the one that claims.
    pub(crate) fn is_superseded(self, state: State, attempts: u32, parked: u32, own: bool) -> bool {
        let copied = parked > 0 && parked == attempts;
        match (self, state) {
            (Origin::Sequel(attempt), State::Failed) => attempt < parked,
            (Origin::Sequel(_), State::Dead) => copied,
            (Origin::Redelivered, State::Failed) => copied,
            (Origin::Redelivered, State::Dead) => copied && own,
            (Origin::Fresh, _) | (_, State::Done | State::Processing) => false,
        }
    }
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is yours: run it, then finish it.
    Claimed(Ticket),
    /// It is `done`; the copies have been counted on its row.
    Duplicate,
    /// It is `done` under another fingerprint. Nothing was changed.
    Mismatch,
    /// A confirmed copy of this very message goes on in its place, or lies in the dead-letter queue:
    /// this delivery only came back because its ack was lost. Nothing was changed.
    ///
    /// The rules, all for the same fingerprint (or none). Row `failed`, with a copy waiting since
    /// attempt *p* ([`Ending::Failed`], `parked`): a sequel of an earlier attempt than *p*; or a
    /// redelivered one if no attempt was made since, that is if *p* is the row's attempt. Row `dead`, with
    /// a copy in the dead-letter queue ([`Ending::Dead`], `copied`): any sequel; or a redelivered one if the
    /// row was finished by the claiming owner itself.
    Superseded,
    /// Another owner, which is alive, holds it. Nothing was changed; ask again later.
    InFlight { owner: Arc<str> },
    /// The ledger refused this one row for a reason of its own (a constraint or trigger that is
    /// not ours): says which. Nothing was changed. Not a duplicate.
    Refused(String),
}

/// Proof of a claim: what a finish must present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The row, so that a finish is one lookup.
    pub row: i64,
    /// Counts from 1.
    pub attempt: u32,
    /// The attempt before this one was cut off by its owner's death: it may have taken effect.
    pub interrupted: bool,
    /// When the key was first claimed.
    pub first_seen: Millis,
}

/// Says what became of one claim.
#[derive(Clone, Debug)]
pub struct Finish {
    pub scope: Arc<str>,
    pub key: Key,
    pub ticket: Ticket,
    pub ending: Ending,
    /// Further copies that shared this run and will be acked with it: counted as duplicates.
    pub copies: u32,
    /// How long the handler ran; `None` if it did not. Kept of an attempt that failed.
    pub ran: Option<Duration>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Row `done`.
    Done,
    /// Row `failed`, with the error's text (the ledger bounds it, see [`bounded_error`](super::bounded_error)). `parked`: a
    /// confirmed copy waits in a delay queue, a [`Origin::Sequel`] of this attempt. `next_after`: when
    /// the next attempt is due, counted from now; `None` if that is not known.
    Failed { error: String, parked: bool, next_after: Option<Duration> },
    /// Row `dead`, with reason and error as its text. `copied`: a confirmed copy lies in the
    /// dead-letter queue. Without it the delivery itself is still to be rejected, and must be if it
    /// comes back.
    Dead { error: String, copied: bool },
    /// Row `failed` with this attempt taken back: it did not run to its end through no fault of its own.
    /// `interrupted`: it had begun, and may have taken effect; the next attempt is told so.
    Released { interrupted: bool },
}

/// The answer to a [`Finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    Recorded,
    /// The claim is another's by now, or the row is gone. Nothing was changed; settle nothing.
    Lost,
    /// The ledger refused this one change: says why. Nothing was changed.
    Refused(String),
}

/// One pruning step.
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    /// Rows are kept at least so long after their last change.
    pub retention_ms: i64,
    /// At most so many rows are removed in this step; 0 only looks whether there are any.
    pub rows_max: u32,
    /// Where to go on: [`Pruned::last_row`] of the step before; 0 to begin.
    pub after_row: i64,
}

/// What one pruning step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: u64,
    /// Nothing more to remove at this time.
    pub complete: bool,
    /// The step ended behind this row.
    pub last_row: i64,
}
