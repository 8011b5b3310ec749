//! One run: the clock, the broker, the ledger and all processes, and what happens next.
//!
//! Time is a number: nothing waits. What happens is taken from a heap in the order of its time, and each
//! step may put more into it. One seed decides everything, so a run can be had again.

mod broker_side;
mod carry_out;
mod ledger_side;
mod life;
mod strikes;

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    time::Duration,
};

use ackonce::{
    message::{Delivery, Receipt, SessionId, Settlement},
    worker::core::{Command, Event, GroupId, Letter},
};
use fastrand::Rng;
use tokio::time::Instant;

use crate::{
    broker::Broker,
    faults::{Faults, Point, Strike},
    invariants::{Checked, Invariants, Tally},
    plan::{Deed, Plan, Sort, Temper},
    process::{Pid, Process},
    store::{Handlers, Kind, Store},
    trace::Trace,
};

/// The wall clock when a run begins, in milliseconds.
const WALL_START: i64 = 1_800_000_000_000;
/// After everything has healed, everything must be settled within this.
const SETTLED_WITHIN: Duration = Duration::from_secs(4 * 3600);
/// A run that takes more steps goes round in circles.
const STEPS_MAX: u64 = 400_000;

/// What happens at some moment.
#[derive(Debug)]
enum Happening {
    /// The producer's next message, by its place.
    Sent(usize),
    /// The broker looks for somebody to deliver to.
    Deliver,
    /// A waiting copy's time may have come.
    Released,
    Arrives(Pid, SessionId, Vec<Delivery>),
    Opens(Pid),
    /// The broker's side of a session ends.
    Closes(SessionId),
    /// The process's side of a session ends.
    Notices(Pid, SessionId),
    Settles(Pid, Vec<(Receipt, Settlement)>, bool),
    /// A ledger operation's turn has come.
    Operates(Pid, Command),
    /// The answer to something arrives.
    Answers(Pid, Event),
    /// A run's effect happens now.
    Takes(Pid, GroupId, Deed),
    /// A copy arrives at the broker; whether the process will know.
    Copied(Pid, GroupId, Box<Letter>, bool),
    Wakes(Pid),
    Overdue(Pid),
    Ends(Pid),
    Starts(usize),
    Strikes(Strike),
    BrokerReturns,
    Heals,
}

#[derive(Debug)]
struct Scheduled {
    at: Duration,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub struct World {
    plan: Plan,
    faults: Faults,
    was_calm: bool,
    rng: Rng,
    base: Instant,
    now: Duration,
    /// What the wall clock is ahead by.
    jumped_ms: i64,
    heap: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    broker: Broker,
    delivers: bool,
    store: Store,
    handlers: Handlers,
    ledger_away: Duration,
    processes: Vec<Option<Process>>,
    starts: u32,
    has_healed: bool,
    checks: Invariants,
    trace: Trace,
}

impl World {
    pub fn new(plan: Plan, mut faults: Faults, kind: Kind, seed: u64, trace: Trace) -> Self {
        // The jitter of backoffs comes from the thread's generator.
        fastrand::seed(seed);
        let handlers = Handlers::new(plan.tempers.clone());
        let strikes = faults.strikes(plan.heals_at);
        let mut world = Self {
            was_calm: faults.is_calm()
                && !plan.tempers.values().any(|temper| matches!(temper, Temper::Kills(_))),
            rng: Rng::with_seed(seed ^ 0x5eed),
            base: Instant::now(),
            now: Duration::ZERO,
            jumped_ms: 0,
            heap: BinaryHeap::new(),
            order: 0,
            broker: Broker::new(plan.policy.prefetch),
            delivers: false,
            store: Store::new(kind, handlers.clone(), plan.retention),
            handlers,
            ledger_away: Duration::ZERO,
            processes: (0..plan.workers).map(|_| None).collect(),
            starts: 0,
            has_healed: false,
            checks: Invariants::new(&plan.policy, plan.sort),
            trace,
            faults,
            plan,
        };
        for place in 0..world.plan.messages.len() {
            world.schedule_at(world.plan.messages[place].at, Happening::Sent(place));
        }
        for worker in 0..world.plan.workers {
            world.schedule_at(Duration::ZERO, Happening::Starts(worker));
        }
        for (at, strike) in strikes {
            world.schedule_at(at, Happening::Strikes(strike));
        }
        world.schedule_at(world.plan.heals_at, Happening::Heals);
        world
    }

    /// Until everything is settled. The figures, or the promise that did not hold; and what happened.
    pub fn run(mut self) -> (Result<Tally, String>, Faults, Trace) {
        let result = self.go_on().and_then(|()| self.end());
        (result.map(|()| self.checks.tally), self.faults, self.trace)
    }

