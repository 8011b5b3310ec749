//! Looking into the model, and what an operator may do to it.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, FutureExt, ready};

use super::{Entry, Memory, MemoryLedger};
use crate::{
    key::Key,
    ledger::{
        Change, Changed, Filter, Forgotten, Inspect, LedgerError, Millis, Row, ScopeStats, State, Stats,
    },
};

impl Memory {
    fn select(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Row> {
        self.rows
            .values()
            .filter(|entry| wanted(entry))
            .map(|entry| Row {
                scope: entry.scope.to_string(),
                message_id: entry.key.to_string(),
                state: entry.state,
                attempts: entry.attempts,
                duplicates: entry.duplicates,
                owner: Some(entry.owner.to_string()),
                owner_alive: entry.state == State::Processing && self.living.contains(&entry.owner),
                first_seen_ms: entry.first_seen,
                updated_ms: entry.updated,
                last_duplicate_ms: entry.last_duplicate,
                next_attempt_ms: entry.next_attempt,
                last_error: entry.last_error.clone(),
                failures: entry.failures.clone(),
            })
            .collect()
    }

    fn change(&mut self, key: Option<&Key>, scope: Option<&str>, change: Change, now: Millis) -> Changed {
        let mut changed = Changed::default();
        for entry in self.rows.values_mut().filter(|entry| entry.is(key, scope)) {
            if entry.state == State::Processing && self.living.contains(&entry.owner) {
                changed.in_flight += 1;
                continue;
            }
            match (change, entry.state) {
                (Change::MarkDone | Change::Retry { even_done: false }, State::Done) => {
                    changed.done += 1;
                    continue;
                }
                (Change::MarkDone, _) => entry.state = State::Done,
                (Change::Retry { .. }, _) => {
                    entry.state = State::Failed;
                    entry.attempts = 0;
                    entry.parked = 0;
                }
            }
            entry.interrupted = false;
            entry.next_attempt = None;
            entry.updated = now;
            changed.changed += 1;
        }
        changed
    }
}

impl Inspect for MemoryLedger {
    fn stats(&self) -> BoxFuture<'_, Result<Stats, LedgerError>> {
        let mut scopes: BTreeMap<String, ScopeStats> = BTreeMap::new();
        for row in self.lock().select(|_| true) {
            let stats = scopes.entry(row.scope.clone()).or_default();
            stats.scope = row.scope;
            stats.count(row.state, row.duplicates, row.updated_ms);
        }
        ready(Ok(Stats { scopes: scopes.into_values().collect(), bytes: 0, wal_bytes: 0 })).boxed()
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        let mut rows = self.lock().select(|entry| {
            filter.scope.as_deref().is_none_or(|scope| scope == &*entry.scope)
                && filter.state.is_none_or(|state| state == entry.state)
        });
        rows.reverse();
        rows.sort_by_key(|row| std::cmp::Reverse(row.updated_ms));
        rows.truncate(filter.limit as usize);
        ready(Ok(rows)).boxed()
    }

    fn show(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        let key = Key::new(key);
        let mut rows = self.lock().select(|entry| entry.is(key.as_ref(), scope));
        rows.sort_by(|a, b| a.scope.cmp(&b.scope));
        ready(Ok(rows)).boxed()
    }

    fn forget(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Forgotten, LedgerError>> {
        let key = Key::new(key);
        let Memory { rows, living, .. } = &mut *self.lock();
        let mut forgotten = Forgotten::default();
        rows.retain(|_, entry| {
            if !entry.is(key.as_ref(), scope) {
                return true;
            }
            let in_flight = entry.state == State::Processing && living.contains(&entry.owner);
            if in_flight {
                forgotten.in_flight += 1;
            } else {
                forgotten.removed += 1;
            }
            in_flight
        });
        ready(Ok(forgotten)).boxed()
    }

    fn change(
        &self,
        keys: Vec<String>,
        scope: Option<&str>,
        change: Change,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<Changed>, LedgerError>> {
        let mut memory = self.lock();
        let changed = keys.iter().map(|key| memory.change(Key::new(key).as_ref(), scope, change, now));
        ready(Ok(changed.collect())).boxed()
    }
}
