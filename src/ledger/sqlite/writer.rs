//! The writer: the one thread that owns the connection. It takes whatever is queued, writes it in
//! one transaction, and answers when that is durable.

mod op;

use std::{path::PathBuf, sync::mpsc, time::Instant};

use rusqlite::Connection;

use super::{
    apply::{Job, apply},
    batch::Batch,
    claim::claim,
    commits::CommitWatch,
    errors::{RowError, ledger_error, refusal},
    files::Identity,
    finish::finish,
    guard::Guard,
    log::LogWatch,
    owners::{Owners, lock_file},
    prune,
};
use crate::ledger::{Applied, Apply, Claim, Failure, Finished, LedgerError};
pub(super) use op::{Call, Op, Reply};

/// Rows in one transaction, unless a single operation has more.
const ROWS_MAX: usize = 4096;

/// How a batch is tried. Each rung survives what the one above does not.
#[derive(Clone, Copy, PartialEq)]
enum Rung {
    /// One transaction; fails at the first row that SQLite refuses.
    Together,
    /// One transaction, a savepoint around each row: a refused row leaves no trace.
    Savepoints,
    /// A transaction for each row: survives triggers that roll everything back (`RAISE(ROLLBACK)`)
    /// and constraints that are checked at commit.
    Alone,
}

/// Why a batch ended early.
enum Abort {
    /// A row was refused: nothing of the batch is written; try the next rung.
    Climb,
    /// A run has ended the transaction, and is known now: try the same again without it.
    Again(Failure),
    Failed(LedgerError),
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    pub(super) path: PathBuf,
    pub(super) owners: Owners,
    pub(super) identity: Identity,
    pub(super) log: LogWatch,
    pub(super) commits: CommitWatch,
}