    fn go_on(&mut self) -> Checked {
        for _ in 0..STEPS_MAX {
            if self.has_healed && self.is_settled() {
                return Ok(());
            }
            let Some(Reverse(Scheduled { at, what, .. })) = self.heap.pop() else {
                return Err(format!("nothing happens any more, and {}", self.left()));
            };
            if at > self.plan.heals_at + SETTLED_WITHIN {
                return Err(format!("long after everything has healed, {}", self.left()));
            }
            self.now = at;
            self.happens(what)?;
        }
        Err(format!("after {STEPS_MAX} steps, {}", self.left()))
    }

    fn is_settled(&self) -> bool {
        self.broker.pending() == (0, 0, 0)
            && self.processes.iter().flatten().all(|process| process.core.in_flight() == 0)
    }

    fn left(&self) -> String {
        let (ready, unacked, delayed) = self.broker.pending();
        let here: Vec<_> = self
            .processes
            .iter()
            .flatten()
            .map(|process| format!("{} has {}", process.pid, process.core.in_flight()))
            .collect();
        format!("there are {ready} ready, {unacked} unacked and {delayed} waiting messages; {here:?}")
    }

    fn end(&mut self) -> Checked {
        let rows = self.store.rows();
        self.checks.end(&self.broker, &self.plan, &rows, self.was_calm)?;
        match self.store.effects_by_key() {
            Some(effects) if self.plan.sort == Sort::Applying => self.checks.effects(&effects),
            _ => Ok(()),
        }
    }

    fn schedule(&mut self, after: Duration, what: Happening) {
        self.schedule_at(self.now + after, what);
    }

    fn schedule_at(&mut self, at: Duration, what: Happening) {
        self.order += 1;
        self.heap.push(Reverse(Scheduled { at, order: self.order, what }));
    }

    /// Up to so many milliseconds.
    fn soon(&mut self, ms_max: u64) -> Duration {
        Duration::from_micros(self.rng.u64(..ms_max * 1000))
    }

    fn instant(&self) -> Instant {
        self.base + self.now
    }

    fn wall_ms(&self) -> i64 {
        WALL_START + i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX) + self.jumped_ms
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.note(self.now, line);
    }

    fn process(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes[pid.worker].as_mut().filter(|process| process.pid == pid)
    }

    fn happens(&mut self, what: Happening) -> Checked {
        if let Some(pid) = what.of_process()
            && self.process(pid).is_some()
        {
            self.chances(pid);
        }
        match what {
            Happening::Sent(place) => self.sent(place),
            Happening::Deliver => self.deliver(),
            Happening::Released => {
                self.broker.release(self.now);
                self.deliver_soon();
            }
            Happening::Arrives(pid, session, deliveries) => return self.arrives(pid, session, deliveries),
            Happening::Opens(pid) => return self.opens(pid),
            Happening::Closes(session) => self.closes(session),
            Happening::Notices(pid, session) => return self.notices(pid, session),
            Happening::Settles(pid, settlements, draining) => {
                return self.settles(pid, settlements, draining);
            }
            Happening::Operates(pid, command) => return self.operates(pid, command),
            Happening::Answers(pid, event) => return self.feed(pid, event),
            Happening::Takes(pid, group, deed) => self.takes(pid, group, deed),
            Happening::Copied(pid, group, letter, told) => return self.copied(pid, group, *letter, told),
            Happening::Wakes(pid) => return self.feed(pid, Event::Wake),
            Happening::Overdue(pid) => self.overdue(pid),
            Happening::Ends(pid) => self.kill(pid),
            Happening::Starts(worker) => self.starts(worker),
            Happening::Strikes(strike) => return self.strikes(strike),
            Happening::BrokerReturns => self.broker.is_up = true,
            Happening::Heals => self.heals(),
        }
        Ok(())
    }
}

impl Happening {
    fn of_process(&self) -> Option<Pid> {
        match self {
            Happening::Arrives(pid, ..)
            | Happening::Opens(pid)
            | Happening::Notices(pid, _)
            | Happening::Settles(pid, ..)
            | Happening::Operates(pid, _)
            | Happening::Answers(pid, _)
            | Happening::Takes(pid, ..)
            | Happening::Copied(pid, ..)
            | Happening::Wakes(pid)
            | Happening::Overdue(pid) => Some(*pid),
            Happening::Sent(_)
            | Happening::Deliver
            | Happening::Released
            | Happening::Closes(_)
            | Happening::Ends(_)
            | Happening::Starts(_)
            | Happening::Strikes(_)
            | Happening::BrokerReturns
            | Happening::Heals => None,
        }
    }
}
