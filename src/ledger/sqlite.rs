//! The SQLite ledger: the only place that names rusqlite.
//!
//! - `open`, `create`, `migrate`: which files are taken for a ledger, and how they are made.
//! - `writer`: the thread that owns the connection; `batch`: what the rows of a transaction share.
//! - `claim`, `finish`, `failures`, `change`, `prune`: one row's, or one step's, work in SQL.
//! - `effects`: handlers that write through the ledger's transaction; `apply`: one message's way through it;
//!   `guard`: what their SQL may do; `script`, `split`: a file of statements as such a handler.
//! - `commits`: how long commits take, for whoever wants to know.
//! - `owners`: who is alive; `files`: whether the ledger's files are still in their place; `log`: how
//!   long its log has grown.
//! - `survey`, `filesystem`: whether a worker could use a ledger, and what it lies on.
//! - `read`, `account`, `compact`: looking into a ledger, accounting for all of it, and making its file
//!   smaller, also from another process.

mod account;
mod apply;
mod batch;
mod change;
mod claim;
mod commits;
mod compact;
mod create;
mod effects;
mod errors;
mod failures;
mod files;
mod filesystem;
mod finish;
mod guard;
mod log;
mod migrate;
mod open;
mod owners;
mod prune;
mod read;
mod script;
mod split;
mod survey;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use tokio::{sync::oneshot, task};

/// What a [`TransactionHandler`] writes through, and the library it comes from.
pub use rusqlite::{self, Connection};

pub use self::{
    account::{Fate, RECORD, RECORD_SCHEMA},
    commits::Commit,
    compact::{Compacted, Compactor},
    effects::{Attempt, HandlerError, SqliteEffects, TransactionHandler},
    filesystem::{FileSystem, FileSystemKind},
    read::SqliteReader,
    script::Script,
    survey::{Survey, sqlite_version, survey},
};
use self::{
    commits::CommitWatch,
    errors::ledger_error,
    files::Identity,
    guard::Guard,
    log::LogWatch,
    owners::{Owners, lock_file},
    writer::{Call, Op, Reply, Writer},
};
use crate::ledger::{
    Change, Changed, Claim, ClaimRequest, Filter, Finish, Finished, Forgotten, Inspect, Ledger, LedgerError,
    Millis, Owner, Prune, Pruned, Row, Stats,
};

/// Calls waiting for the writer. Each worker waits for its calls, so there are only a few.
const QUEUE_MAX: usize = 10_000;

/// A ledger in one SQLite file, which several processes on one host may share.
///
/// Dropping it answers what is queued, then closes the file; that takes as long as the commits do.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    owners: Owners,
    reader: SqliteReader,
    /// `None` only while being dropped.
    queue: Option<mpsc::SyncSender<Op>>,
    writer: Option<JoinHandle<()>>,
    guard: Guard,
    commits: CommitWatch,
}

/// How to open a [`SqliteLedger`].
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// A missing ledger is created; otherwise it is an error.
    pub create: bool,
    /// How long a batch waits for other programs' transactions before it fails as transient.
    pub busy_timeout: Duration,
    /// The file never has more pages (of 4 KiB) than this; beyond it the ledger reports that its disk
    /// is full. `None` leaves that to the disk.
    pub pages_max: Option<u32>,
    /// A longer write-ahead log is warned of: some reader holds it. Once that reader is gone, it shrinks to this.
    pub log_bytes_max: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { create: true, busy_timeout: Duration::from_secs(5), pages_max: None, log_bytes_max: 64 << 20 }
    }
}