impl Writer {
    /// Works until the queue is closed and empty. Closing the connection is SQLite's: the last one
    /// writes the log into the file and removes it.
    pub(super) fn run(mut self, queue: mpsc::Receiver<Op>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| queue.recv().ok()) {
            let mut rows = first.rows();
            let mut ops = vec![first];
            while rows < ROWS_MAX {
                let Ok(op) = queue.try_recv() else { break };
                rows += op.rows();
                if rows > ROWS_MAX {
                    next = Some(op);
                } else {
                    ops.push(op);
                }
            }
            ops.iter().for_each(Op::queued);
            let began = Instant::now();
            let written = self.write(&mut ops);
            if written.is_ok() {
                self.commits.tell(began, || ops.iter().map(Op::messages).sum());
                ops.iter().for_each(Op::committed);
            }
            ops.into_iter().for_each(|op| op.reply(written.clone()));
        }
    }

    fn write(&mut self, ops: &mut [Op]) -> Result<(), LedgerError> {
        for rung in [Rung::Together, Rung::Savepoints, Rung::Alone] {
            // Each time one more run is known, so this ends.
            let mut tried = self.attempt(ops, rung);
            while let Err(Abort::Again(_)) = tried {
                self.roll_back();
                tried = self.attempt(ops, rung);
            }
            match tried {
                Ok(()) => return self.still_in_place(),
                Err(Abort::Climb | Abort::Again(_)) => self.roll_back(),
                Err(Abort::Failed(error)) => {
                    self.roll_back();
                    return Err(error);
                }
            }
        }
        // Not reached by refused rows, which the last rung answers one by one.
        Err(LedgerError::transient(format!("the ledger {} refused a whole batch", self.path.display())))
    }

    /// What was committed counts only while others see it, and see that we live.
    fn still_in_place(&mut self) -> Result<(), LedgerError> {
        self.log.look(self.identity.check()?, Instant::now());
        self.owners.restore().map_err(|e| lock_file(&self.owners, &e))
    }

    fn attempt(&self, ops: &mut [Op], rung: Rung) -> Result<(), Abort> {
        let batch = Batch::new(&self.connection, &self.owners);
        if rung != Rung::Alone {
            self.sql("BEGIN IMMEDIATE")?;
        }
        for op in &mut *ops {
            match op {
                Op::Claim(Call { owner, requests, now, answers, .. }) => {
                    let one = |request: &_| {
                        self.row(&batch, rung, Claim::Refused, || claim(&batch, owner, request, *now))
                    };
                    *answers = requests.iter().map(one).collect::<Result<_, _>>()?;
                }
                Op::Finish(Call { owner, requests, now, answers, .. }) => {
                    let one = |request: &_| {
                        self.row(&batch, rung, Finished::Refused, || finish(&batch, owner, request, *now))
                    };
                    *answers = requests.iter().map(one).collect::<Result<_, _>>()?;
                }
                Op::Apply(call, job) => self.apply(&batch, rung, call, job)?,
                Op::Prune { prune, now, answer, .. } => {
                    *answer = prune::step(&batch, *prune, *now).map_err(|e| Abort::Failed(self.failed(e)))?;
                }
            }
        }
        ops.iter().for_each(Op::written);
        if rung != Rung::Alone {
            self.sql("COMMIT")?;
        }
        Ok(())
    }

    fn apply(
        &self,
        batch: &Batch<'_>,
        rung: Rung,
        call: &mut Call<Apply, Applied>,
        job: &mut Job,
    ) -> Result<(), Abort> {
        call.answers.clear();
        for (index, request) in call.requests.iter().enumerate() {
            let answer = loop {
                if job.postpones(index) {
                    break Applied::Postponed;
                }
                let refused = |why| Applied::Unrun(Claim::Refused(why));
                let work = || apply(batch, &self.guard, &call.owner, request, (job, index), call.now);
                let failure = match (self.row(batch, rung, refused, work), rung) {
                    // Refused at its commit, it may be the run's doing; without the run it is not.
                    (Ok(Applied::Unrun(Claim::Refused(error))), Rung::Alone)
                        if !job.known.contains_key(&index) =>
                    {
                        Failure::Retry { error }
                    }
                    (Ok(answer), _) => break answer,
                    (Err(Abort::Again(failure)), Rung::Alone) => failure,
                    (Err(Abort::Again(failure)), _) => {
                        job.known.insert(index, failure.clone());
                        return Err(Abort::Again(failure));
                    }
                    (Err(other), _) => return Err(other),
                };
                // Alone in its transaction: those before it are committed.
                self.roll_back();
                batch.forget_ids();
                job.known.insert(index, failure);
            };
            call.answers.push(answer);
        }
        Ok(())
    }

    /// Does one row's work in the way of the rung.
    fn row<T>(
        &self,
        batch: &Batch<'_>,
        rung: Rung,
        refused: impl FnOnce(String) -> T,
        work: impl FnOnce() -> Result<T, RowError>,
    ) -> Result<T, Abort> {
        let (begin, end, undo) = match rung {
            Rung::Together => return work().map_err(|e| self.abort(e)),
            Rung::Savepoints => ("SAVEPOINT one", "RELEASE one", "ROLLBACK TO one"),
            Rung::Alone => ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"),
        };
        self.sql(begin)?;
        let result = work().and_then(|done| Ok(self.execute(end).map(|()| done)?));
        let error = match result {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let RowError::Sql(sql) = &error else { return Err(self.abort(error)) };
        let Some(why) = refusal(sql) else { return Err(self.abort(error)) };
        batch.forget_ids();
        match (rung, self.connection.is_autocommit()) {
            // The trigger has rolled everything back.
            (Rung::Alone, true) => {}
            (_, true) => return Err(Abort::Climb),
            (Rung::Savepoints, false) => {
                self.sql(undo)?;
                self.sql(end)?;
            }
            (_, false) => self.sql(undo)?,
        }
        Ok(refused(why))
    }

    fn abort(&self, error: RowError) -> Abort {
        match error {
            RowError::Sql(error) if refusal(&error).is_some() => Abort::Climb,
            RowError::Broken(failure) => Abort::Again(failure),
            other => Abort::Failed(self.failed(other)),
        }
    }

    fn failed(&self, error: RowError) -> LedgerError {
        match error {
            RowError::Sql(error) => ledger_error(&self.path, &error),
            RowError::Ledger(error) => error,
            // A row's work, not a step of pruning, ends so; see `abort`.
            RowError::Broken(_) => LedgerError::transient("the transaction has ended"),
        }
    }

    fn sql(&self, sql: &str) -> Result<(), Abort> {
        self.execute(sql).map_err(|e| self.abort(e.into()))
    }

    /// Not from the cache: a handler with the same text would find such a statement there, allowed.
    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.execute_batch(sql)
    }

    /// Some errors have already ended the transaction.
    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // If even this fails, the next BEGIN says so.
            let _ = self.execute("ROLLBACK");
        }
    }
}
