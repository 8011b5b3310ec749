//! What must hold at each step, seen from outside: by what the ledger answered, what handlers did, and
//! what lies at the broker.
//!
//! It keeps books of its own and believes nobody: a ledger or a state machine that errs disagrees with them.

mod end;
mod letters;
mod rows;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use ackonce::{
    ledger::{Applied, Apply, Claim, ClaimRequest, Ending, Finish, Finished},
    message::Settlement,
    worker::{
        Policy,
        core::{Letter, Run},
        policy::{DeadLetter, OnInterrupted, OnMismatch},
    },
};

use crate::{
    broker::{Broker, Class, Unacked},
    plan::Sort,
    process::{Pid, Process},
};
use rows::Row;

/// `Err` is one sentence: what was promised and did not hold.
pub type Checked = Result<(), String>;

#[derive(Debug)]
pub struct Invariants {
    policy: Policy,
    sort: Sort,
    rows: BTreeMap<String, Row>,
    living: HashSet<Arc<str>>,
    /// Bodies, and keys, that were ever done.
    done: HashSet<String>,
    done_keys: HashSet<String>,
    /// Bodies that a handler gave up.
    gave_up: HashSet<String>,
    /// Copies that the broker has: whose, of which attempt.
    delayed: HashSet<(String, u32)>,
    buried: HashSet<(String, u32)>,
    /// When each process acked one of its kind last.
    last_ack: HashMap<(Pid, Class), Duration>,
    /// When each key was recorded as dead last.
    last_dead: HashMap<String, Duration>,
    pub tally: Tally,
}

/// What happened in one run, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub runs: u64,
    pub successes: u64,
    /// Successes whose finish was never recorded: the promise's one window.
    pub windows: u64,
    pub takeovers: u64,
    pub acks: u64,
    pub dead: u64,
    pub lost_claims: u64,
    pub pruned: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.successes += other.successes;
        self.windows += other.windows;
        self.takeovers += other.takeovers;
        self.acks += other.acks;
        self.dead += other.dead;
        self.lost_claims += other.lost_claims;
        self.pruned += other.pruned;
    }
}

impl Invariants {
    pub fn new(policy: &Policy, sort: Sort) -> Self {
        Self {
            policy: policy.clone(),
            sort,
            rows: BTreeMap::new(),
            living: HashSet::new(),
            done: HashSet::new(),
            done_keys: HashSet::new(),
            gave_up: HashSet::new(),
            delayed: HashSet::new(),
            buried: HashSet::new(),
            last_ack: HashMap::new(),
            last_dead: HashMap::new(),
            tally: Tally::default(),
        }
    }

    pub fn born(&mut self, owner: Arc<str>) {
        self.living.insert(owner);
    }

    pub fn died(&mut self, owner: &str) {
        self.living.remove(owner);
    }

    pub fn is_held_by(&self, key: &str, owner: &str) -> bool {
        self.rows.get(key).is_some_and(|row| row.is_held_by(owner))
    }

    fn row(&mut self, key: &str) -> &mut Row {
        self.rows.entry(key.to_owned()).or_default()
    }

    /// The ledger has answered a claim, whether or not the answer arrives.
    pub fn claimed(&mut self, owner: &str, request: &ClaimRequest, claim: &Claim) -> Checked {
        let Self { rows, living, tally, .. } = self;
        let row = rows.entry(request.key.as_str().to_owned()).or_default();
        tally.takeovers += u64::from(matches!(claim, Claim::Claimed(ticket) if ticket.interrupted));
        row.claimed(owner, request.fingerprint, claim, living)
            .map_err(|why| format!("{}: {why}", request.key))
    }

    /// The ledger has recorded a finish, or not.
    pub fn finished(&mut self, owner: &str, finish: &Finish, finished: &Finished, now: Duration) -> Checked {
        let (key, attempt) = (finish.key.as_str(), finish.ticket.attempt);
        let of_this_attempt = (key.to_owned(), attempt);
        let copy_is_there = match &finish.ending {
            Ending::Failed { parked: true, .. } => self.delayed.contains(&of_this_attempt),
            Ending::Dead { copied: true, .. } => self.buried.contains(&of_this_attempt),
            Ending::Failed { .. } | Ending::Dead { .. } | Ending::Done | Ending::Released { .. } => true,
        };
        if !copy_is_there {
            return Err(format!("{key}: the ledger was told of a copy that the broker never confirmed"));
        }
        self.tally.lost_claims += u64::from(*finished == Finished::Lost);
        if matches!(finish.ending, Ending::Dead { .. }) && *finished == Finished::Recorded {
            self.last_dead.insert(key.to_owned(), now);
        }
        let ended = self.row(key).finished(owner, attempt, &finish.ending, finished);
        if let Some(body) = ended.map_err(|why| format!("{key}: {why}"))? {
            self.done.insert(body);
            self.done_keys.insert(key.to_owned());
        }
        Ok(())
    }

    /// The ledger has claimed, run and finished in one transaction.
    pub fn applied(&mut self, owner: &str, request: &Apply, applied: &Applied, now: Duration) -> Checked {
        let (claim, ended) = match applied {
            Applied::Postponed => return Ok(()),
            Applied::Unrun(claim) => (claim.clone(), false),
            Applied::Failed { ticket, .. } => (Claim::Claimed(ticket.clone()), false),
            Applied::Done(ticket) => (Claim::Claimed(ticket.clone()), true),
        };
        self.claimed(owner, &request.claim, &claim)?;
        if let Applied::Failed { failure: ackonce::ledger::Failure::GiveUp { .. }, .. } = applied {
            self.gave_up(&request.message.body);
        }
        let Claim::Claimed(ticket) = claim else { return Ok(()) };
        if !ended {
            return Ok(());
        }
        self.tally.runs += 1;
        let (key, attempt) = (request.claim.key.clone(), ticket.attempt);
        self.succeeded(owner, key.as_str(), attempt, &request.message.body);
        let (scope, ending) = (request.claim.scope.clone(), Ending::Done);
        let finish = Finish { scope, key, ticket, ending, copies: 0, ran: None };
        self.finished(owner, &finish, &Finished::Recorded, now)
    }

