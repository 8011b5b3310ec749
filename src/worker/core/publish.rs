//! Messages that go on as copies: to the dead-letter queue, or to wait in a delay queue.
//!
//! The order is always: the copy is confirmed → the ledger says so → the original is acked. A crash
//! in between leaves two deliveries of one message, which the ledger tells apart.

use std::time::Duration;

use tracing::{error, info};

use crate::{
    key::Key,
    ledger::{Ending, Ticket},
};

use super::{
    super::{decide::Reason, outcome::Outcome, policy::DeadLetter},
    Command, Core, GroupId, Letter, Phase, Purpose, Then, Timer,
    flow::{AGAIN_MAX, AGAIN_MIN, growing},
};

impl Core {
    /// Gives a message up, in the policy's way. With a ticket, its row becomes `dead`.
    pub(super) fn give_up(&mut self, id: GroupId, ticket: Option<Ticket>, reason: Reason, error: String) {
        match (self.policy.dead_letter, ticket) {
            (DeadLetter::Publish, ticket) => self.begin_publishing(id, ticket, Purpose::Dead(reason), error),
            (DeadLetter::Reject, Some(ticket)) => {
                let outcome = Outcome::Rejected { reason, error: error.clone() };
                self.finish(id, ticket, dead(reason, &error, false), Then::Conclude(outcome));
            }
            (DeadLetter::Reject, None) => self.conclude(id, Outcome::Rejected { reason, error }, usize::MAX),
        }
    }

    pub(super) fn begin_publishing(
        &mut self,
        id: GroupId,
        ticket: Option<Ticket>,
        purpose: Purpose,
        error: String,
    ) {
        if let Some(group) = self.groups.get_mut(id) {
            let since = self.now;
            group.phase = Phase::Publishing { ticket, purpose, error, pause: false, since };
            group.waits = 0;
            self.publish(id);
        }
    }

    pub(super) fn publish(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(id) else { return };
        let Phase::Publishing { ticket, purpose, error, .. } = &group.phase else { return };
        let letter = Letter {
            purpose: *purpose,
            message: group.message.clone(),
            key: group.key.clone(),
            error: error.clone(),
            attempt: ticket.as_ref().map_or(0, |ticket| ticket.attempt),
            first_seen: ticket.as_ref().map(|ticket| ticket.first_seen),
        };
        self.out.push(Command::Publish(id, letter));
    }

    pub(super) fn published(&mut self, id: GroupId, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if let Some(lasted) = self.letters.heal(self.now) {
                    let seconds = lasted.as_secs();
                    info!(queue = &*self.policy.queue, seconds, "copies can be published again");
                }
                self.confirmed(id);
            }
            Err(why) => self.not_published(id, &why),
        }
    }

    fn confirmed(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Phase::Publishing { ticket, purpose, error, .. } = &mut group.phase else { return };
        let (ticket, error) = (ticket.take(), std::mem::take(error));
        match (*purpose, ticket) {
            (Purpose::Dead(reason), Some(ticket)) => {
                let ending = dead(reason, &error, true);
                self.finish(id, ticket, ending, Then::Conclude(Outcome::DeadLettered { reason, error }));
            }
            (Purpose::Dead(reason), None) => {
                self.conclude(id, Outcome::DeadLettered { reason, error }, usize::MAX);
            }
            (Purpose::Delay(delay), Some(ticket)) => {
                let outcome = Outcome::Delayed { attempt: ticket.attempt, error: error.clone(), delay };
                let ending = Ending::Failed { error, parked: true, next_after: Some(delay) };
                self.finish(id, ticket, ending, Then::Conclude(outcome));
            }
            // Only a run fails, and a run has a ticket.
            (Purpose::Delay(_), None) => {}
        }
    }

    /// The original is still unacked, so it is tried again; a delay, only as long as it lasts.
    fn not_published(&mut self, id: GroupId, why: &str) {
        let outage = self.letters.fail(self.now, why);
        let Some(group) = self.groups.get_mut(id) else { return };
        let Phase::Publishing { ticket, purpose, error, pause, since } = &mut group.phase else { return };
        if outage.mention {
            let key = group.key.as_ref().map_or("", Key::as_str);
            error!(queue = &*self.policy.queue, key, "cannot publish a copy, the message is kept: {why}");
        }
        if self.draining {
            self.abandon(id);
            return;
        }
        group.waits = group.waits.saturating_add(1);
        let again = growing(AGAIN_MIN, AGAIN_MAX, group.waits);
        let left = match purpose {
            Purpose::Dead(_) => Duration::MAX,
            Purpose::Delay(delay) => delay.saturating_sub(self.now.duration_since(*since)),
        };
        match ticket.take() {
            Some(ticket) if left <= again => {
                let error = std::mem::take(error);
                self.fail_and_hold(id, ticket, error, left);
            }
            kept => {
                *ticket = kept;
                *pause = true;
                self.start_timer(again, Timer::Group(id));
            }
        }
    }
}

fn dead(reason: Reason, error: &str, copied: bool) -> Ending {
    Ending::Dead { error: format!("{}: {error}", reason.as_str()), copied }
}
