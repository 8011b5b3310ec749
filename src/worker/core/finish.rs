//! What becomes of a run is recorded, and what follows once it is.

use std::time::Duration;

use tracing::{error, warn};

use crate::{
    key::Key,
    ledger::{Ending, Finish, Finished, LedgerError, Ticket},
    message::Settlement,
};

use super::{
    super::outcome::Outcome,
    BATCHES_MAX, Command, Core, GroupId, Phase, Then, Timer,
    flow::{AGAIN_MAX, AGAIN_MIN, count, growing},
};

impl Core {
    /// Row `failed`; then the delivery is held here until its next attempt.
    pub(super) fn fail_and_hold(&mut self, id: GroupId, ticket: Ticket, error: String, delay: Duration) {
        let outcome = Outcome::Retried { attempt: ticket.attempt, error: error.clone(), delay };
        let ending = Ending::Failed { error, parked: false, next_after: Some(delay) };
        self.finish(id, ticket, ending, Then::Hold(outcome, delay));
    }

    /// Takes the attempt back; then the delivery is in the line again, or returned by a drain.
    pub(super) fn release(&mut self, id: GroupId, ticket: Ticket, interrupted: bool) {
        self.finish(id, ticket, Ending::Released { interrupted }, Then::Requeue);
    }

    pub(super) fn finish(&mut self, id: GroupId, ticket: Ticket, ending: Ending, then: Then) {
        if let Some(group) = self.groups.get_mut(id) {
            group.phase = Phase::Finishing { ticket, ending, then, copies: 0 };
            self.ending.push_back(id);
        }
    }

    /// All finishes that have piled up, as one batch.
    pub(super) fn submit_finishes(&mut self) {
        if self.finishes_open >= BATCHES_MAX || self.ledger_away {
            return;
        }
        let mut groups = Vec::new();
        let mut finishes = Vec::new();
        for id in std::mem::take(&mut self.ending) {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let (Phase::Finishing { ticket, ending, copies, .. }, Some(key)) = (&mut group.phase, &group.key)
            else {
                continue;
            };
            *copies = group.receipts.len();
            finishes.push(Finish {
                scope: self.policy.scope.clone(),
                key: key.clone(),
                ticket: ticket.clone(),
                ending: ending.clone(),
                copies: count(copies.saturating_sub(1)),
                ran: group.ran,
            });
            groups.push(id);
        }
        if !groups.is_empty() {
            self.finishes_open += 1;
            self.out.push(Command::Finish(groups, finishes));
        }
    }

    pub(super) fn finished(&mut self, groups: Vec<GroupId>, results: Result<Vec<Finished>, LedgerError>) {
        self.finishes_open -= 1;
        let results = match results {
            Ok(results) => results,
            Err(failure) => {
                self.ledger_failed(failure);
                self.ending.extend(groups);
                return;
            }
        };
        self.ledger_answered();
        for (id, result) in groups.into_iter().zip(results) {
            match result {
                Finished::Recorded => self.recorded(id),
                Finished::Lost => self.lost(id),
                Finished::Refused(why) => self.finish_refused(id, &why),
            }
        }
    }

    fn recorded(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Phase::Finishing { then, copies, .. } = &group.phase else { return };
        match (then.clone(), *copies) {
            (Then::Conclude(outcome), copies) => self.conclude(id, outcome, copies),
            (Then::Requeue, _) if !self.draining => {
                if group.receipts.is_empty() {
                    self.remove(id);
                } else {
                    group.phase = Phase::Queued;
                    self.line.push_front(id);
                }
            }
            (Then::Requeue, _) => self.conclude(id, Outcome::Returned, usize::MAX),
            (Then::Hold(outcome, delay), _) => {
                outcome.log(&self.policy.queue, group.key.as_ref());
                self.counts.add(&outcome, 1);
                if self.draining {
                    self.conclude(id, Outcome::Returned, usize::MAX);
                    return;
                }
                // One copy goes on; the row is `failed`, so the others may go.
                let others = group.receipts.split_off(group.receipts.len().min(1));
                group.phase = Phase::Held;
                self.held += 1;
                self.settle_copies(others, Settlement::Ack);
                let rivals = self.groups.get_mut(id).map(|group| std::mem::take(&mut group.rivals));
                for rival in rivals.into_iter().flatten() {
                    self.admit(rival);
                }
                self.start_timer(delay, Timer::Group(id));
            }
        }
    }

    /// The claim is another's by now: what we did is not recorded, so nothing is settled. Claiming
    /// again tells what became of the key.
    fn lost(&mut self, id: GroupId) {
        self.counts.lost_claims += 1;
        let key = self.groups.get(id).and_then(|group| group.key.as_ref()).map_or("", Key::as_str);
        warn!(queue = &*self.policy.queue, key, "lost claim: another worker took this message over");
        if self.draining {
            self.conclude(id, Outcome::Returned, usize::MAX);
        } else if self.groups.get(id).is_some_and(|group| group.receipts.is_empty()) {
            self.remove(id);
        } else {
            self.enqueue(id);
        }
    }

    fn finish_refused(&mut self, id: GroupId, why: &str) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let key = group.key.as_ref().map_or("", Key::as_str);
        error!(
            queue = &*self.policy.queue,
            key, "the ledger refuses this change, the message is kept: {why}"
        );
        if self.draining {
            // Unsettled and still ours: the next worker finds it interrupted.
            self.remove(id);
            return;
        }
        group.waits = group.waits.saturating_add(1);
        let delay = growing(AGAIN_MIN, AGAIN_MAX, group.waits);
        self.start_timer(delay, Timer::Group(id));
    }
}
