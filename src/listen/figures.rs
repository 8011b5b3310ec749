//! Numbers over the whole ledger, read at most so often: counting all rows takes time with a large one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::ledger::{Inspect, Stats};

/// Between two reads, at least.
const INTERVAL: Duration = Duration::from_secs(10);
/// Between two reads, at least so many times as long as the last one took: at most a twentieth of the time is
/// spent on them.
const SPARING: u32 = 19;
/// A scrape waits so long for a read, and then takes the figures of the last one.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Figures {
    ledger: Arc<dyn Inspect>,
    latest: Arc<Mutex<Latest>>,
}

#[derive(Default)]
struct Latest {
    stats: Option<Arc<Stats>>,
    /// When the next read may begin; `None` for now. Far away while one is under way.
    next: Option<Instant>,
    reading: bool,
}

impl Figures {
    pub(super) fn new(ledger: Arc<dyn Inspect>) -> Self {
        Self { ledger, latest: Arc::default() }
    }

    /// The figures of the last read, after a new one if it is due. `None` if none has succeeded yet.
    pub(super) async fn fresh(&self) -> Option<Arc<Stats>> {
        if self.is_due() {
            let (ledger, latest) = (self.ledger.clone(), self.latest.clone());
            // A task: it ends whether or not somebody waits for it.
            let read = tokio::spawn(async move {
                let began = Instant::now();
                let read = ledger.stats().await;
                let pause = INTERVAL.max(began.elapsed() * SPARING);
                let mut latest = lock(&latest);
                latest.reading = false;
                latest.next = Some(Instant::now() + pause);
                match read {
                    Ok(stats) => latest.stats = Some(Arc::new(stats)),
                    Err(error) => debug!("the ledger's figures are old: {error}"),
                }
            });
            let _ = timeout(PATIENCE, read).await;
        }
        lock(&self.latest).stats.clone()
    }

    /// Only one asks at a time.
    fn is_due(&self) -> bool {
        let mut latest = lock(&self.latest);
        let due = !latest.reading && latest.next.is_none_or(|next| Instant::now() >= next);
        latest.reading |= due;
        due
    }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::ledger::memory::MemoryLedger;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ledger_is_read_once_in_an_interval_however_often_it_is_asked_for() {
        let figures = Figures::new(Arc::new(MemoryLedger::default()));
        let first = figures.fresh().await.unwrap();
        tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&first, &figures.fresh().await.unwrap()), "read too early");
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!Arc::ptr_eq(&first, &figures.fresh().await.unwrap()), "never read again");
    }
}
