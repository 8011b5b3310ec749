//! The worker's state machine, without any I/O: events go in, commands come out.
//!
//! Deliveries of one key form a group, and a group is in exactly one `Phase`. So copies share one
//! run, and two runs of one key can not even be expressed. The driver (see [`super::run`]) carries
//! commands out and feeds back what came of them; nothing here waits, so the same code runs under a
//! simulated broker and clock.

mod apply;
mod drain;
mod finish;
mod flow;
mod group;
mod intake;
mod publish;
mod words;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use slotmap::SlotMap;
use tokio::time::Instant;
use tracing::{error, info};

use crate::{
    key::Key,
    ledger::LedgerError,
    message::{Receipt, Settlement},
};

use super::{outage::Outage, outcome::Counts, policy::Policy};
use group::{Arrival, Group, Phase, Then};
pub use words::{Command, Event, Letter, Purpose, Run};

/// Batches of claims (and of finishes) under way, at most: while one is written the next one already waits, so
/// that neither the ledger nor the worker waits for the other.
const BATCHES_MAX: usize = 2;

slotmap::new_key_type! {
    /// Names a group; never used twice.
    pub struct GroupId;
}

/// See the module.
#[derive(Debug)]
pub struct Core {
    policy: Arc<Policy>,
    groups: SlotMap<GroupId, Group>,
    by_key: HashMap<Key, GroupId>,
    /// Groups in [`Phase::Queued`], in order. Ids of groups that are gone are skipped.
    line: VecDeque<GroupId>,
    /// Groups in [`Phase::Finishing`] whose finish is to be submitted.
    ending: VecDeque<GroupId>,
    timers: BTreeMap<(Instant, u64), Timer>,
    next_timer: u64,
    /// Handlers that may still start.
    slots: usize,
    /// Claims are made together with their runs.
    applies: bool,
    /// Batches under way: of claims (or of claims with their runs), and of finishes.
    claims_open: usize,
    finishes_open: usize,
    ledger: Outage,
    ledger_away: bool,
    handler: Outage,
    letters: Outage,
    /// Groups in [`Phase::Held`].
    held: usize,
    draining: bool,
    counts: Counts,
    random: fastrand::Rng,
    now: Instant,
    out: Vec<Command>,
    settled: Vec<(Receipt, Settlement)>,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Group(GroupId),
    Ledger,
    Probe,
}

