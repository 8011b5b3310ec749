//! One key's books: who holds it, what its attempts did, and what the ledger must answer.

use std::{collections::HashSet, sync::Arc};

use ackonce::{
    key::Fingerprint,
    ledger::{Claim, Ending, Finished},
    worker::core::Run,
};

use super::Checked;

#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Owner and attempt.
    holder: Option<(String, u32)>,
    /// What ended last: a finish that is repeated is recorded again.
    ended: Option<(String, u32, Ending)>,
    attempts: u32,
    is_done: bool,
    fingerprint: Option<Fingerprint>,
    /// A run took effect, and that is not recorded: the next claim must be told.
    untold: Option<(String, u32)>,
    successes: Vec<Success>,
    pub windows: u64,
}

#[derive(Clone, Debug)]
struct Success {
    owner: String,
    attempt: u32,
    body: String,
    is_recorded: bool,
}

impl Row {
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub fn is_held_by(&self, owner: &str) -> bool {
        self.holder.as_ref().is_some_and(|(holder, _)| holder == owner)
    }

    pub fn is_held_by_the_living(&self, living: &HashSet<Arc<str>>) -> bool {
        self.holder.as_ref().is_some_and(|(owner, _)| living.contains(owner.as_str()))
    }

    pub fn claimed(
        &mut self,
        owner: &str,
        fingerprint: Option<Fingerprint>,
        claim: &Claim,
        living: &HashSet<Arc<str>>,
    ) -> Checked {
        let another_body = matches!((self.fingerprint, fingerprint), (Some(a), Some(b)) if a != b);
        let ticket = match claim {
            Claim::Claimed(ticket) => ticket,
            Claim::Duplicate if !self.is_done => return Err("a duplicate of what is not done".into()),
            Claim::Duplicate if another_body => return Err("a duplicate under another body".into()),
            Claim::Mismatch if !self.is_done || !another_body => return Err("no mismatch".into()),
            Claim::InFlight { owner: holder } if !living.contains(holder) => {
                return Err(format!("held by {holder}, which is dead"));
            }
            Claim::InFlight { owner: holder }
                if self.holder.as_ref().is_none_or(|(h, _)| **h != **holder) =>
            {
                return Err(format!("held by {holder}, which did not claim it"));
            }
            Claim::Superseded if self.is_done || self.holder.is_some() => {
                return Err("superseded, while it is done or held".into());
            }
            Claim::Duplicate
            | Claim::Mismatch
            | Claim::InFlight { .. }
            | Claim::Superseded
            | Claim::Refused(_) => return Ok(()),
        };
        if self.is_done {
            return Err("claimed, although it is done".into());
        }
        if self.holder.as_ref().is_some_and(|(holder, _)| holder == owner) {
            // The reply to an earlier claim was lost. The body of the latest one counts.
            self.fingerprint = fingerprint;
            return if ticket.attempt == self.attempts { Ok(()) } else { Err("another attempt".into()) };
        }
        if self.is_held_by_the_living(living) {
            return Err(format!("claimed by {owner}, while {:?} holds it and lives", self.holder));
        }
        let taken_over = self.holder.is_some();
        if ticket.attempt != self.attempts + 1 {
            return Err(format!("attempt {} after {}", ticket.attempt, self.attempts));
        }
        if (taken_over || self.untold.is_some()) && !ticket.interrupted {
            return Err(format!("{:?} was cut off, and attempt {} is not told", self.untold, ticket.attempt));
        }
        self.windows += u64::from(self.untold.take().is_some());
        self.holder = Some((owner.to_owned(), ticket.attempt));
        self.attempts = ticket.attempt;
        self.fingerprint = fingerprint;
        Ok(())
    }

    pub fn started(&self, owner: &str, run: &Run) -> Checked {
        let holder = Some((owner.to_owned(), run.attempt));
        if self.is_done {
            Err("runs, although it is done".into())
        } else if self.holder != holder {
            Err(format!("runs as {holder:?}, while it is held as {:?}", self.holder))
        } else {
            Ok(())
        }
    }

    pub fn succeeded(&mut self, owner: &str, attempt: u32, body: &[u8]) {
        let body = String::from_utf8_lossy(body).into_owned();
        self.successes.push(Success { owner: owner.to_owned(), attempt, body, is_recorded: false });
        if self.is_of(owner, attempt) {
            self.untold = Some((owner.to_owned(), attempt));
        } else {
            // Of one that lost its lock: somebody else has it, or even finished it.
            self.windows += 1;
        }
    }

    fn is_of(&self, owner: &str, attempt: u32) -> bool {
        self.holder.as_ref().is_some_and(|(holder, held)| holder == owner && *held == attempt)
    }

    /// The body that is done now.
    pub fn finished(
        &mut self,
        owner: &str,
        attempt: u32,
        ending: &Ending,
        finished: &Finished,
    ) -> Result<Option<String>, String> {
        let (is_of, said) = (self.is_of(owner, attempt), (owner.to_owned(), attempt, ending.clone()));
        match finished {
            Finished::Refused(_) => return Ok(None),
            Finished::Lost if is_of => return Err("a finish was lost although the claim stands".into()),
            Finished::Lost => return Ok(None),
            Finished::Recorded if !is_of => {
                let repeated = self.ended.as_ref() == Some(&said) && self.holder.is_none();
                return if repeated { Ok(None) } else { Err(format!("{owner} is stale, and finished it")) };
            }
            Finished::Recorded => {}
        }
        self.holder = None;
        self.ended = Some(said);
        match ending {
            Ending::Done => {
                let made = |success: &&mut Success| success.owner == owner && success.attempt == attempt;
                let Some(success) = self.successes.iter_mut().find(made) else {
                    return Err("done, although no run succeeded".into());
                };
                success.is_recorded = true;
                self.is_done = true;
                self.untold = None;
                return Ok(Some(success.body.clone()));
            }
            Ending::Failed { .. } | Ending::Dead { .. } if self.untold.is_some() => {
                return Err("a success became a failure".into());
            }
            Ending::Failed { .. } => {}
            Ending::Dead { .. } => self.attempts = 0,
            Ending::Released { interrupted } => {
                self.attempts -= 1;
                if self.untold.is_some() && !interrupted {
                    return Err("released as if it had not taken effect".into());
                }
            }
        }
        Ok(None)
    }

    /// How often it took effect must be explained: once recorded, and once for each window.
    pub fn count(&self) -> Checked {
        let recorded = self.successes.iter().filter(|success| success.is_recorded).count() as u64;
        let open = u64::from(self.untold.is_some());
        if recorded != u64::from(self.is_done) {
            return Err(format!("done {recorded} times"));
        }
        if self.successes.len() as u64 != recorded + self.windows + open {
            return Err(format!(
                "took effect {} times, recorded {recorded}, cut off {}",
                self.successes.len(),
                self.windows
            ));
        }
        Ok(())
    }

    pub fn is_untold(&self) -> bool {
        self.untold.is_some()
    }
}
