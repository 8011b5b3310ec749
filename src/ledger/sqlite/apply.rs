//! One message's claim, run and finish in one transaction.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use super::{
    batch::Batch,
    claim::claim,
    effects::{Attempt, HandlerError, TransactionHandler},
    errors::{RowError, is_of_the_ledger, words},
    finish::finish,
    guard::{Guard, Interrupted, Limit, Mode, Noticed},
};
use crate::{
    crash_point::{CrashPoint, reach},
    ledger::{Applied, Apply, Claim, Ending, Failure, Finish, Finished, LedgerError, Millis, Ticket},
};

/// How long runs may keep the ledger to themselves. The one that crosses it ends; the rest are
/// postponed, so that other workers and processes have their turn.
const BATCH_TIME: Duration = Duration::from_millis(250);

/// How a batch of messages is run.
pub(super) struct Job {
    pub(super) handler: Arc<dyn TransactionHandler>,
    pub(super) timeout: Duration,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) since: Option<Instant>,
    /// Runs that have ended the whole transaction, by their index in the batch. When the batch is
    /// tried again, they are not.
    pub(super) known: HashMap<usize, Failure>,
}

impl Job {
    /// The first one always has its turn, so each call gets something done.
    pub(super) fn postpones(&mut self, index: usize) -> bool {
        let since = self.since.get_or_insert_with(Instant::now);
        index > 0 && since.elapsed() > BATCH_TIME && !self.known.contains_key(&index)
    }
}

pub(super) fn apply(
    batch: &Batch<'_>,
    guard: &Guard,
    owner: &Arc<str>,
    request: &Apply,
    (job, index): (&Job, usize),
    now: Millis,
) -> Result<Applied, RowError> {
    let ticket = match claim(batch, owner, &request.claim, now)? {
        Claim::Claimed(ticket) => ticket,
        other => return Ok(Applied::Unrun(other)),
    };
    if ticket.attempt > request.attempts_max || (ticket.interrupted && !request.reruns) {
        return Ok(Applied::Unrun(Claim::Claimed(ticket)));
    }
    if let Some(failure) = job.known.get(&index) {
        return Ok(Applied::Failed { ticket, failure: failure.clone() });
    }
    // Not from the cache, where the handler would find them as well.
    let sql = |sql: &str| batch.connection().execute_batch(sql);
    sql("SAVEPOINT effect")?;
    let ran = run(batch, guard, request, &ticket, job, now)?;
    reach(CrashPoint::EffectWritten);
    let failure = match ran {
        Some(failure) => Some(failure),
        None => record(batch, owner, request, &ticket, now)?,
    };
    if failure.is_some() {
        sql("ROLLBACK TO effect")?;
    }
    sql("RELEASE effect")?;
    Ok(match failure {
        Some(failure) => Applied::Failed { ticket, failure },
        None => Applied::Done(ticket),
    })
}

/// `None` if it succeeded.
fn run(
    batch: &Batch<'_>,
    guard: &Guard,
    request: &Apply,
    ticket: &Ticket,
    job: &Job,
    now: Millis,
) -> Result<Option<Failure>, RowError> {
    let attempt = Attempt {
        message: &request.message,
        key: &request.claim.key,
        scope: &request.claim.scope,
        attempt: ticket.attempt,
        interrupted: ticket.interrupted,
        now,
    };
    let (timeout, stop) = (job.timeout, job.stop.clone());
    let limit = Limit { deadline: Instant::now() + timeout, timeout, stop };
    let connection = batch.connection();
    let (result, noticed) = guard.watch(Mode::Run, Some(limit), || {
        catch_unwind(AssertUnwindSafe(|| job.handler.handle(connection, &attempt)))
            .unwrap_or_else(|_| Err(HandlerError::Retry("the handler panicked".to_owned())))
    });
    // A run cannot commit or begin a transaction; SQLite may have rolled this one back.
    let broken = connection.is_autocommit();
    match failure(result, noticed)? {
        Some(failure) if broken => Err(RowError::Broken(failure)),
        None if broken => {
            let error = "the handler went on after SQLite had rolled its transaction back".to_owned();
            Err(RowError::Broken(Failure::Retry { error }))
        }
        failure => Ok(failure),
    }
}

/// Row `done`; a trigger that ignores it undoes the run.
fn record(
    batch: &Batch<'_>,
    owner: &Arc<str>,
    request: &Apply,
    ticket: &Ticket,
    now: Millis,
) -> Result<Option<Failure>, RowError> {
    let done = Finish {
        scope: request.claim.scope.clone(),
        key: request.claim.key.clone(),
        ticket: ticket.clone(),
        ending: Ending::Done,
        copies: request.claim.copies.saturating_sub(1),
        ran: None,
    };
    Ok(match finish(batch, owner, &done, now)? {
        Finished::Recorded => None,
        Finished::Refused(error) => Some(Failure::Retry { error }),
        // The claim was made in this very transaction, so only what the run did can have taken it.
        Finished::Lost => Some(Failure::Retry { error: "the run has removed its own row".to_owned() }),
    })
}

/// What a run's end means for its message; an error of the ledger itself is none of the message's.
fn failure(result: Result<(), HandlerError>, noticed: Noticed) -> Result<Option<Failure>, RowError> {
    match noticed.interrupted {
        Some(Interrupted::Overdue(timeout)) => {
            let timeout = humantime::format_duration(timeout);
            return Ok(Some(Failure::Retry { error: format!("it took longer than {timeout}") }));
        }
        Some(Interrupted::Stopped) => return Ok(Some(Failure::Stopped)),
        Some(Interrupted::Closing) => return Err(LedgerError::transient("the ledger is being closed").into()),
        None => {}
    }
    let error = match result {
        Ok(()) => return Ok(None),
        Err(HandlerError::Retry(error)) => return Ok(Some(Failure::Retry { error })),
        Err(HandlerError::GiveUp(error)) => return Ok(Some(Failure::GiveUp { error })),
        Err(HandlerError::CannotStart(error)) => return Ok(Some(Failure::CannotStart { error })),
        Err(HandlerError::Sql { context, error }) => (context, error),
    };
    let (context, error) = error;
    if is_of_the_ledger(&error) {
        return Err(error.into());
    }
    let said = noticed.denied.unwrap_or_else(|| words(&error));
    Ok(Some(Failure::Retry { error: format!("{context}{said}") }))
}
