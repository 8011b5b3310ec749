//! What takes time with a large ledger is read at most so often, however often it is asked for.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::ledger::LedgerError;

/// Between two reads, at least so many times as long as the last one took: at most a twentieth of the time is
/// spent on them.
const SPARING: u32 = 19;
/// Whoever asks waits so long for a read, and then takes the result of the last one.
const PATIENCE: Duration = Duration::from_secs(2);

type Read<T> = Box<dyn Fn() -> BoxFuture<'static, Result<T, LedgerError>> + Send + Sync>;

/// See the module.
pub(super) struct Sparing<T> {
    read: Read<T>,
    /// Between two reads, at least.
    interval: Duration,
    latest: Arc<Mutex<Latest<T>>>,
}

struct Latest<T> {
    value: Option<Arc<T>>,
    /// When the next read may begin; `None` for now. Far away while one is under way.
    next: Option<Instant>,
    reading: bool,
}

impl<T: Send + Sync + 'static> Sparing<T> {
    pub(super) fn new(
        interval: Duration,
        read: impl Fn() -> BoxFuture<'static, Result<T, LedgerError>> + Send + Sync + 'static,
    ) -> Self {
        let latest = Latest { value: None, next: None, reading: false };
        Self { read: Box::new(read), interval, latest: Arc::new(Mutex::new(latest)) }
    }

    /// The result of the last read, after a new one if it is due. `None` if none has succeeded yet.
    pub(super) async fn fresh(&self) -> Option<Arc<T>> {
        if self.is_due() {
            let (reading, latest, interval) = ((self.read)(), self.latest.clone(), self.interval);
            // A task: it ends whether or not somebody waits for it.
            let read = tokio::spawn(async move {
                let began = Instant::now();
                let read = reading.await;
                let pause = interval.max(began.elapsed() * SPARING);
                let mut latest = lock(&latest);
                latest.reading = false;
                latest.next = Some(Instant::now() + pause);
                match read {
                    Ok(value) => latest.value = Some(Arc::new(value)),
                    Err(error) => debug!("what is told of the ledger is old: {error}"),
                }
            });
            let _ = timeout(PATIENCE, read).await;
        }
        lock(&self.latest).value.clone()
    }

    /// Only one asks at a time.
    fn is_due(&self) -> bool {
        let mut latest = lock(&self.latest);
        let due = !latest.reading && latest.next.is_none_or(|next| Instant::now() >= next);
        latest.reading |= due;
        due
    }
}

fn lock<T>(latest: &Mutex<Latest<T>>) -> MutexGuard<'_, Latest<T>> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::ledger::{Inspect, memory::MemoryLedger};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_ledger_is_read_once_in_an_interval_however_often_it_is_asked_for() {
        let ledger = Arc::new(MemoryLedger::default());
        let figures = Sparing::new(INTERVAL, move || {
            let ledger = ledger.clone();
            Box::pin(async move { ledger.stats().await })
        });
        let first = figures.fresh().await.unwrap();
        tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&first, &figures.fresh().await.unwrap()), "read too early");
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!Arc::ptr_eq(&first, &figures.fresh().await.unwrap()), "never read again");
    }
}
