//! Pruning: which rows are past their time, how many may go in one pass, and the passes themselves.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time};

use super::{Ledger, LedgerError, Millis, OVERDUE, Prune, State, unix_millis};

/// Rows in one step, between which claims and finishes get their turn.
pub const STEP_ROWS_MAX: u32 = 200;

/// Which rows a moment makes old enough, apart from whether their claim is alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    now: Millis,
    /// Finished rows go if their last change was not after this.
    finished: Millis,
    /// Unfinished ones if it was not after this.
    unfinished: Millis,
}

impl Horizon {
    pub(crate) fn new(retention_ms: i64, now: Millis) -> Self {
        let retention_ms = retention_ms.max(0);
        Self {
            now,
            finished: now.saturating_sub(retention_ms),
            unfinished: now.saturating_sub(retention_ms.saturating_mul(OVERDUE)),
        }
    }

    pub(crate) fn is_past(self, state: State, updated: Millis) -> bool {
        match state {
            State::Done | State::Dead => updated <= self.finished,
            State::Failed | State::Processing => updated <= self.unfinished,
        }
    }

    /// A row first seen after the horizon: so are all rows behind it. Not if it is from the future:
    /// that says something about a clock, and nothing about the rows behind it.
    pub(crate) fn ends_walk(self, first_seen: Millis) -> bool {
        self.finished < first_seen && first_seen <= self.now
    }
}

/// How many rows a pass may remove, so that a clock that jumps does not empty the ledger.
///
/// A pass gets `4 × interval / retention` of the rows there are. In the steady state the rows that
/// grow old within an interval are a quarter of that; and however wrong the clock, it takes at least
/// a quarter of the retention to remove all rows, for someone to notice. What is less than a row is
/// carried over to the next pass, as long as there are rows to remove.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    carry: f64,
}

impl Allowance {
    /// What the next pass may remove.
    pub fn grant(&mut self, rows: u64, interval: Duration, retention: Duration) -> u64 {
        let share = 4.0 * interval.as_secs_f64() / retention.as_secs_f64().max(f64::MIN_POSITIVE);
        let allowed = self.carry + rows as f64 * share.min(1.0);
        self.carry = allowed.fract();
        // A float becomes the nearest integer that fits.
        (allowed as u64).min(rows)
    }

    /// Nothing is left to remove: nothing is owed either.
    pub fn settle(&mut self) {
        self.carry = 0.0;
    }
}

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    pub removed: u64,
    /// Rows are left that are past the retention: the pass was not allowed more.
    pub capped: bool,
}

/// Prunes a ledger in the background.
#[derive(Debug)]
pub struct Pruner<L: ?Sized> {
    retention: Duration,
    interval: Duration,
    allowance: Allowance,
    /// Passes in a row that were not allowed to remove all.
    capped: u32,
    /// The last pass failed, and that was said.
    failing: bool,
    ledger: Arc<L>,
}

/// A pass now and then is capped by chance. So many in a row are worth a warning.
const CAPPED_PASSES_WARN: u32 = 6;

impl<L: Ledger + ?Sized> Pruner<L> {
    /// `retention` is at least a second. A pass is made every thousandth part of it, but not more
    /// often than every second, and not less often than every ten minutes.
    pub fn new(ledger: Arc<L>, retention: Duration) -> Self {
        let retention = retention.max(Duration::from_secs(1));
        let interval = (retention / 1000).clamp(Duration::from_secs(1), Duration::from_secs(600));
        Self { retention, interval, allowance: Allowance::default(), capped: 0, failing: false, ledger }
    }

    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Makes passes until `stop` turns true or its sender is gone. The first one comes after an interval: a worker
    /// that restarts all the time must not remove a share at each start.
    ///
    /// Errors are logged, once in a row: a ledger that fails is reported by those who need it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                // An error means that the sender is gone.
                _ = stop.wait_for(|stop| *stop) => return,
                () = time::sleep(self.interval) => {}
            }
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                result = self.pass(unix_millis()) => self.report(result),
            }
        }
    }

    /// Makes one pass, in small steps.
    ///
    /// # Cancellation
    ///
    /// A step that was begun may still be written; no further one is.
    pub async fn pass(&mut self, now: Millis) -> Result<Pass, LedgerError> {
        let retention_ms = Millis::try_from(self.retention.as_millis()).unwrap_or(Millis::MAX);
        let rows = self.ledger.rows().await?;
        let granted = self.allowance.grant(rows, self.interval, self.retention);
        let mut pass = Pass::default();
        let mut after_row = 0;
        loop {
            let left = granted - pass.removed;
            let rows_max = u32::try_from(left).unwrap_or(u32::MAX).min(STEP_ROWS_MAX);
            let step = self.ledger.prune(Prune { retention_ms, rows_max, after_row }, now).await?;
            pass.removed += step.removed.min(left);
            if step.complete {
                self.allowance.settle();
                return Ok(pass);
            }
            // With nothing granted, the step stood before a row that it might not remove, or at the
            // end of a long stretch of rows that stay.
            if rows_max == 0 && step.last_row == after_row {
                pass.capped = true;
                return Ok(pass);
            }
            after_row = step.last_row;
        }
    }

    fn report(&mut self, result: Result<Pass, LedgerError>) {
        let pass = match result {
            Ok(pass) => pass,
            Err(error) => {
                if !self.failing {
                    tracing::warn!(%error, "pruning the ledger failed");
                }
                self.failing = true;
                return;
            }
        };
        self.failing = false;
        if pass.removed > 0 {
            tracing::debug!(removed = pass.removed, "pruned the ledger");
        }
        self.capped = if pass.capped { self.capped.saturating_add(1) } else { 0 };
        if self.capped == CAPPED_PASSES_WARN {
            tracing::warn!(
                retention = %humantime::format_duration(self.retention),
                "far more of the ledger is past its retention than one expects: is the clock right? It is removed \
                 slowly, so that a wrong clock does not empty the ledger; `ackonce ledger prune` removes it at once",
            );
        }
    }
}

#[cfg(test)]
mod tests;
