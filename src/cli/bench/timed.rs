//! A ledger that takes the time of each call to another one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};

use crate::ledger::{
    Claim, ClaimRequest, Finish, Finished, Ledger, LedgerError, Millis, Owner, Prune, Pruned,
    sqlite::SqliteLedger,
};

/// See the module.
#[derive(Clone)]
pub(super) struct Timed {
    ledger: Arc<dyn Ledger>,
    calls: Arc<Mutex<Calls>>,
}

/// What was seen of the calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) claims: Vec<Duration>,
    pub(super) finishes: Vec<Duration>,
    /// Claims and finishes in all of them.
    pub(super) operations: u64,
    pub(super) commits: u64,
}

impl Timed {
    /// From now on: what was written before does not count.
    pub(super) fn new(ledger: SqliteLedger) -> Self {
        let calls = Arc::new(Mutex::new(Calls::default()));
        let counted = calls.clone();
        ledger.watch_commits(move |_| {
            counted.lock().unwrap_or_else(PoisonError::into_inner).commits += 1;
        });
        Self { ledger: Arc::new(ledger), calls }
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn timed<T: Send + 'static>(
        &self,
        operations: usize,
        call: BoxFuture<'static, T>,
        of: fn(&mut Calls) -> &mut Vec<Duration>,
    ) -> BoxFuture<'static, T> {
        let (calls, start) = (self.calls.clone(), Instant::now());
        call.map(move |answer| {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.operations += operations as u64;
            of(&mut calls).push(start.elapsed());
            answer
        })
        .boxed()
    }
}

impl Ledger for Timed {
    fn enroll(&self) -> BoxFuture<'_, Result<Owner, LedgerError>> {
        self.ledger.enroll()
    }

    fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Claim>, LedgerError>> {
        let operations = requests.len();
        self.timed(operations, self.ledger.claim(owner, requests, now), |calls| &mut calls.claims)
    }

    fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Finished>, LedgerError>> {
        let operations = finishes.len();
        self.timed(operations, self.ledger.finish(owner, finishes, now), |calls| &mut calls.finishes)
    }

    fn prune(&self, prune: Prune, now: Millis) -> BoxFuture<'static, Result<Pruned, LedgerError>> {
        self.ledger.prune(prune, now)
    }

    fn rows(&self) -> BoxFuture<'static, Result<u64, LedgerError>> {
        self.ledger.rows()
    }
}
