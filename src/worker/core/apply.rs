//! The short way, for handlers that write through the ledger: claim, run and finish are one step.
//!
//! Only success is short. A failure leaves an ordinary claim behind, which goes the ordinary way:
//! retry, delay or dead letter.

use crate::{
    handler::Verdict,
    ledger::{Applied, Apply, Failure, LedgerError, Ticket},
};

use super::{
    super::{outcome::Outcome, policy::OnInterrupted},
    Command, Core, GroupId, Phase,
};

/// Messages in one transaction, at most.
pub(super) const APPLY_MAX: usize = 500;

impl Core {
    /// The conditions are those of a claim; see [`Core::submit_claims`].
    pub(super) fn submit_applies(&mut self) {
        let (groups, claims) = self.take_from_line(APPLY_MAX);
        if groups.is_empty() {
            return;
        }
        let attempts_max = self.policy.retry.max_attempts;
        let reruns = self.policy.on_interrupted == OnInterrupted::Rerun;
        let rest = |id: &GroupId| {
            let group = self.groups.get(*id)?;
            // Only asked for because an earlier claim failed: its message is the broker's again, so it does not run.
            let only_asked = group.unsure && group.receipts.is_empty();
            Some((group.message.clone(), if only_asked { 0 } else { attempts_max }))
        };
        let rests: Vec<_> = groups.iter().map(|id| rest(id).unwrap_or_default()).collect();
        let requests = claims
            .into_iter()
            .zip(rests)
            .map(|(claim, (message, attempts_max))| Apply { claim, message, attempts_max, reruns })
            .collect();
        self.claims_open += 1;
        self.out.push(Command::Apply(groups, requests));
    }

    pub(super) fn applied(&mut self, groups: Vec<GroupId>, answers: Result<Vec<Applied>, LedgerError>) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(failure) => {
                self.claimed(groups, Err(failure));
                return;
            }
        };
        self.claims_open -= 1;
        self.slots += groups.len();
        self.ledger_answered();
        let mut postponed = Vec::new();
        for (id, answer) in groups.into_iter().zip(answers) {
            match answer {
                Applied::Done(ticket) => self.handled(id, &ticket),
                Applied::Failed { ticket, failure } => self.failed(id, ticket, failure),
                Applied::Unrun(claim) => self.claim_answered(id, claim),
                Applied::Postponed => postponed.push(id),
            }
        }
        self.unclaimed(postponed);
    }

    fn handled(&mut self, id: GroupId, ticket: &Ticket) {
        if let Some(key) = self.groups.get(id).and_then(|group| group.key.clone()) {
            self.note_takeover(&key, ticket);
        }
        let copies = self.claimed_copies(id);
        self.conclude(id, Outcome::Handled { attempt: ticket.attempt }, copies);
    }

    fn failed(&mut self, id: GroupId, ticket: Ticket, failure: Failure) {
        let Some(group) = self.groups.get_mut(id) else { return };
        group.waits = 0;
        group.unsure = false;
        if failure == Failure::Stopped {
            // Rolled back: it took no effect.
            self.release(id, ticket, false);
            return;
        }
        group.phase = Phase::Running { ticket, since: self.now };
        // Given back by the verdict, as for any run.
        self.slots -= 1;
        self.ran(id, verdict(failure));
    }
}

fn verdict(failure: Failure) -> Verdict {
    match failure {
        Failure::Retry { error } => Verdict::Retry { error, after: None },
        Failure::GiveUp { error } => Verdict::GiveUp { error },
        Failure::CannotStart { error } => Verdict::CannotStart { error },
        Failure::Stopped => Verdict::Stopped,
    }
}
