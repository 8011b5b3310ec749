//! The ledger that all processes share, called as if it took no time, and the handlers that run inside it.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ackonce::ledger::{
    Applied, Apply, Claim, ClaimRequest, Effects, Ending, Failure, Filter, Finish, Finished, Inspect, Ledger,
    LedgerError, Millis, Owner, Prune, Row,
    memory::MemoryLedger,
    prune::Pruner,
    sqlite::{Attempt, Connection, HandlerError, SqliteEffects, SqliteLedger, SqliteOptions},
};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    plan::{Deed, Temper},
    process::Process,
};

/// Which ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Sqlite,
}

trait Whole: Ledger + Inspect {}

impl<L: Ledger + Inspect> Whole for L {}

pub struct Store {
    ledger: Arc<dyn Whole>,
    sqlite: Option<Arc<SqliteLedger>>,
    pruner: Pruner<dyn Whole>,
    handlers: Handlers,
    runtime: Runtime,
    _dir: Option<TempDir>,
}

/// What each body's runs do, counted over all processes.
#[derive(Clone, Debug)]
pub struct Handlers {
    tempers: Arc<HashMap<String, Temper>>,
    runs: Arc<Mutex<HashMap<String, u32>>>,
}

impl Handlers {
    pub fn new(tempers: HashMap<String, Temper>) -> Self {
        Self { tempers: Arc::new(tempers), runs: Arc::default() }
    }

    pub fn next(&self, body: &[u8]) -> Deed {
        let body = String::from_utf8_lossy(body).into_owned();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(body.clone()).or_default();
        *count += 1;
        self.tempers[&body].deed(*count - 1)
    }
}

impl Store {
    pub fn new(kind: Kind, handlers: Handlers, retention: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (dir, sqlite) = match kind {
            Kind::Memory => (None, None),
            Kind::Sqlite => {
                let dir = memory_dir();
                let path = dir.path().join("ackonce.db");
                let ledger = SqliteLedger::open(path, SqliteOptions::default()).unwrap();
                ledger.set_up("CREATE TABLE IF NOT EXISTS effects (key TEXT, attempt INTEGER)").unwrap();
                (Some(dir), Some(Arc::new(ledger)))
            }
        };
        let ledger: Arc<dyn Whole> = match &sqlite {
            Some(ledger) => ledger.clone(),
            None => Arc::new(MemoryLedger::new()),
        };
        let pruner = Pruner::new(ledger.clone(), retention);
        Self { ledger, sqlite, pruner, handlers, runtime, _dir: dir }
    }

    fn wait<T>(&self, future: BoxFuture<'_, T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn enroll(&self) -> Owner {
        self.wait(self.ledger.enroll()).unwrap()
    }

    /// For one process: its own, so that it can be stopped by itself.
    pub fn effects(&self) -> Option<SqliteEffects> {
        let (ledger, handlers) = (self.sqlite.clone()?, self.handlers.clone());
        let handler = move |transaction: &Connection, attempt: &Attempt<'_>| -> Result<(), HandlerError> {
            transaction
                .execute("INSERT INTO effects VALUES (?1, ?2)", (attempt.key.as_str(), attempt.attempt))?;
            match handlers.next(&attempt.message.body) {
                Deed::Succeed => Ok(()),
                Deed::Fail => Err(HandlerError::Retry("failed".into())),
                Deed::GiveUp => Err(HandlerError::GiveUp("hopeless".into())),
                Deed::CannotStart | Deed::Kill => Err(HandlerError::CannotStart("away".into())),
            }
        };
        Some(ledger.effects(handler, Duration::from_secs(30)))
    }

    pub fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> Result<Vec<Claim>, LedgerError> {
        self.wait(self.ledger.claim(owner, requests, now))
    }

    pub fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> Result<Vec<Finished>, LedgerError> {
        self.wait(self.ledger.finish(owner, finishes, now))
    }

    pub fn apply(
        &self,
        process: &Process,
        requests: Vec<Apply>,
        now: Millis,
    ) -> Result<Vec<Applied>, LedgerError> {
        match &process.effects {
            Some(effects) => self.wait(effects.apply(&process.owner, requests, now)),
            None => requests.into_iter().map(|request| self.apply_one(process, request, now)).collect(),
        }
    }

    /// What [`Effects::apply`] promises, for the model: nothing comes between the steps.
    fn apply_one(&self, process: &Process, request: Apply, now: Millis) -> Result<Applied, LedgerError> {
        let Apply { claim: asked, message, attempts_max, reruns } = request;
        let owner = &process.owner;
        let ticket = match self.claim(owner, vec![asked.clone()], now)?.remove(0) {
            Claim::Claimed(ticket) => ticket,
            other => return Ok(Applied::Unrun(other)),
        };
        if ticket.attempt > attempts_max || (ticket.interrupted && !reruns) {
            return Ok(Applied::Unrun(Claim::Claimed(ticket)));
        }
        if process.is_stopping {
            return Ok(Applied::Failed { ticket, failure: Failure::Stopped });
        }
        let failure = match self.handlers.next(&message.body) {
            Deed::Succeed => {
                let (scope, key, copies) = (asked.scope, asked.key, asked.copies.saturating_sub(1));
                let done =
                    Finish { scope, key, ticket: ticket.clone(), ending: Ending::Done, copies, ran: None };
                assert_eq!(self.finish(owner, vec![done], now)?, [Finished::Recorded]);
                return Ok(Applied::Done(ticket));
            }
            Deed::Fail => Failure::Retry { error: "failed".into() },
            Deed::GiveUp => Failure::GiveUp { error: "hopeless".into() },
            Deed::CannotStart | Deed::Kill => Failure::CannotStart { error: "away".into() },
        };
        Ok(Applied::Failed { ticket, failure })
    }

    /// One pass, as the worker makes them in the background.
    pub fn prune(&mut self, now: Millis) {
        self.runtime.block_on(self.pruner.pass(now)).unwrap();
    }

    /// All that is old enough, as an operator who asks for it.
    pub fn prune_at_once(&self, retention: Duration, now: Millis) {
        let retention_ms = Millis::try_from(retention.as_millis()).unwrap_or(Millis::MAX);
        let mut after_row = 0;
        loop {
            let step = Prune { retention_ms, rows_max: 5, after_row };
            let pruned = self.wait(self.ledger.prune(step, now)).unwrap();
            if pruned.complete {
                return;
            }
            after_row = pruned.last_row;
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        self.wait(self.ledger.list(Filter { scope: None, state: None, limit: 100_000 })).unwrap()
    }

    /// How often each key's effect is there; `None` if effects are outside the ledger.
    pub fn effects_by_key(&self) -> Option<HashMap<String, u32>> {
        let database = Connection::open(self.sqlite.as_ref()?.path()).unwrap();
        let mut query = database.prepare("SELECT key, count(*) FROM effects GROUP BY key").unwrap();
        let counts = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        Some(counts.map(Result::unwrap).collect())
    }
}

/// Durability is proven elsewhere: here a disk would only cost time.
fn memory_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}
