//! A requested stop: what has not started goes back, what runs is seen to its end.

use crate::ledger::Ending;

use crate::message::Receipt;

use super::{super::outcome::Outcome, Core, GroupId, Phase, Then};

impl Core {
    pub(super) fn drain(&mut self) {
        self.draining = true;
        let mut ids: Vec<GroupId> = self.groups.keys().collect();
        // In the order of their arrival, so that the same events have the same commands.
        // (Ids do not tell: a slot is used again.)
        let tag = |id: &GroupId| self.groups.get(*id)?.receipts.first().map(Receipt::tag);
        ids.sort_by_key(tag);
        for id in ids {
            match self.groups.get(id).map(|group| &group.phase) {
                Some(Phase::Queued | Phase::Waiting | Phase::Held) => {
                    self.conclude(id, Outcome::Returned, usize::MAX);
                }
                Some(Phase::Publishing { pause: true, .. }) => self.abandon(id),
                Some(
                    Phase::Claiming { .. }
                    | Phase::Running { .. }
                    | Phase::Publishing { .. }
                    | Phase::Finishing { .. },
                )
                | None => {}
            }
        }
        self.line.clear();
    }

    /// A dead letter that cannot be published now, while draining: the delivery goes back, and its
    /// used-up attempt stays counted, so that the next worker dead-letters it without a run.
    pub(super) fn abandon(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Phase::Publishing { ticket, error, .. } = &mut group.phase else { return };
        let error = std::mem::take(error);
        match ticket.take() {
            Some(ticket) => self.finish(
                id,
                ticket,
                Ending::Failed { error, parked: false, next_after: None },
                Then::Requeue,
            ),
            None => self.conclude(id, Outcome::Returned, usize::MAX),
        }
    }
}
