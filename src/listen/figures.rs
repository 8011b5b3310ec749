//! What is told of the whole ledger: its numbers, and what failed last.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use futures::FutureExt;

use crate::ledger::{Filter, Inspect, LedgerError, Row, State, Stats};

use super::sparing::Sparing;

/// Between two counts of all rows.
const STATS_INTERVAL: Duration = Duration::from_secs(10);
/// Between two looks for what failed.
const FAILURES_INTERVAL: Duration = Duration::from_secs(2);
/// So many rows that failed are told.
const FAILURES_MAX: u32 = 20;

/// The ledger's numbers.
pub(super) fn stats(ledger: Arc<dyn Inspect>) -> Sparing<Stats> {
    Sparing::new(STATS_INTERVAL, move || {
        let ledger = ledger.clone();
        async move { ledger.stats().await }.boxed()
    })
}

/// Rows that are `failed` or `dead` now, the newest change first.
pub(super) fn failures(ledger: Arc<dyn Inspect>) -> Sparing<Vec<Row>> {
    Sparing::new(FAILURES_INTERVAL, move || {
        let ledger = ledger.clone();
        async move { newest_failures(&*ledger).await }.boxed()
    })
}

async fn newest_failures(ledger: &dyn Inspect) -> Result<Vec<Row>, LedgerError> {
    let mut rows = Vec::new();
    for state in [State::Failed, State::Dead] {
        rows.extend(ledger.list(Filter { scope: None, state: Some(state), limit: FAILURES_MAX }).await?);
    }
    // An attempt that was given back is no failure.
    rows.retain(|row| row.last_error.is_some() || row.state == State::Dead);
    rows.sort_by_key(|row| Reverse(row.updated_ms));
    rows.truncate(FAILURES_MAX as usize);
    Ok(rows)
}
