//! Operations of the ledger: each may fail before it is recorded, or after.

use ackonce::{
    ledger::{Claim, ClaimRequest, Finish, Finished, LedgerError},
    worker::core::{Command, Event},
};

use super::{Checked, Happening, Pid, Point, World};

/// How one operation goes.
enum Course {
    Well,
    /// Nothing of it is recorded.
    FailsBefore(LedgerError),
    /// It is recorded, and reported as failed.
    FailsAfter(LedgerError),
}

impl World {
    fn course(&mut self) -> Course {
        let away = || LedgerError::transient("database is locked");
        if self.faults.hits(Point::LedgerFatal) {
            Course::FailsBefore(LedgerError::fatal("malformed"))
        } else if self.faults.hits(Point::LedgerBefore) || self.now < self.ledger_away {
            Course::FailsBefore(away())
        } else if self.faults.hits(Point::LedgerAfter) {
            Course::FailsAfter(away())
        } else {
            Course::Well
        }
    }

    pub(super) fn operates(&mut self, pid: Pid, command: Command) -> Checked {
        if self.process(pid).is_none() {
            return Ok(());
        }
        let course = self.course();
        let failure = match &course {
            Course::Well => None,
            Course::FailsBefore(error) | Course::FailsAfter(error) => Some(error.clone()),
        };
        let recorded = !matches!(course, Course::FailsBefore(_));
        let event = match command {
            Command::Claim(groups, requests) => {
                let claims = if recorded { self.claim(pid, requests)? } else { Vec::new() };
                Event::Claimed(groups, failure.map_or(Ok(claims), Err))
            }
            Command::Apply(groups, requests) => {
                let mut answers = Vec::new();
                if recorded {
                    let wall_ms = self.wall_ms();
                    let process = self.processes[pid.worker].as_ref().ok_or("no process")?;
                    answers =
                        self.store.apply(process, requests.clone(), wall_ms).map_err(|e| e.to_string())?;
                    for (request, answer) in requests.iter().zip(&answers) {
                        self.trace
                            .note(self.now, || format!("{pid} apply {}: {answer:?}", request.claim.key));
                        self.checks.applied(process.owner.name(), request, answer, self.now)?;
                    }
                }
                Event::Applied(groups, failure.map_or(Ok(answers), Err))
            }
            Command::Finish(groups, finishes) => {
                let keys: Vec<_> = finishes.iter().map(|finish| finish.key.to_string()).collect();
                let finished = if recorded { self.finish(pid, finishes)? } else { Vec::new() };
                let lost = keys.into_iter().zip(&finished).filter(|(_, result)| **result == Finished::Lost);
                let lost = if failure.is_none() { lost.map(|(key, _)| key).collect() } else { Vec::new() };
                if let Some(process) = self.process(pid) {
                    process.lost = lost;
                }
                Event::Finished(groups, failure.map_or(Ok(finished), Err))
            }
            other => return Err(format!("{other:?} is no operation of the ledger")),
        };
        let soon = self.soon(5);
        self.note(|| format!("{pid} ledger: {}", if recorded { "recorded" } else { "failed" }));
        self.schedule(soon, Happening::Answers(pid, event));
        Ok(())
    }

    fn claim(&mut self, pid: Pid, mut requests: Vec<ClaimRequest>) -> Result<Vec<Claim>, String> {
        let Some(process) = &self.processes[pid.worker] else { return Ok(Vec::new()) };
        let owner = process.owner_name();
        let refused = self.faults.hits(Point::RowRefused).then(|| self.rng.usize(..requests.len()));
        // A claim that is ours already is answered without a change, so nothing refuses it.
        let refused = refused.filter(|place| !self.checks.is_held_by(requests[*place].key.as_str(), &owner));
        if let Some(refused) = refused {
            requests.remove(refused);
        }
        let wall_ms = self.wall_ms();
        let Some(process) = &self.processes[pid.worker] else { return Ok(Vec::new()) };
        let claims = self.store.claim(&process.owner, requests.clone(), wall_ms);
        let mut claims = claims.map_err(|error| error.to_string())?;
        for (request, claim) in requests.iter().zip(&claims) {
            self.trace
                .note(self.now, || format!("{pid} claim {} ({:?}): {claim:?}", request.key, request.origin));
            self.checks.claimed(process.owner.name(), request, claim)?;
        }
        if let Some(refused) = refused {
            claims.insert(refused, Claim::Refused("a trigger of somebody's".into()));
        }
        Ok(claims)
    }

    fn finish(&mut self, pid: Pid, mut finishes: Vec<Finish>) -> Result<Vec<Finished>, String> {
        let refused = self.faults.hits(Point::RowRefused).then(|| self.rng.usize(..finishes.len()));
        if let Some(refused) = refused {
            finishes.remove(refused);
        }
        let wall_ms = self.wall_ms();
        let Some(process) = &self.processes[pid.worker] else { return Ok(Vec::new()) };
        let finished = self.store.finish(&process.owner, finishes.clone(), wall_ms);
        let mut finished = finished.map_err(|error| error.to_string())?;
        for (finish, result) in finishes.iter().zip(&finished) {
            self.trace
                .note(self.now, || format!("{pid} finish {} {:?}: {result:?}", finish.key, finish.ending));
            self.checks.finished(process.owner.name(), finish, result, self.now)?;
        }
        if let Some(refused) = refused {
            finished.insert(refused, Finished::Refused("a trigger of somebody's".into()));
        }
        Ok(finished)
    }
}
