//! A worker: what it needs, what it can be asked, and how it ends.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    broker::{BrokerError, Outlet, Source},
    ledger::{Ledger, LedgerError},
};

use super::{core::Event, driver::Driver, handling::Handling, outcome::Counts, policy::Policy, signs::Signs};

/// One worker: a queue, a handler, and where it remembers.
pub struct Worker {
    pub policy: Arc<Policy>,
    pub handler: Handling,
    pub ledger: Arc<dyn Ledger>,
    pub source: Arc<Source>,
    /// On a connection of its own, which a memory alarm may block without blocking acks.
    pub outlet: Arc<Outlet>,
    /// How long running handlers may go on after a stop is requested.
    pub drain_timeout: Duration,
    /// Told what became of deliveries, as it changes.
    pub counts: watch::Sender<Counts>,
    /// What else it shows of itself; `None` if nobody looks, which then costs nothing.
    pub signs: Option<Arc<Signs>>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// What a worker is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Stop {
    /// Go on.
    No,
    /// Start nothing more, see what runs to its end, return the rest.
    Drain,
    /// Kill what runs and end now.
    Now,
}

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// At the first connect, where trying again cannot help.
    #[error("{0}")]
    Broker(BrokerError),
    #[error("{0}")]
    Ledger(LedgerError),
    #[error("stopped at once: {running} running handlers were killed, their messages go back to the queue")]
    StoppedAtOnce { running: usize },
}

impl Worker {
    /// Works until a stop is requested, or until nothing can help.
    ///
    /// # Errors
    ///
    /// See [`WorkerError`]. Everything that is not settled by then, the broker hands over again.
    ///
    /// # Cancellation
    ///
    /// Dropping the future kills running handlers and closes the session, as a crash would.
    pub async fn run(self, mut stop: watch::Receiver<Stop>) -> Result<Counts, WorkerError> {
        let owner = self.ledger.enroll().await.map_err(WorkerError::Ledger)?;
        let mut driver = Driver::new(self, owner);
        if let Err(why) = driver.worker.handler.probe().await {
            driver.take(Event::Probed(Err(why)));
        }
        let result = driver.turn(&mut stop).await;
        if let Some(signs) = &driver.worker.signs {
            signs.ended();
        }
        driver.close().await;
        result.map(|()| driver.counts())
    }
}
