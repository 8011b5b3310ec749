//! Handlers that write through the ledger's own transaction, and running them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use rusqlite::Connection;

use super::{
    SqliteLedger,
    apply::Job,
    blocking,
    writer::{Call, Op},
};
use crate::{
    key::Key,
    ledger::{Applied, Apply, Effects, Ledger, LedgerError, Millis, Owner},
    message::Message,
};

/// Does the user's work for one message, inside the transaction that also makes its row `done`.
///
/// Closures `Fn(&Connection, &Attempt) -> Result<(), HandlerError>` are such handlers.
///
/// # Contract
///
/// What is written through the connection is committed together with the row, or not at all: so the
/// effect of each key is there exactly once. Whatever else the handler does is not part of that: a
/// run may be undone after it returned `Ok` (the commit failed), and then comes again.
///
/// Runs come one after the other, in the ledger's thread, and every other message of the process
/// waits meanwhile: a handler does not sleep, and talks to nobody.
///
/// The connection takes statements that read, and that write rows of the user's own tables. What
/// begins or ends transactions, changes the schema or writes the ledger's tables fails as not authorized.
///
/// # Cancellation
///
/// SQL that runs longer than the time limit, or at the drain deadline, is interrupted: it fails, and
/// so does the run, whatever it returns. Code between two statements is never cut off.
pub trait TransactionHandler: Send + Sync + 'static {
    /// Runs once, inside a savepoint of its own: an error undoes this message's work alone.
    ///
    /// # Errors
    ///
    /// See [`HandlerError`]. A panic is [`HandlerError::Retry`].
    fn handle(&self, transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError>;

    /// Whether it could run with this database now: asked before the first run and while paused.
    ///
    /// # Errors
    ///
    /// One sentence: what is missing and what to do.
    fn check(&self, _database: &Connection) -> Result<(), String> {
        Ok(())
    }
}

impl<F> TransactionHandler for F
where
    F: Fn(&Connection, &Attempt<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    fn handle(&self, transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError> {
        self(transaction, attempt)
    }
}

/// One run for one message.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub message: &'a Message,
    pub key: &'a Key,
    pub scope: &'a str,
    /// Counts from 1.
    pub attempt: u32,
    /// The attempt before this one was cut off by its worker's death. It had no effect here.
    pub interrupted: bool,
    /// Milliseconds since 1970 by the wall clock, the same for the whole batch.
    pub now: Millis,
}

/// Why a run failed. `?` turns SQLite's errors into one: a constraint or `RAISE` is then the message's
/// failure, and is tried again; a full disk or a lock is the ledger's, and pauses the worker.
#[derive(Debug)]
pub enum HandlerError {
    /// Try again, by the worker's policy.
    Retry(String),
    /// No further attempt can help: dead-letter it.
    GiveUp(String),
    /// The handler itself cannot run: pause, and use no attempt.
    CannotStart(String),
    /// What SQLite said; `context` stands before it in the error's text.
    Sql { context: String, error: rusqlite::Error },
}

impl From<rusqlite::Error> for HandlerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql { context: String::new(), error }
    }
}

/// A ledger together with a [`TransactionHandler`]; made by [`SqliteLedger::effects`].
#[derive(Clone)]
pub struct SqliteEffects {
    ledger: Arc<SqliteLedger>,
    handler: Arc<dyn TransactionHandler>,
    timeout: Duration,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for SqliteEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteEffects").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl SqliteLedger {
    /// Runs `handler` inside this ledger's transactions; SQL of one run is interrupted after `timeout`.
    pub fn effects(self: Arc<Self>, handler: impl TransactionHandler, timeout: Duration) -> SqliteEffects {
        SqliteEffects { ledger: self, handler: Arc::new(handler), timeout, stop: Arc::default() }
    }
}

impl Effects for SqliteEffects {
    fn apply(
        &self,
        owner: &Owner,
        requests: Vec<Apply>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Applied>, LedgerError>> {
        let job = Job {
            handler: self.handler.clone(),
            timeout: self.timeout,
            stop: self.stop.clone(),
            since: None,
            known: Default::default(),
        };
        let owner = owner.shared_name();
        self.ledger.send(|reply| Op::Apply(Call { owner, requests, now, answers: Vec::new(), reply }, job))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let (ledger, handler) = (self.ledger.clone(), self.handler.clone());
        Box::pin(async move {
            let checked = blocking(move || ledger.with_guard(|connection, _| Ok(handler.check(connection))));
            checked.await.map_err(|error| error.to_string())?
        })
    }

    fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        self.ledger.clone()
    }

    fn guarantee(&self) -> &'static str {
        "exactly once: a message's effect and its row in the ledger are one commit"
    }
}
