//! A process: events into its state machine, and what it wants done.

use std::time::Duration;

use ackonce::{
    handler::Verdict,
    message::{Receipt, Settlement},
    worker::core::{Command, Event, GroupId, Run},
};

use super::{Checked, Happening, Pid, World};
use crate::plan::Deed;

impl World {
    pub(super) fn feed(&mut self, pid: Pid, event: Event) -> Checked {
        let now = self.instant();
        if matches!(event, Event::Drain) {
            self.drains(pid);
        }
        let Some(process) = self.process(pid) else { return Ok(()) };
        if let Event::Ran(group, _) = &event {
            process.runs.remove(group);
        }
        let answered = matches!(event, Event::Finished(..));
        let lost = if answered { std::mem::take(&mut process.lost) } else { Vec::new() };
        process.core.handle(event, now);
        self.carry_out(pid, &lost)
    }

    /// Until nothing is left, as the worker's driver does. Claims that have just been `lost` settle nothing.
    fn carry_out(&mut self, pid: Pid, lost: &[String]) -> Checked {
        loop {
            let Some(process) = self.process(pid) else { return Ok(()) };
            let commands = process.core.submit();
            if commands.is_empty() {
                break;
            }
            for command in commands {
                if let Command::Settle(settlements) = &command {
                    self.settles_nothing_lost(settlements, lost)?;
                }
                self.command(pid, command)?;
            }
        }
        let base = self.base;
        let Some(process) = self.process(pid) else { return Ok(()) };
        let (wake, is_drained) = (process.core.next_wake(), process.core.is_drained());
        if is_drained {
            let soon = self.soon(10) + Duration::from_millis(10);
            self.schedule(soon, Happening::Ends(pid));
        } else if let Some(wake) = wake {
            self.schedule_at((wake - base).max(self.now), Happening::Wakes(pid));
        }
        match &self.processes[pid.worker] {
            Some(process) => self.checks.holds(process),
            None => Ok(()),
        }
    }

    fn settles_nothing_lost(&self, settlements: &[(Receipt, Settlement)], lost: &[String]) -> Checked {
        for (receipt, settlement) in settlements.iter().filter(|(_, s)| *s != Settlement::Return) {
            let key = self.broker.find(receipt).and_then(|unacked| unacked.stored.class().key);
            if let Some(key) = key.filter(|key| lost.contains(key)) {
                return Err(format!("{key}: its claim is lost, and {settlement:?} settles a delivery of it"));
            }
        }
        Ok(())
    }

    fn command(&mut self, pid: Pid, command: Command) -> Checked {
        let soon = self.soon(10);
        match command {
            Command::Claim(..) | Command::Apply(..) | Command::Finish(..) => {
                self.schedule(soon, Happening::Operates(pid, command));
            }
            Command::Run(group, run) => return self.run_one(pid, group, run),
            Command::Settle(settlements) => {
                let Some(process) = self.process(pid) else { return Ok(()) };
                let session = process.session;
                let draining = process.is_draining;
                if let Some((stale, _)) = settlements.iter().find(|(r, _)| Some(r.session()) != session) {
                    return Err(format!("{pid} settles {stale:?}, which is of another session"));
                }
                self.schedule(soon, Happening::Settles(pid, settlements, draining));
            }
            Command::Publish(group, letter) => self.publish(pid, group, Box::new(letter)),
            Command::Probe => {
                let away = !self.has_healed && self.rng.u32(..3) == 0;
                let answer = if away { Err("still away".to_owned()) } else { Ok(()) };
                self.schedule(soon, Happening::Answers(pid, Event::Probed(answer)));
            }
            Command::Fail(_) => self.kill(pid),
        }
        Ok(())
    }

    fn run_one(&mut self, pid: Pid, group: GroupId, run: Run) -> Checked {
        let deed = self.handlers.next(&run.message.body);
        self.note(|| {
            let told = if run.interrupted { ", interrupted" } else { "" };
            format!("{pid} runs {} (attempt {}{told}): will {deed:?}", run.key, run.attempt)
        });
        let others: Vec<_> = self.processes.iter().flatten().filter(|process| process.pid != pid).collect();
        if let Some(process) = &self.processes[pid.worker] {
            self.checks.started(process, &run, &others)?;
        }
        let takes = match self.rng.u32(..10) {
            0 => self.plan.slow.mul_f64(self.rng.f64()),
            1..4 => Duration::ZERO,
            _ => self.soon(200),
        };
        if let Some(process) = self.process(pid) {
            process.runs.insert(group, run);
        }
        self.schedule(takes, Happening::Takes(pid, group, deed));
        Ok(())
    }

    /// A run comes to its end, and its verdict is on its way.
    pub(super) fn takes(&mut self, pid: Pid, group: GroupId, deed: Deed) {
        let Some(process) = self.process(pid) else { return };
        // It was stopped before.
        let Some(run) = process.runs.get(&group) else { return };
        let (key, attempt, body) = (run.key.clone(), run.attempt, run.message.body.clone());
        let owner = process.owner_name();
        let verdict = match deed {
            Deed::Succeed => Verdict::Done,
            Deed::Fail => Verdict::Retry { error: "failed".into(), after: None },
            Deed::GiveUp => Verdict::GiveUp { error: "hopeless".into() },
            Deed::CannotStart => Verdict::CannotStart { error: "away".into() },
            Deed::Kill => {
                self.kill(pid);
                return;
            }
        };
        match deed {
            Deed::Succeed => self.checks.succeeded(&owner, key.as_str(), attempt, &body),
            Deed::GiveUp => self.checks.gave_up(&body),
            Deed::Fail | Deed::CannotStart | Deed::Kill => {}
        }
        self.note(|| format!("{pid} took effect: {key} {deed:?}"));
        let soon = self.soon(3);
        self.schedule(soon, Happening::Answers(pid, Event::Ran(group, verdict)));
    }

    /// A requested stop.
    fn drains(&mut self, pid: Pid) {
        let within = self.soon(20_000);
        let Some(process) = self.process(pid).filter(|process| !process.is_draining) else { return };
        process.is_draining = true;
        let session = process.session;
        self.note(|| format!("{pid} drains"));
        if let Some(session) = session {
            self.broker.cancel(session);
        }
        self.schedule(within, Happening::Overdue(pid));
    }

    /// The drain deadline: runs end as stopped, and may have taken effect by then.
    pub(super) fn overdue(&mut self, pid: Pid) {
        let Some(process) = self.process(pid) else { return };
        process.is_stopping = true;
        let owner = process.owner_name();
        let runs: Vec<_> = process.runs.iter().map(|(group, run)| (*group, run.clone_parts())).collect();
        self.note(|| format!("{pid} is overdue"));
        for (group, (key, attempt, body)) in runs {
            // One that does not stop in time is cut off with its process.
            if self.rng.u32(..4) == 0 {
                continue;
            }
            if self.rng.bool() {
                self.checks.succeeded(&owner, &key, attempt, &body);
            }
            let soon = self.soon(3);
            if let Some(process) = self.process(pid) {
                process.runs.remove(&group);
            }
            self.schedule(soon, Happening::Answers(pid, Event::Ran(group, Verdict::Stopped)));
        }
        self.schedule(Duration::from_secs(8), Happening::Ends(pid));
    }
}

trait Parts {
    fn clone_parts(&self) -> (String, u32, Vec<u8>);
}

impl Parts for Run {
    fn clone_parts(&self) -> (String, u32, Vec<u8>) {
        (self.key.to_string(), self.attempt, self.message.body.clone())
    }
}
