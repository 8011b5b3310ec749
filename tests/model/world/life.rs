//! How processes begin and end.

use std::time::Duration;

use ackonce::worker::core::{Core, Event};

use super::{Happening, Pid, Point, Process, Sort, World};

impl World {
    /// What may befall a process at any moment.
    pub(super) fn chances(&mut self, pid: Pid) {
        if self.faults.hits(Point::Crash) {
            self.kill(pid);
        }
        if self.faults.hits(Point::SessionLost) {
            self.drop_session(pid);
        }
        if self.faults.hits(Point::LockLost) {
            self.lose_lock(pid);
        }
        if self.faults.hits(Point::Drain) {
            let soon = Duration::from_nanos(1);
            self.schedule(soon, Happening::Answers(pid, Event::Drain));
        }
    }

    pub(super) fn starts(&mut self, worker: usize) {
        self.starts += 1;
        let pid = Pid { worker, start: self.starts };
        let mut policy = self.plan.policy.clone();
        policy.queue = format!("q{worker}").into();
        let (slots, seed) = match self.plan.sort {
            Sort::Claimed => (policy.concurrency, self.rng.u64(..)),
            Sort::Applying => (policy.prefetch.into(), self.rng.u64(..)),
        };
        let core = Core::new(policy.into(), slots, seed, self.instant());
        let core = if self.plan.sort == Sort::Applying { core.applying() } else { core };
        let process = Process::new(pid, core, self.store.enroll(), self.store.effects());
        self.checks.born(process.owner_name());
        self.processes[worker] = Some(process);
        self.note(|| format!("{pid} starts"));
        let soon = self.soon(50);
        self.schedule(soon, Happening::Opens(pid));
    }

    /// Gone at once: its lock, its runs, and whatever it had not sent yet.
    pub(super) fn kill(&mut self, pid: Pid) {
        if self.process(pid).is_none() {
            return;
        }
        let Some(process) = self.processes[pid.worker].take() else { return };
        self.note(|| {
            format!("{pid} ends, running {:?}", process.runs.values().map(|r| &r.key).collect::<Vec<_>>())
        });
        self.checks.died(process.owner.name());
        if let Some(session) = process.session {
            let soon = self.soon(30);
            self.schedule(soon, Happening::Closes(session));
        }
        let soon = self.soon(3000);
        self.schedule(soon, Happening::Starts(pid.worker));
    }

    /// Others take it for dead; it goes on for a while.
    pub(super) fn lose_lock(&mut self, pid: Pid) {
        let a_while = self.soon(10_000);
        let Some(process) = self.process(pid) else { return };
        let owner = process.owner_name();
        process.lose_lock();
        self.checks.died(&owner);
        self.note(|| format!("{pid} loses its lock"));
        self.schedule(a_while, Happening::Ends(pid));
    }
}
