//! The ledger: what became of each message. Its words, its contract, and its implementations.
//!
//! A row is in one of four states, and these are all the legal changes:
//!
//! ```text
//! (none) ── claim ──▶ processing ── finish ──▶ done                    done is final
//!                         │  ▲
//!                         │  └─ claim (attempt+1) ── failed             waits for its next attempt
//!                         ├─ finish ──▶ failed
//!                         ├─ finish ──▶ dead ── claim (attempts from 1) ──▶ processing
//!                         └─ owner died: claim (attempt+1, interrupted) ──▶ processing
//! ```
//!
//! An operator may forget any row, or change it (see [`Change`]), unless its claim is alive.

pub mod effects;
pub mod history;
pub mod memory;
pub mod prune;
pub mod sqlite;

use std::{any::Any, fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::Serialize;

pub use self::effects::{Applied, Apply, Effects, Failure};
pub use self::history::FailedAttempt;
use crate::key::{Fingerprint, Key};

/// Milliseconds since 1970 by the wall clock. Stored and shown; never the base of a wait.
pub type Millis = i64;

/// A ledger: claims keys and remembers what became of them.
///
/// Batch-first: each call is one transaction or one round trip, durable when it returns `Ok`.
/// Results come in the order of the requests. An `Err` means that nothing of the batch is known to
/// have been recorded; the caller repeats the whole batch, which is safe for every method.
///
/// # Cancellation
///
/// Dropping a returned future does not take the operation back: it may still commit. A worker that
/// gave up on a claim finds it again as its own, and one that gave up on a finish may repeat it.
pub trait Ledger: Send + Sync {
    /// Makes one owner known, alive until the returned value is dropped or its process dies in any way.
    fn enroll(&self) -> BoxFuture<'_, Result<Owner, LedgerError>>;

    /// Claims each key for `owner`, or says why not. See [`Claim`].
    ///
    /// One batch never holds the same (scope, key) twice. A row that is `processing` under this
    /// very owner is claimed again with the same attempt: the reply to an earlier claim was lost.
    fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Claim>, LedgerError>>;

    /// Writes what became of each claim, fenced: it changes a row only where (scope, key, owner,
    /// attempt) still match. Repeating a finish that was recorded reports it as recorded again.
    fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Finished>, LedgerError>>;

    /// Removes one small batch of rows that are past `prune.retention_ms`; never a live claim.
    ///
    /// `done` and `dead` rows go by the age of their last change. `failed` rows, and claims of dead
    /// owners, only at [`OVERDUE`] times that age: losing one forgets attempts, never a success.
    ///
    /// It walks in the order in which keys were first claimed, and ends at the first row that is
    /// younger than the retention. Rows from the future (a clock was wrong) are passed over.
    fn prune(&self, prune: Prune, now: Millis) -> BoxFuture<'static, Result<Pruned, LedgerError>>;

    /// How many rows there are: what a pruning pass may remove is a share of them.
    fn rows(&self) -> BoxFuture<'static, Result<u64, LedgerError>>;
}

/// Reading the ledger, and what an operator may do to it.
pub trait Inspect: Send + Sync {
    fn stats(&self) -> BoxFuture<'_, Result<Stats, LedgerError>>;

    /// Rows matching the filter, newest change first.
    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>>;

    /// Every row with that key: one for each scope it was seen in.
    fn show(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>>;

    /// Removes the rows with that key, so that the next delivery runs as if it were the first.
    /// A row whose claim is alive stays. Returns the rows removed and those kept.
    fn forget(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Forgotten, LedgerError>>;

    /// Changes the rows with each of those keys, in one transaction. A row whose claim is alive stays
    /// as it is. The answers come in the order of the keys.
    fn change(
        &self,
        keys: Vec<String>,
        scope: Option<&str>,
        change: Change,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<Changed>, LedgerError>>;
}

/// The wall clock.
pub fn unix_millis() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX))
}

/// How many times the retention a `failed` row or a dead owner's claim is kept.
pub const OVERDUE: i64 = 4;

/// One run of one worker, as the ledger knows it. Dropping it ends its liveness.
#[derive(Clone)]
pub struct Owner {
    name: Arc<str>,
    _alive: Arc<dyn Any + Send + Sync>,
}

impl Owner {
    /// `alive` is whatever must live as long as the owner does: a lock, a heartbeat.
    pub fn new(name: impl Into<Arc<str>>, alive: impl Any + Send + Sync) -> Self {
        Self { name: name.into(), _alive: Arc::new(alive) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.name).finish()
    }
}

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
        match (self, state) {
            (Origin::Sequel(attempt), State::Failed) => attempt < parked,
            (Origin::Sequel(_), State::Dead) => true,
            (Origin::Redelivered, State::Failed) => parked > 0 && parked == attempts,
            (Origin::Redelivered, State::Dead) => own,
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
    /// redelivered one if no attempt was made since, that is if *p* is the row's attempt. Row `dead`: any
    /// sequel; or a redelivered one if the row was finished by the claiming owner itself.
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
    /// Row `failed`, with the error's text (the ledger bounds it, see [`bounded_error`]). `parked`: a
    /// confirmed copy waits in a delay queue, a [`Origin::Sequel`] of this attempt. `next_after`: when
    /// the next attempt is due, counted from now; `None` if that is not known.
    Failed { error: String, parked: bool, next_after: Option<Duration> },
    /// Row `dead`, with reason and error as its text.
    Dead { error: String },
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

/// One row, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub scope: String,
    pub message_id: String,
    pub state: State,
    pub attempts: u32,
    pub duplicates: u64,
    pub owner: Option<String>,
    /// The owner is alive at this moment; meaningful for `processing`.
    pub owner_alive: bool,
    pub first_seen_ms: Millis,
    pub updated_ms: Millis,
    pub last_duplicate_ms: Option<Millis>,
    /// When the next attempt of a `failed` row is due, if that is known.
    pub next_attempt_ms: Option<Millis>,
    pub last_error: Option<String>,
    /// The last [`history::FAILURES_MAX`] attempts that failed, the oldest first.
    pub failures: Vec<FailedAttempt>,
}

/// Which rows to list.
#[derive(Clone, Debug)]
pub struct Filter {
    pub scope: Option<String>,
    pub state: Option<State>,
    pub limit: u32,
}

/// Numbers over the whole ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub scopes: Vec<ScopeStats>,
    /// Bytes of the ledger and of its write-ahead log.
    pub bytes: u64,
    pub wal_bytes: u64,
}