impl SqliteLedger {
    /// Opens the ledger at `path`, or creates it there. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// One sentence saying which file, what is wrong and what to do. A file that is not a sound ledger of a
    /// known version is left as it is.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, LedgerError> {
        let (mut connection, path) = open::open(path.as_ref(), &options)?;
        let guard = Guard::on(&mut connection).map_err(|e| ledger_error(&path, &e))?;
        let owners = Owners::of(&path);
        let identity = Identity::of(&path).map_err(|e| {
            LedgerError::transient(format!("cannot find the files of {}: {e}", path.display()))
        })?;
        let (queue, ops) = mpsc::sync_channel(QUEUE_MAX);
        let commits = CommitWatch::default();
        let log = LogWatch::new(&path, options.log_bytes_max.into());
        let writer = Writer {
            connection,
            path: path.clone(),
            owners: owners.clone(),
            identity,
            guard: guard.clone(),
            log,
            commits: commits.clone(),
        };
        let writer = thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || writer.run(ops))
            .map_err(|e| LedgerError::transient(format!("cannot start the ledger's thread: {e}")))?;
        let reader = SqliteReader::at(path.clone(), options.busy_timeout);
        Ok(Self { path, owners, reader, queue: Some(queue), writer: Some(writer), guard, commits })
    }

    /// Where the ledger is, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks into it, beside the writer; does not keep it open.
    pub fn reader(&self) -> SqliteReader {
        self.reader.clone()
    }

    /// Has each commit of claims and finishes told to `watcher`, on the writer's thread, which waits meanwhile.
    /// The first watcher stays.
    pub fn watch_commits(&self, watcher: impl Fn(Commit) + Send + Sync + 'static) {
        self.commits.set(watcher);
    }

    /// A connection of its own, with the guard that user's SQL is under. Blocks.
    fn with_guard<T>(
        &self,
        work: impl FnOnce(&Connection, &Guard) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut connection = self.reader.connect().map_err(|e| self.error(&e))?;
        connection
            .execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA foreign_keys = ON;")
            .map_err(|e| self.error(&e))?;
        let guard = Guard::on(&mut connection).map_err(|e| self.error(&e))?;
        work(&connection, &guard)
    }

    fn error(&self, error: &rusqlite::Error) -> LedgerError {
        ledger_error(&self.path, error)
    }

    /// Queues a call at once, so that dropping the future does not take it back.
    fn send<T: Send + 'static>(
        &self,
        op: impl FnOnce(Reply<T>) -> Op,
    ) -> BoxFuture<'static, Result<T, LedgerError>> {
        let (reply, answer) = oneshot::channel();
        let queued = match &self.queue {
            Some(queue) => queue.try_send(op(reply)).map_err(|e| match e {
                mpsc::TrySendError::Full(_) => {
                    LedgerError::transient(format!("the ledger is {QUEUE_MAX} calls behind"))
                }
                mpsc::TrySendError::Disconnected(_) => stopped(),
            }),
            None => Err(stopped()),
        };
        async move {
            queued?;
            answer.await.unwrap_or_else(|_| Err(stopped()))
        }
        .boxed()
    }
}

impl Drop for SqliteLedger {
    fn drop(&mut self) {
        self.guard.close();
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            // A panic there has been reported by the panic hook, and by every call since.
            let _ = writer.join();
        }
    }
}

fn stopped() -> LedgerError {
    LedgerError::fatal("the ledger's thread has ended: start again")
}

impl Ledger for SqliteLedger {
    fn enroll(&self) -> BoxFuture<'_, Result<Owner, LedgerError>> {
        let owners = self.owners.clone();
        blocking(move || {
            let failed = |e: std::io::Error| lock_file(&owners, &e);
            owners.sweep().map_err(failed)?;
            let (name, lock) = owners.enroll().map_err(failed)?;
            Ok(Owner::new(name, lock))
        })
    }

    fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Claim>, LedgerError>> {
        let owner = owner.shared_name();
        self.send(|reply| Op::Claim(Call { owner, requests, now, answers: Vec::new(), reply }))
    }

    fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Finished>, LedgerError>> {
        let owner = owner.shared_name();
        self.send(|reply| Op::Finish(Call { owner, requests: finishes, now, answers: Vec::new(), reply }))
    }

    fn prune(&self, prune: Prune, now: Millis) -> BoxFuture<'static, Result<Pruned, LedgerError>> {
        let step = self.send(|reply| Op::Prune { prune, now, answer: Pruned::default(), reply });
        let reader = self.reader.clone();
        async move {
            let pruned = step.await?;
            if pruned.complete {
                blocking(move || reader.sweep_owners()).await?;
            }
            Ok(pruned)
        }
        .boxed()
    }

    fn rows(&self) -> BoxFuture<'static, Result<u64, LedgerError>> {
        let reader = self.reader.clone();
        blocking(move || reader.count())
    }
}

impl Inspect for SqliteLedger {
    fn stats(&self) -> BoxFuture<'_, Result<Stats, LedgerError>> {
        self.reader.stats()
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        self.reader.list(filter)
    }

    fn show(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        self.reader.show(key, scope)
    }

    fn forget(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Forgotten, LedgerError>> {
        self.reader.forget(key, scope)
    }

    fn change(
        &self,
        keys: Vec<String>,
        scope: Option<&str>,
        change: Change,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<Changed>, LedgerError>> {
        self.reader.change(keys, scope, change, now)
    }
}

/// Off the runtime's threads: SQLite and the file system block.
fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> BoxFuture<'static, Result<T, LedgerError>> {
    async move {
        let failed = |e: task::JoinError| LedgerError::transient(format!("reading the ledger failed: {e}"));
        task::spawn_blocking(work).await.map_err(failed)?
    }
    .boxed()
}
