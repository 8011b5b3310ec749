//! The two ways in which a worker's messages are handled.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use crate::{handler::Handler, ledger::Effects};

use super::{Policy, core::Core};

/// How messages are handled.
#[derive(Clone)]
pub enum Handling {
    /// Claim, run, finish: the effect is outside the ledger, and a crash between the end of a run
    /// and its finish repeats it.
    Claimed(Arc<dyn Handler>),
    /// All in one transaction of the ledger: exactly once.
    Transactional(Arc<dyn Effects>),
}

impl fmt::Debug for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handling::Claimed(_) => "Claimed(..)",
            Handling::Transactional(_) => "Transactional(..)",
        })
    }
}

impl Handling {
    /// Which guarantee holds and why, in one line for the log.
    pub fn guarantee(&self) -> &'static str {
        match self {
            Handling::Claimed(handler) => handler.guarantee(),
            Handling::Transactional(effects) => effects.guarantee(),
        }
    }

    /// Whether it could start now; see [`Handler::probe`].
    ///
    /// # Errors
    ///
    /// One sentence: what is missing and what to do.
    pub async fn probe(&self) -> Result<(), String> {
        match self {
            Handling::Claimed(handler) => handler.probe().await,
            Handling::Transactional(effects) => effects.probe().await,
        }
    }

    /// Ends what outlives single runs; see [`Handler::close`].
    pub async fn close(&self, at_once: bool) {
        match self {
            Handling::Claimed(handler) => handler.close(at_once).await,
            Handling::Transactional(_) => {}
        }
    }

    /// A state machine for this way. What does no waiting gets as many slots as there are deliveries.
    pub(super) fn core(&self, policy: Arc<Policy>) -> Core {
        let prefetch = usize::from(policy.prefetch);
        let (seed, now) = (fastrand::u64(..), Instant::now());
        match self {
            Handling::Claimed(handler) => {
                let slots = if handler.waits() { policy.concurrency } else { prefetch };
                Core::new(policy, slots, seed, now)
            }
            Handling::Transactional(_) => Core::new(policy, prefetch, seed, now).applying(),
        }
    }

    /// Handlers with a run of their own are told through [`crate::handler::Work::stop`].
    pub(super) fn stop(&self) {
        match self {
            Handling::Claimed(_) => {}
            Handling::Transactional(effects) => effects.stop(),
        }
    }
}