/// Numbers of one scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScopeStats {
    pub scope: String,
    pub processing: u64,
    pub done: u64,
    pub failed: u64,
    pub dead: u64,
    pub duplicates: u64,
    pub oldest_processing_ms: Option<Millis>,
}

impl ScopeStats {
    /// Counts one row.
    pub(crate) fn count(&mut self, state: State, duplicates: u64, updated: Millis) {
        match state {
            State::Processing => {
                self.processing += 1;
                self.oldest_processing_ms =
                    Some(self.oldest_processing_ms.map_or(updated, |oldest| oldest.min(updated)));
            }
            State::Done => self.done += 1,
            State::Failed => self.failed += 1,
            State::Dead => self.dead += 1,
        }
        self.duplicates = self.duplicates.saturating_add(duplicates);
    }
}

/// What [`Inspect::forget`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    pub removed: u64,
    /// Rows that stay because their claim is alive.
    pub in_flight: u64,
}

/// What an operator makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Row `failed` with no attempt made: its next delivery runs as attempt 1, whatever its
    /// [`Origin`]; no copy of it that may still be under way counts against it.
    Retry {
        /// Also a `done` row, which then runs once more.
        even_done: bool,
    },
    /// Row `done`: its deliveries are duplicates from now on.
    MarkDone,
}

/// What [`Inspect::change`] did about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub changed: u64,
    /// Rows that are done and stay so.
    pub done: u64,
    /// Rows that stay as they are because their claim is alive.
    pub in_flight: u64,
}

/// A ledger that cannot be read or written, in one sentence with a hint.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LedgerError {
    pub kind: LedgerErrorKind,
    /// What, which value, what to do.
    pub message: String,
}

/// Decides what the worker does about a [`LedgerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerErrorKind {
    /// Busy, full, read-only, an I/O error: pause, probe, go on when it heals.
    Transient,
    /// Damaged, foreign or newer: no retry can help; end with exit code 1.
    Fatal,
}

impl LedgerError {
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: LedgerErrorKind::Transient, message: message.into() }
    }

    pub fn fatal(message: impl Into<String>) -> Self {
        Self { kind: LedgerErrorKind::Fatal, message: message.into() }
    }

    pub fn is_transient(&self) -> bool {
        self.kind == LedgerErrorKind::Transient
    }
}

/// Error texts are kept to this many bytes: their tail, where programs say what went wrong.
pub const ERROR_BYTES_MAX: usize = 1024;

/// The last [`ERROR_BYTES_MAX`] bytes of a text, cut at a character.
pub fn bounded_error(text: &str) -> &str {
    let text = text.trim();
    if text.len() <= ERROR_BYTES_MAX {
        return text;
    }
    let mut start = text.len() - ERROR_BYTES_MAX;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
