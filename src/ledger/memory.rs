//! The reference model: a ledger in memory, for fast tests. Simple enough to be right at a look;
//! every other ledger must answer as it does.

mod inspect;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::{BoxFuture, FutureExt, ready};
use uuid::Uuid;

use super::{
    Claim, ClaimRequest, Ending, FailedAttempt, Finish, Finished, Ledger, LedgerError, Millis, Owner, Prune,
    Pruned, State, Ticket, bounded_error,
    history::{FAILURES_MAX, millis},
    prune::Horizon,
};
use crate::key::{Fingerprint, Key};

/// A ledger that is gone with its process.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// By row id, and so in the order of their first claims.
    rows: BTreeMap<i64, Entry>,
    last_row: i64,
    living: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug)]
struct Entry {
    scope: Arc<str>,
    key: Key,
    state: State,
    attempts: u32,
    interrupted: bool,
    parked: u32,
    owner: Arc<str>,
    fingerprint: Option<Fingerprint>,
    duplicates: u64,
    last_duplicate: Option<Millis>,
    first_seen: Millis,
    updated: Millis,
    last_error: Option<String>,
    next_attempt: Option<Millis>,
    failures: Vec<FailedAttempt>,
}

/// Keeps its owner alive.
struct Alive {
    name: Arc<str>,
    ledger: MemoryLedger,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.ledger.lock().living.remove(&self.name);
    }
}

impl MemoryLedger {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // No method leaves it half-changed, so another thread's panic spoils nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn find(&mut self, scope: &str, key: &Key) -> Option<(i64, &mut Entry)> {
        let mut rows = self.rows.iter_mut();
        rows.find(|(_, entry)| *entry.scope == *scope && entry.key == *key).map(|(id, entry)| (*id, entry))
    }

    fn claim(&mut self, owner: &Arc<str>, request: ClaimRequest, now: Millis) -> Claim {
        let living = self.living.clone();
        let Some((row, entry)) = self.find(&request.scope, &request.key) else {
            return self.claim_new(owner, request, now);
        };
        let another_body = matches!(
            (entry.fingerprint, request.fingerprint),
            (Some(ours), Some(theirs)) if ours != theirs
        );
        let own = entry.owner == *owner;
        if !another_body && request.origin.is_superseded(entry.state, entry.attempts, entry.parked, own) {
            return Claim::Superseded;
        }
        let (attempts, interrupted) = match entry.state {
            State::Done if another_body => return Claim::Mismatch,
            State::Done => {
                entry.duplicates += u64::from(request.copies);
                entry.last_duplicate = Some(now);
                return Claim::Duplicate;
            }
            State::Processing if own && !another_body => return Claim::Claimed(entry.ticket(row)),
            State::Processing if own => (entry.attempts, entry.interrupted),
            State::Processing if living.contains(&entry.owner) => {
                return Claim::InFlight { owner: entry.owner.clone() };
            }
            State::Processing => (entry.attempts + 1, true),
            State::Failed => (entry.attempts + 1, entry.interrupted),
            State::Dead => (1, false),
        };
        // The copies of the last life count no more, nor do those of another body.
        if entry.state == State::Dead || another_body {
            entry.parked = 0;
        }
        entry.state = State::Processing;
        entry.attempts = attempts;
        entry.interrupted = interrupted;
        entry.owner = owner.clone();
        entry.fingerprint = request.fingerprint;
        entry.updated = now;
        entry.next_attempt = None;
        Claim::Claimed(entry.ticket(row))
    }

    fn claim_new(&mut self, owner: &Arc<str>, request: ClaimRequest, now: Millis) -> Claim {
        self.last_row += 1;
        let entry = Entry {
            scope: request.scope,
            key: request.key,
            state: State::Processing,
            attempts: 1,
            interrupted: false,
            parked: 0,
            owner: owner.clone(),
            fingerprint: request.fingerprint,
            duplicates: 0,
            last_duplicate: None,
            first_seen: now,
            updated: now,
            last_error: None,
            next_attempt: None,
            failures: Vec::new(),
        };
        let ticket = entry.ticket(self.last_row);
        self.rows.insert(self.last_row, entry);
        Claim::Claimed(ticket)
    }

    fn finish(&mut self, owner: &Arc<str>, finish: Finish, now: Millis) -> Finished {
        let attempt = finish.ticket.attempt;
        let next_attempt = finish.ending.next_attempt(now);
        let parked =
            matches!(finish.ending, Ending::Failed { parked: true, .. } | Ending::Dead { copied: true, .. });
        let begun = matches!(finish.ending, Ending::Released { interrupted: true });
        let (state, attempts, error) = match finish.ending {
            Ending::Done => (State::Done, attempt, None),
            Ending::Failed { error, .. } => (State::Failed, attempt, Some(error)),
            Ending::Dead { error, .. } => (State::Dead, attempt, Some(error)),
            Ending::Released { .. } => (State::Failed, attempt - 1, None),
        };
        let released = (state, attempts) == (State::Failed, attempt - 1);
        let Some((row, entry)) = self.find(&finish.scope, &finish.key) else { return Finished::Lost };
        if row != finish.ticket.row || entry.owner != *owner {
            return Finished::Lost;
        }
        if (entry.state, entry.attempts) == (state, attempts) {
            return Finished::Recorded;
        }
        if (entry.state, entry.attempts) != (State::Processing, attempt) {
            return Finished::Lost;
        }
        entry.state = state;
        entry.attempts = attempts;
        entry.interrupted = (entry.interrupted && released) || begun;
        entry.updated = now;
        entry.next_attempt = next_attempt;
        if parked {
            entry.parked = attempt;
        }
        if let Some(error) = error {
            let (error, ran_ms) = (bounded_error(&error).to_owned(), finish.ran.map(millis));
            entry.failures.push(FailedAttempt { attempt, ended_ms: now, ran_ms, error: error.clone() });
            let beyond = entry.failures.len().saturating_sub(FAILURES_MAX as usize);
            entry.failures.drain(..beyond);
            entry.last_error = Some(error);
        }
        if finish.copies > 0 {
            entry.duplicates += u64::from(finish.copies);
            entry.last_duplicate = Some(now);
        }
        Finished::Recorded
    }

    fn prune(&mut self, prune: Prune, now: Millis) -> Pruned {
        let horizon = Horizon::new(prune.retention_ms, now);
        let mut pruned = Pruned { removed: 0, complete: true, last_row: prune.after_row };
        let rows: Vec<(i64, Entry)> =
            self.rows.range(prune.after_row + 1..).map(|(id, entry)| (*id, entry.clone())).collect();
        for (row, entry) in rows {
            if horizon.ends_walk(entry.first_seen) {
                return pruned;
            }
            let alive = entry.state == State::Processing && self.living.contains(&entry.owner);
            if horizon.is_past(entry.state, entry.updated) && !alive {
                if pruned.removed >= u64::from(prune.rows_max) {
                    return Pruned { complete: false, ..pruned };
                }
                self.rows.remove(&row);
                pruned.removed += 1;
            }
            pruned.last_row = row;
        }
        pruned
    }
}

