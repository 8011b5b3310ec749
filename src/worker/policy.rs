//! What one worker was told to do: all its tunables, with units and the relations between them.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use crate::key::KeySpec;

/// The rules one worker follows. Validated where it is built (see [`crate::config`]).
#[derive(Clone, Debug)]
pub struct Policy {
    pub queue: Arc<str>,
    /// The namespace of this worker's keys in the ledger: the queue's name unless configured.
    pub scope: Arc<str>,
    pub key: KeySpec,
    pub on_missing_key: OnMissingKey,
    pub on_mismatch: OnMismatch,
    pub on_interrupted: OnInterrupted,
    /// Handlers running at the same time, at least 1.
    pub concurrency: usize,
    /// Unacked deliveries at the same time, at least `concurrency`.
    pub prefetch: u16,
    pub retry: Retry,
    pub dead_letter: DeadLetter,
}

impl Policy {
    /// The defaults of `ackonce run`, for one queue: keys are message ids, 8 handlers at a time, 64
    /// deliveries, 5 attempts, dead letters to `<queue>.dead`.
    pub fn new(queue: &str) -> Self {
        Self {
            queue: queue.into(),
            scope: queue.into(),
            key: KeySpec::default(),
            on_missing_key: OnMissingKey::default(),
            on_mismatch: OnMismatch::default(),
            on_interrupted: OnInterrupted::default(),
            concurrency: 8,
            prefetch: 64,
            retry: Retry::default(),
            dead_letter: DeadLetter::default(),
        }
    }
}

/// What becomes of a message without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMissingKey {
    #[default]
    DeadLetter,
    /// Its key is the hash of its body.
    HashBody,
    /// It runs each time it comes, under a key made up for it.
    Process,
}

/// What becomes of a message whose key is done, but for another body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    #[default]
    DeadLetter,
    /// Bodies are not compared: it is a duplicate.
    Ack,
    /// It runs once more, under the key and its body's fingerprint.
    Process,
}

/// What becomes of a message whose handler was cut off, by a crash or at the drain deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnInterrupted {
    /// It runs again, told that it was interrupted: at least once.
    #[default]
    Rerun,
    /// It is dead-lettered: at most once.
    DeadLetter,
}

/// Where a message goes that is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadLetter {
    /// To `<queue>.dead`, by us, confirmed before the original is acked.
    #[default]
    Publish,
    /// Rejected, so that the queue's own dead-letter exchange takes it.
    Reject,
}

/// When a failed message is tried again, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all, the first included; at least 1.
    pub max_attempts: u32,
    pub initial_interval: Duration,
    /// At least 1.
    pub multiplier: f64,
    pub max_interval: Duration,
    /// A delay is drawn from `delay × (1 ± jitter)`; between 0 and 1.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_interval: Duration::from_secs(1),
            multiplier: 2.0,
            max_interval: Duration::from_secs(60),
            jitter: 0.1,
        }
    }
}