    /// A handler starts.
    pub fn started(&mut self, process: &Process, run: &Run, others: &[&Process]) -> Checked {
        self.tally.runs += 1;
        let (key, policy) = (run.key.as_str(), &self.policy);
        if run.attempt > policy.retry.max_attempts {
            return Err(format!("{key}: attempt {} of at most {}", run.attempt, policy.retry.max_attempts));
        }
        if run.interrupted && policy.on_interrupted == OnInterrupted::DeadLetter {
            return Err(format!("{key}: runs after it was interrupted, against the policy"));
        }
        if process.runs.len() >= policy.concurrency {
            return Err(format!("{key}: {} handlers run already", process.runs.len()));
        }
        let elsewhere = |other: &&&Process| {
            !other.is_zombie
                && !process.is_zombie
                && other.runs.values().any(|running| running.key == run.key)
        };
        if let Some(other) = others.iter().find(elsewhere) {
            return Err(format!("{key}: runs in {} at the same time", other.pid));
        }
        if process.is_zombie {
            // It may have been taken over before it heard of its claim.
            return Ok(());
        }
        let owner = process.owner.name();
        self.row(key).started(owner, run).map_err(|why| format!("{key}: {why}"))
    }

    /// A handler has taken effect.
    pub fn succeeded(&mut self, owner: &str, key: &str, attempt: u32, body: &[u8]) {
        self.tally.successes += 1;
        self.row(key).succeeded(owner, attempt, body);
    }

    pub fn gave_up(&mut self, body: &[u8]) {
        self.gave_up.insert(String::from_utf8_lossy(body).into_owned());
    }

    /// A process holds no more than it may.
    pub fn holds(&self, process: &Process) -> Checked {
        let (here, may) = (process.core.in_flight(), usize::from(self.policy.prefetch) + process.carried);
        if here > may {
            Err(format!("{} holds {here} messages of at most {may}", process.pid))
        } else {
            Ok(())
        }
    }

    /// The broker has settled a delivery; `broker` is as it is afterwards.
    pub fn settled(
        &mut self,
        broker: &Broker,
        unacked: &Unacked,
        settlement: Settlement,
        draining: bool,
        now: Duration,
    ) -> Checked {
        let class = unacked.stored.class();
        match settlement {
            Settlement::Ack => {
                self.tally.acks += 1;
                let checked = self.acked(broker, unacked, &class);
                self.last_ack.insert((unacked.holder, class), now);
                checked
            }
            Settlement::Reject if self.policy.dead_letter != DeadLetter::Reject => {
                Err(format!("{class:?} was rejected, against the policy"))
            }
            Settlement::Return if !draining => {
                Err(format!("{class:?} was returned by a worker that does not stop"))
            }
            Settlement::Reject | Settlement::Return => Ok(()),
        }
    }

    /// Acked: so it is done, or goes on as a confirmed copy, or was a copy of what goes on.
    fn acked(&self, broker: &Broker, unacked: &Unacked, class: &Class) -> Checked {
        if self.is_done(class) {
            return Ok(());
        }
        let of_its_kind = |other: &Class| self.is_same(class, other);
        if !broker.stored().any(|stored| of_its_kind(&stored.class())) {
            return Err(format!("{class:?} was acked, and is neither done nor anywhere else"));
        }
        let message = &unacked.stored.message;
        if message.redelivered || message.properties.header("x-ackonce-retry").is_some() {
            return Ok(());
        }
        // Nothing may be concluded against a fresh delivery: only what went on while it was here.
        let went_on = broker.stored().any(|stored| {
            of_its_kind(&stored.class())
                && (stored.uid() == unacked.stored.uid() || stored.at >= unacked.since)
        });
        let together = broker
            .unacked()
            .any(|other| other.holder == unacked.holder && of_its_kind(&other.stored.class()))
            || self.last_ack.iter().any(|((holder, other), at)| {
                *holder == unacked.holder && of_its_kind(other) && *at >= unacked.since
            });
        // A copy that comes before the ledger knows of a dead letter shares it.
        let buried = class.key.as_ref().and_then(|key| self.last_dead.get(key));
        let shared = buried.is_some_and(|at| *at >= unacked.since);
        if went_on || together || shared {
            Ok(())
        } else {
            Err(format!("a fresh delivery of {class:?} was swallowed"))
        }
    }

    fn is_done(&self, class: &Class) -> bool {
        let by_key = self.policy.on_mismatch == OnMismatch::Ack;
        self.done.contains(&class.body)
            || (by_key && class.key.as_ref().is_some_and(|key| self.done_keys.contains(key)))
    }

    fn is_same(&self, one: &Class, other: &Class) -> bool {
        let by_key = self.policy.on_mismatch == OnMismatch::Ack && one.key.is_some();
        if by_key { one.key == other.key } else { one == other }
    }

    /// The broker has taken a copy.
    pub fn copied(&mut self, letter: &Letter, process: Option<&Process>) -> Checked {
        self.letter(letter, process)
    }
}