impl Entry {
    fn ticket(&self, row: i64) -> Ticket {
        Ticket { row, attempt: self.attempts, interrupted: self.interrupted, first_seen: self.first_seen }
    }

    fn is(&self, key: Option<&Key>, scope: Option<&str>) -> bool {
        Some(&self.key) == key && scope.is_none_or(|scope| scope == &*self.scope)
    }
}

impl Ledger for MemoryLedger {
    fn enroll(&self) -> BoxFuture<'_, Result<Owner, LedgerError>> {
        let name: Arc<str> = format!("memory-{}", Uuid::now_v7().simple()).into();
        self.lock().living.insert(name.clone());
        ready(Ok(Owner::new(name.clone(), Alive { name, ledger: self.clone() }))).boxed()
    }

    fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Claim>, LedgerError>> {
        let (owner, mut memory) = (owner.shared_name(), self.lock());
        let claims = requests.into_iter().map(|request| memory.claim(&owner, request, now)).collect();
        ready(Ok(claims)).boxed()
    }

    fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Finished>, LedgerError>> {
        let (owner, mut memory) = (owner.shared_name(), self.lock());
        let finished = finishes.into_iter().map(|finish| memory.finish(&owner, finish, now)).collect();
        ready(Ok(finished)).boxed()
    }

    fn prune(&self, prune: Prune, now: Millis) -> BoxFuture<'static, Result<Pruned, LedgerError>> {
        let pruned = self.lock().prune(prune, now);
        ready(Ok(pruned)).boxed()
    }

    fn rows(&self) -> BoxFuture<'static, Result<u64, LedgerError>> {
        let rows = self.lock().rows.len() as u64;
        ready(Ok(rows)).boxed()
    }
}
