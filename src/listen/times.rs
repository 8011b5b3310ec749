//! How long things took: histograms that the workers and the ledger add to as they work.

use std::time::Duration;

use prometheus_client::metrics::{family::Family, histogram::Histogram};

use crate::worker::signs::Step;

/// Upper bounds, in seconds. A handler may be anything from a function to a command that runs for minutes.
const HANDLER_BOUNDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// A commit takes what an fsync takes, and an ill one as long as the ledger waits for other programs (5 s).
const LEDGER_BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const MESSAGES_BOUNDS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0];

type ByQueue = Family<Vec<(&'static str, String)>, Histogram, fn() -> Histogram>;

/// The steps of all workers, by their queues.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) claim: ByQueue,
    pub(super) apply: ByQueue,
    pub(super) handler: ByQueue,
    pub(super) finish: ByQueue,
}

impl Default for Times {
    fn default() -> Self {
        let ledger = || ByQueue::new_with_constructor(|| Histogram::new(LEDGER_BOUNDS));
        let handler = ByQueue::new_with_constructor(|| Histogram::new(HANDLER_BOUNDS));
        Self { claim: ledger(), apply: ledger(), handler, finish: ledger() }
    }
}

impl Times {
    /// Those of one worker.
    pub(super) fn of(&self, queue: &str) -> StepTimes {
        let one = |times: &ByQueue| times.get_or_create(&vec![("queue", queue.to_owned())]).clone();
        StepTimes {
            claim: one(&self.claim),
            apply: one(&self.apply),
            handler: one(&self.handler),
            finish: one(&self.finish),
        }
    }
}

/// How long each step of a worker took.
#[derive(Clone, Debug)]
pub(super) struct StepTimes {
    claim: Histogram,
    apply: Histogram,
    handler: Histogram,
    finish: Histogram,
}

impl StepTimes {
    pub(super) fn add(&self, step: Step, took: Duration) {
        let histogram = match step {
            Step::Claim => &self.claim,
            Step::Apply => &self.apply,
            Step::Handler => &self.handler,
            Step::Finish => &self.finish,
        };
        histogram.observe(took.as_secs_f64());
    }
}

/// What the ledger's commits took, and how much was in them.
#[derive(Clone, Debug)]
pub struct Commits {
    pub(super) took: Histogram,
    pub(super) messages: Histogram,
}

impl Default for Commits {
    fn default() -> Self {
        Self { took: Histogram::new(LEDGER_BOUNDS), messages: Histogram::new(MESSAGES_BOUNDS) }
    }
}

impl Commits {
    /// One commit of so many claims and finishes.
    pub fn add(&self, messages: usize, took: Duration) {
        self.took.observe(took.as_secs_f64());
        self.messages.observe(messages as f64);
    }
}
