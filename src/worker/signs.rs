//! What a worker shows of itself to whoever watches it: written as it works, read at any time.

mod hindrance;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::broker::{BrokerError, Kind};

pub use self::hindrance::{Hindrance, STUCK};

use super::{core::Core, outage::Outage};

/// A step of a message's way whose time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Claim,
    /// Claim, run and finish in one, inside the ledger.
    Apply,
    Handler,
    Finish,
}

/// See the module.
pub struct Signs {
    shown: Mutex<Shown>,
    /// `None` if nobody asks how long things take.
    took: Option<Box<dyn Fn(Step, Duration) + Send + Sync>>,
}

/// How a worker is at one moment.
#[derive(Clone, Debug)]
pub struct Shown {
    /// When its loop last turned; at least every second, if it is well. `None` before its first turn, and if no
    /// times are taken.
    pub turned: Option<Instant>,
    /// Messages that are here now, whatever they wait for.
    pub in_flight: usize,
    /// Those of them that failed and wait here for their next attempt.
    pub held: usize,
    pub draining: bool,
    /// It works no more: drained, or at its wits' end.
    pub ended: bool,
    /// `None` while it consumes.
    pub no_session: Option<Away>,
    /// Sessions that were opened.
    pub sessions: u64,
    /// Why they ended, in the order of [`Kind::ALL`].
    pub session_ends: [u64; Kind::ALL.len()],
    pub ledger: Option<Away>,
    pub handler: Option<Away>,
}

/// Something it needs is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    pub since: Instant,
    /// What is wrong, in one sentence; empty before the first attempt.
    pub why: String,
}

impl Signs {
    /// `took` is told how long each step lasted, amid the worker's own work: it must be quick.
    pub fn new(took: impl Fn(Step, Duration) + Send + Sync + 'static) -> Self {
        Self { took: Some(Box::new(took)), ..Self::untimed() }
    }

    /// No times are taken, and an idle worker does not wake up to show that it is alive.
    pub fn untimed() -> Self {
        let shown = Shown {
            turned: None,
            in_flight: 0,
            held: 0,
            draining: false,
            ended: false,
            no_session: Some(Away { since: Instant::now(), why: String::new() }),
            sessions: 0,
            session_ends: Default::default(),
            ledger: None,
            handler: None,
        };
        Self { shown: Mutex::new(shown), took: None }
    }

    /// Shows just that.
    #[cfg(test)]
    pub(crate) fn showing(shown: Shown) -> Self {
        Self { shown: Mutex::new(shown), took: None }
    }

    pub fn shown(&self) -> Shown {
        self.lock().clone()
    }

    pub(super) fn is_timed(&self) -> bool {
        self.took.is_some()
    }

    /// Once for each turn of the loop.
    pub(super) fn turned(&self, core: &Core) {
        let mut shown = self.lock();
        if self.is_timed() {
            shown.turned = Some(Instant::now());
        }
        shown.in_flight = core.in_flight();
        shown.held = core.held();
        shown.draining = core.is_draining();
        shown.ledger = away(core.ledger_outage());
        shown.handler = away(core.handler_outage());
    }

    pub(super) fn session_opened(&self) {
        let mut shown = self.lock();
        shown.sessions += 1;
        shown.no_session = None;
    }

    pub(super) fn session_ended(&self, why: &BrokerError) {
        self.lock().session_ends[why.kind() as usize] += 1;
        self.session_away(why);
    }

    /// There is none, for the reason given last.
    pub(super) fn session_away(&self, why: &BrokerError) {
        let mut shown = self.lock();
        let since = shown.no_session.as_ref().map_or_else(Instant::now, |away| away.since);
        shown.no_session = Some(Away { since, why: why.to_string() });
    }

    pub(super) fn ended(&self) {
        self.lock().ended = true;
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Signs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signs").field("shown", &self.shown).finish_non_exhaustive()
    }
}

fn away(outage: &Outage) -> Option<Away> {
    outage.current().map(|(since, why)| Away { since, why: why.to_owned() })
}

/// Takes the time of one step, if somebody wants to know it.
pub(super) struct Stopwatch(Option<(Arc<Signs>, Step, Instant)>);

impl Stopwatch {
    pub(super) fn start(signs: Option<&Arc<Signs>>, step: Step) -> Self {
        let signs = signs.filter(|signs| signs.is_timed());
        Self(signs.map(|signs| (signs.clone(), step, Instant::now())))
    }

    pub(super) fn stop(self) {
        if let Some((signs, step, started)) = self.0
            && let Some(took) = &signs.took
        {
            took(step, started.elapsed());
        }
    }

    /// Stops when that is done; a future that is dropped is not counted.
    pub(super) async fn around<T>(self, work: impl Future<Output = T>) -> T {
        let done = work.await;
        self.stop();
        done
    }
}
