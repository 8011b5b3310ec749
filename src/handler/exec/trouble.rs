//! A command that is there and yet cannot run: what no probe sees, only a run.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The next run is let through after this, then twice as long, up to the maximum.
const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Without it, a paused worker would resume at its next probe, only to fail and pause again.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<Option<Seen>>);

#[derive(Debug)]
struct Seen {
    error: String,
    delay: Duration,
    until: Instant,
}

impl Trouble {
    /// A run could not start. Several that fail together count once.
    pub(super) fn note(&self, error: &str) {
        let now = Instant::now();
        let mut seen = self.seen();
        let delay = match &*seen {
            None => DELAY_MIN,
            Some(before) if now < before.until => return,
            Some(before) => (before.delay * 2).min(DELAY_MAX),
        };
        *seen = Some(Seen { error: error.to_owned(), delay, until: now + delay });
    }

    /// A run has started.
    pub(super) fn clear(&self) {
        *self.seen() = None;
    }

    /// # Errors
    ///
    /// Why the last run could not start, for a while.
    pub(super) fn check(&self) -> Result<(), String> {
        match &*self.seen() {
            Some(seen) if Instant::now() < seen.until => Err(seen.error.clone()),
            _ => Ok(()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn runs_are_let_through_ever_more_rarely_until_one_starts() {
        let trouble = Trouble::default();
        assert_eq!(trouble.check(), Ok(()));
        let mut delays_ms = Vec::new();
        for _ in 0..7 {
            trouble.note("no");
            trouble.note("no");
            let start = Instant::now();
            while trouble.check() == Err("no".to_owned()) {
                tokio::time::advance(DELAY_MIN).await;
            }
            delays_ms.push(start.elapsed().as_millis());
        }
        assert_eq!(delays_ms, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        trouble.clear();
        trouble.note("no");
        tokio::time::advance(DELAY_MIN).await;
        assert_eq!(trouble.check(), Ok(()));
    }
}