impl Core {
    /// `slots` handlers may run at once. `seed` makes the jitter repeatable.
    pub fn new(policy: Arc<Policy>, slots: usize, seed: u64, now: Instant) -> Self {
        Self {
            policy,
            groups: SlotMap::with_key(),
            by_key: HashMap::new(),
            line: VecDeque::new(),
            ending: VecDeque::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            slots,
            applies: false,
            claims_open: 0,
            finishes_open: 0,
            ledger: Outage::new(Duration::from_millis(100), Duration::from_secs(5)),
            ledger_away: false,
            handler: Outage::new(Duration::from_millis(500), Duration::from_secs(10)),
            letters: Outage::new(Duration::from_millis(500), Duration::from_secs(30)),
            held: 0,
            draining: false,
            counts: Counts::default(),
            random: fastrand::Rng::with_seed(seed),
            now,
            out: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// For a handler that runs inside the ledger's transaction: [`Command::Apply`] takes the place
    /// of [`Command::Claim`] and [`Command::Run`].
    pub fn applying(mut self) -> Self {
        self.applies = true;
        self
    }

    /// Takes one event in, at the time `now`; what follows is in [`Core::submit`].
    pub fn handle(&mut self, event: Event, now: Instant) {
        self.now = now;
        match event {
            Event::SessionOpened(_) => {}
            Event::SessionEnded => self.session_ended(),
            Event::Delivered(deliveries) => self.delivered(deliveries),
            Event::Claimed(groups, claims) => self.claimed(groups, claims),
            Event::Applied(groups, answers) => self.applied(groups, answers),
            Event::Ran(group, verdict) => self.ran(group, verdict),
            Event::Finished(groups, results) => self.finished(groups, results),
            Event::Published(group, result) => self.published(group, result),
            Event::Probed(result) => self.probed(result),
            Event::Drain => self.drain(),
            Event::Wake => self.wake(),
        }
    }

    /// Everything to be done now. Called after a burst of events, so that claims, finishes and
    /// acks of the whole burst go out as one batch each.
    pub fn submit(&mut self) -> Vec<Command> {
        self.submit_claims();
        self.submit_finishes();
        if !self.settled.is_empty() {
            let settled = std::mem::take(&mut self.settled);
            self.out.push(Command::Settle(settled));
        }
        std::mem::take(&mut self.out)
    }

    /// When to send [`Event::Wake`], if nothing else happens.
    pub fn next_wake(&self) -> Option<Instant> {
        self.timers.keys().next().map(|(at, _)| *at)
    }

    /// A drain is complete: nothing is here any more.
    pub fn is_drained(&self) -> bool {
        self.draining && self.groups.is_empty() && self.claims_open == 0 && self.finishes_open == 0
    }

    /// Whether further deliveries could be of use now. While batches of claims are under way they could only
    /// wait here, and taking them in one by one would wake the worker for each.
    pub fn has_use_for_deliveries(&self) -> bool {
        self.claims_open < self.claims_open_max()
    }

    fn claims_open_max(&self) -> usize {
        if self.applies { 1 } else { BATCHES_MAX }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Deliveries and runs that are here now.
    pub fn in_flight(&self) -> usize {
        self.groups.len()
    }

    /// Failed messages that wait here for their next attempt, unacked.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether the ledger could not be read or written when it was last asked.
    pub fn ledger_outage(&self) -> &Outage {
        &self.ledger
    }

    /// Whether the handler cannot start.
    pub fn handler_outage(&self) -> &Outage {
        &self.handler
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    fn start_timer(&mut self, after: Duration, timer: Timer) {
        self.next_timer += 1;
        self.timers.insert((self.now + after, self.next_timer), timer);
    }

    fn wake(&mut self) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            match entry.remove() {
                Timer::Group(id) => self.group_due(id),
                Timer::Ledger => self.ledger_away = false,
                Timer::Probe => self.out.push(Command::Probe),
            }
        }
    }

    /// A group's own timer: what it waited for is tried again.
    fn group_due(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        match &mut group.phase {
            Phase::Waiting => self.enqueue(id),
            Phase::Held => self.readmit(id),
            Phase::Publishing { pause, .. } => {
                *pause = false;
                self.publish(id);
            }
            Phase::Finishing { .. } => self.ending.push_back(id),
            Phase::Queued | Phase::Claiming { .. } | Phase::Running { .. } => {}
        }
    }

    /// The ledger failed: nothing is submitted until it may have healed, or ever again.
    fn ledger_failed(&mut self, failure: LedgerError) {
        let known = std::mem::replace(&mut self.ledger_away, true);
        if !failure.is_transient() {
            self.out.push(Command::Fail(failure));
            return;
        }
        if known {
            return;
        }
        let outage = self.ledger.fail(self.now, &failure);
        if outage.mention {
            error!(queue = &*self.policy.queue, "paused, nothing is acked meanwhile: {failure}");
        }
        self.start_timer(outage.delay, Timer::Ledger);
    }

    fn ledger_answered(&mut self) {
        if let Some(lasted) = self.ledger.heal(self.now) {
            info!(queue = &*self.policy.queue, seconds = lasted.as_secs(), "the ledger answers again");
        }
    }

    fn probed(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if let Some(lasted) = self.handler.heal(self.now) {
                    info!(
                        queue = &*self.policy.queue,
                        seconds = lasted.as_secs(),
                        "the handler can start again"
                    );
                }
            }
            Err(why) => self.pause(&why),
        }
    }

    /// The handler cannot start: no claims until a probe succeeds.
    fn pause(&mut self, why: &str) {
        let outage = self.handler.fail(self.now, why);
        if outage.mention {
            error!(queue = &*self.policy.queue, "paused, no attempt is used: {why}");
        }
        self.start_timer(outage.delay, Timer::Probe);
    }
}

#[cfg(test)]
mod tests;
