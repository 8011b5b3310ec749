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
mod error;
pub mod history;
mod inspect;
pub mod meaning;
pub mod memory;
pub mod prune;
pub mod sqlite;
mod words;

use std::{any::Any, fmt, sync::Arc};

use futures::future::BoxFuture;

pub use self::{
    effects::{Applied, Apply, Effects, Failure},
    error::{ERROR_BYTES_MAX, LedgerError, LedgerErrorKind, bounded_error},
    history::FailedAttempt,
    inspect::{Change, Changed, Filter, Forgotten, Inspect, Row, ScopeStats, Stats},
    words::{Claim, ClaimRequest, Ending, Finish, Finished, Origin, Prune, Pruned, State, Ticket},
};

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
    /// very owner is claimed again with the same attempt: the reply to an earlier claim was lost. The body of
    /// the latest claim is the row's.
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
