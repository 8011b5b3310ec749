//! What one seed stands for: the worker's policy, the messages, and how the handler takes each.

use std::{collections::HashMap, time::Duration};

use ackonce::worker::{
    Policy,
    policy::{DeadLetter, OnInterrupted, OnMismatch, OnMissingKey, Retry},
};
use fastrand::Rng;

/// The queue, and so the scope.
pub const QUEUE: &str = "q";

/// How messages are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Claim, run, finish.
    Claimed,
    /// All in one transaction of the ledger.
    Applying,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub policy: Policy,
    pub sort: Sort,
    pub workers: usize,
    pub messages: Vec<Sent>,
    pub tempers: HashMap<String, Temper>,
    /// Of the ledger's rows.
    pub retention: Duration,
    /// Some runs take up to so long.
    pub slow: Duration,
    /// When faults end, and everything heals.
    pub heals_at: Duration,
}

/// One message as a producer sends it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Duration,
    pub key: Option<String>,
    /// No two keys have the same body, so a body says which message it is.
    pub body: String,
}

/// How the handler takes one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    Succeeds,
    /// The first runs fail, or panic; the next one succeeds.
    FailsFirst(u32),
    Fails,
    /// The first runs fail, the next one gives up, and so does every other.
    GivesUpAfter(u32),
    /// The first runs cannot start.
    CannotStart(u32),
    /// The first runs kill their process.
    Kills(u32),
}

/// What one run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Succeed,
    Fail,
    GiveUp,
    CannotStart,
    Kill,
}

impl Temper {
    /// What the run after so many others does.
    pub fn deed(self, runs: u32) -> Deed {
        match self {
            Temper::FailsFirst(n) if runs < n => Deed::Fail,
            Temper::CannotStart(n) if runs < n => Deed::CannotStart,
            Temper::Kills(n) if runs < n => Deed::Kill,
            Temper::Succeeds | Temper::FailsFirst(_) | Temper::CannotStart(_) | Temper::Kills(_) => {
                Deed::Succeed
            }
            Temper::Fails => Deed::Fail,
            Temper::GivesUpAfter(n) if runs < n => Deed::Fail,
            Temper::GivesUpAfter(_) => Deed::GiveUp,
        }
    }

    fn random(rng: &mut Rng, sort: Sort) -> Self {
        match rng.u32(..20) {
            0..8 => Temper::Succeeds,
            8..12 => Temper::FailsFirst(rng.u32(1..5)),
            12..14 => Temper::Fails,
            14..16 => Temper::GivesUpAfter(rng.u32(..3)),
            16..18 => Temper::CannotStart(rng.u32(1..3)),
            // What runs inside the ledger's transaction is SQL, which kills no process.
            _ if sort == Sort::Applying => Temper::Succeeds,
            _ => Temper::Kills(*rng.choice([1, 2, 1000].iter()).unwrap_or(&1)),
        }
    }
}

impl Plan {
    pub fn random(rng: &mut Rng) -> Self {
        let sort = if rng.u32(..3) == 0 { Sort::Applying } else { Sort::Claimed };
        let heals_at = Duration::from_secs(rng.u64(5..90));
        let (mut messages, mut tempers) = (Vec::new(), HashMap::new());
        for key in 0..rng.u32(1..14) {
            let name = (rng.u32(..12) > 0).then(|| format!("k{key}"));
            let bodies = if rng.u32(..6) == 0 { 2 } else { 1 };
            for body in 0..bodies {
                let body = format!("{}/{body}", name.clone().unwrap_or_else(|| format!("none{key}")));
                let temper = match Temper::random(rng, sort) {
                    // Under a key that is made up for each delivery, nobody counts its crashes.
                    Temper::Kills(_) if name.is_none() => Temper::Kills(1),
                    temper => temper,
                };
                tempers.insert(body.clone(), temper);
                for _ in 0..copies(rng) {
                    let at = heals_at.mul_f64(rng.f64());
                    messages.push(Sent { at, key: name.clone(), body: body.clone() });
                }
            }
        }
        messages.sort_by_key(|sent| sent.at);
        Self {
            policy: policy(rng),
            sort,
            workers: rng.usize(1..4),
            messages,
            tempers,
            retention: Duration::from_secs(rng.u64(60..100_000)),
            slow: Duration::from_secs(rng.u64(1..40)),
            heals_at,
        }
    }
}

fn copies(rng: &mut Rng) -> u32 {
    if rng.bool() { 1 } else { rng.u32(2..6) }
}

fn policy(rng: &mut Rng) -> Policy {
    let concurrency = rng.usize(1..5);
    let prefetch = concurrency as u16 + rng.u16(..12);
    let initial_interval = Duration::from_millis(rng.u64(20..8000));
    Policy {
        concurrency,
        prefetch,
        on_missing_key: *pick(
            rng,
            &[OnMissingKey::DeadLetter, OnMissingKey::HashBody, OnMissingKey::Process],
        ),
        on_mismatch: *pick(rng, &[OnMismatch::DeadLetter, OnMismatch::Ack, OnMismatch::Process]),
        on_interrupted: *pick(rng, &[OnInterrupted::Rerun, OnInterrupted::Rerun, OnInterrupted::DeadLetter]),
        dead_letter: *pick(rng, &[DeadLetter::Publish, DeadLetter::Publish, DeadLetter::Reject]),
        retry: Retry {
            max_attempts: rng.u32(1..6),
            initial_interval,
            multiplier: 1.0 + rng.f64() * 2.0,
            max_interval: initial_interval * rng.u32(1..8),
            jitter: 0.1,
        },
        ..Policy::new(QUEUE)
    }
}

fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}
