//! What comes by time: crashes, stops, outages, and clocks that jump. And the moment when all of it ends.

use std::collections::HashSet;

use ackonce::worker::core::Event;

use super::{Checked, Happening, World};
use crate::faults::Strike;

impl World {
    pub(super) fn strikes(&mut self, strike: Strike) -> Checked {
        self.note(|| format!("strike: {strike:?}"));
        let worker = self.rng.usize(..self.processes.len());
        let pid = self.processes[worker].as_ref().map(|process| process.pid);
        match strike {
            Strike::Crash => pid.into_iter().for_each(|pid| self.kill(pid)),
            Strike::SessionDrop => pid.into_iter().for_each(|pid| self.drop_session(pid)),
            Strike::LockLoss => pid.into_iter().for_each(|pid| self.lose_lock(pid)),
            Strike::Drain => return pid.map_or(Ok(()), |pid| self.feed(pid, Event::Drain)),
            Strike::LedgerAway(a_while) => self.ledger_away = self.now + a_while,
            Strike::BrokerAway(a_while) => {
                self.broker.is_up = false;
                let pids: Vec<_> = self.processes.iter().flatten().map(|process| process.pid).collect();
                pids.into_iter().for_each(|pid| self.drop_session(pid));
                self.schedule(a_while, Happening::BrokerReturns);
            }
            Strike::ClockJump(ms) => self.jumped_ms += ms,
            Strike::Prune => return self.prune(),
        }
        Ok(())
    }

    /// Some passes in a row, or all at once.
    fn prune(&mut self) -> Checked {
        let before = self.store.rows();
        let wall_ms = self.wall_ms();
        if self.rng.u32(..3) == 0 {
            self.store.prune_at_once(self.plan.retention, wall_ms);
        } else {
            (0..20).for_each(|_| self.store.prune(wall_ms));
        }
        let after: HashSet<_> = self.store.rows().into_iter().map(|row| row.message_id).collect();
        let removed: Vec<_> = before.into_iter().filter(|row| !after.contains(&row.message_id)).collect();
        if !removed.is_empty() {
            self.note(|| format!("pruned {removed:?}"));
        }
        self.checks.pruned(&removed, self.plan.retention, wall_ms)
    }

    /// No more faults. What is merely slow stays slow.
    pub(super) fn heals(&mut self) {
        self.note(|| "everything heals".to_owned());
        self.has_healed = true;
        self.faults.end();
        self.broker.is_up = true;
        self.ledger_away = self.now;
        let zombies: Vec<_> =
            self.processes.iter().flatten().filter(|process| process.is_zombie).map(|p| p.pid).collect();
        zombies.into_iter().for_each(|pid| self.kill(pid));
    }
}
