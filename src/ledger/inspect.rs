//! Looking into a ledger, and what an operator may do to it.

use futures::future::BoxFuture;
use serde::Serialize;

use super::{FailedAttempt, LedgerError, Millis, State};

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
    /// The last [`FAILURES_MAX`](super::history::FAILURES_MAX) attempts that failed, the oldest first.
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
    /// How many rows are in that state.
    pub fn rows(&self, state: State) -> u64 {
        match state {
            State::Processing => self.processing,
            State::Done => self.done,
            State::Failed => self.failed,
            State::Dead => self.dead,
        }
    }

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
    /// [`Origin`](super::Origin); no copy of it that may still be under way counts against it.
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
