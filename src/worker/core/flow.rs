//! A group's way from the line to the end of its run.

use std::time::Duration;

use tracing::{error, info};

use crate::{
    handler::Verdict,
    key::Key,
    ledger::{Claim, ClaimRequest, Ending, LedgerError, Ticket},
};

use super::{
    super::{
        decide::{AfterClaim, AfterRun, after_claim, after_run, waits_here},
        outcome::Outcome,
        policy::OnMismatch,
    },
    Arrival, Command, Core, Group, GroupId, Phase, Purpose, Run, Then, Timer,
};

/// How long to wait before asking again for a claim that another process holds.
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);
/// How long to wait before a refused row or a failed publish is tried again.
pub(super) const AGAIN_MIN: Duration = Duration::from_millis(500);
pub(super) const AGAIN_MAX: Duration = Duration::from_secs(30);

impl Core {
    /// Claims for the slots that are free: a few batches at a time, so that batches grow by themselves.
    pub(super) fn submit_claims(&mut self) {
        if !self.has_use_for_deliveries() || self.ledger_away || self.handler.is_on() {
            return;
        }
        if self.applies {
            self.submit_applies();
            return;
        }
        let (groups, requests) = self.take_from_line(usize::MAX);
        if !groups.is_empty() {
            self.claims_open += 1;
            self.out.push(Command::Claim(groups, requests));
        }
    }

    /// The next groups in the line, one for each free slot, and what is asked for them.
    pub(super) fn take_from_line(&mut self, max: usize) -> (Vec<GroupId>, Vec<ClaimRequest>) {
        let mut groups = Vec::new();
        let mut requests = Vec::new();
        while self.slots > 0 && groups.len() < max {
            let Some(id) = self.line.pop_front() else { break };
            let Some(group) = self.groups.get_mut(id) else { continue };
            let (Phase::Queued, Some(key)) = (&group.phase, &group.key) else { continue };
            let copies = group.receipts.len();
            let fingerprint = (self.policy.on_mismatch != OnMismatch::Ack).then_some(group.fingerprint);
            requests.push(ClaimRequest {
                scope: self.policy.scope.clone(),
                key: key.clone(),
                fingerprint,
                origin: group.origin,
                copies: count(copies.max(1)),
            });
            group.phase = Phase::Claiming { copies };
            group.ran = None;
            groups.push(id);
            self.slots -= 1;
        }
        (groups, requests)
    }

    pub(super) fn claimed(&mut self, groups: Vec<GroupId>, claims: Result<Vec<Claim>, LedgerError>) {
        self.claims_open -= 1;
        self.slots += groups.len();
        let claims = match claims {
            Ok(claims) => claims,
            Err(failure) => {
                self.ledger_failed(failure);
                for id in &groups {
                    if let Some(group) = self.groups.get_mut(*id) {
                        group.unsure = true;
                    }
                }
                self.unclaimed(groups);
                return;
            }
        };
        self.ledger_answered();
        for (id, claim) in groups.into_iter().zip(claims) {
            self.claim_answered(id, claim);
        }
    }

    pub(super) fn claim_answered(&mut self, id: GroupId, claim: Claim) {
        let Some(claim) = self.know(id, claim) else { return };
        match after_claim(claim, &self.policy) {
            // What runs inside the claim's transaction has not, and does not afterwards.
            AfterClaim::Run(ticket) if self.draining || self.applies => self.release(id, ticket, false),
            AfterClaim::Run(ticket) => self.run(id, ticket),
            AfterClaim::Duplicate => {
                let copies = self.claimed_copies(id);
                self.conclude(id, Outcome::Duplicate, copies);
            }
            AfterClaim::DeadLetter { ticket: Some(ticket), .. } if self.draining => {
                self.release(id, ticket, false);
            }
            AfterClaim::Wait | AfterClaim::Rekey | AfterClaim::DeadLetter { .. } | AfterClaim::Refused(_)
                if self.draining =>
            {
                self.conclude(id, Outcome::Returned, usize::MAX);
            }
            AfterClaim::Wait => self.wait(id, Phase::Waiting, POLL_MIN, POLL_MAX),
            AfterClaim::Rekey => self.rekey(id),
            AfterClaim::DeadLetter { ticket, reason, error } => self.give_up(id, ticket, reason, error),
            AfterClaim::Refused(why) => {
                let key = self.groups.get(id).and_then(|group| group.key.as_ref()).map_or("", Key::as_str);
                error!(
                    queue = &*self.policy.queue,
                    key, "the ledger refuses this row, the message is kept: {why}"
                );
                self.wait(id, Phase::Held, AGAIN_MIN, AGAIN_MAX);
            }
        }
    }

    /// An answer ends all doubt. A claim that was asked for only because of that doubt is given back: its
    /// message is the broker's again.
    fn know(&mut self, id: GroupId, claim: Claim) -> Option<Claim> {
        let Some(group) = self.groups.get_mut(id) else { return Some(claim) };
        let only_asked = std::mem::take(&mut group.unsure) && group.receipts.is_empty();
        match claim {
            Claim::Claimed(ticket) if only_asked => {
                self.release(id, ticket, false);
                None
            }
            claim => Some(claim),
        }
    }

    /// A batch of claims did not come to pass: in front of the line again, in order.
    pub(super) fn unclaimed(&mut self, groups: Vec<GroupId>) {
        for id in groups.into_iter().rev() {
            if self.draining {
                self.conclude(id, Outcome::Returned, usize::MAX);
                continue;
            }
            let Some(group) = self.groups.get_mut(id) else { continue };
            if group.receipts.is_empty() && !group.unsure {
                self.remove(id);
            } else {
                group.phase = Phase::Queued;
                self.line.push_front(id);
            }
        }
    }

    pub(super) fn claimed_copies(&self, id: GroupId) -> usize {
        match self.groups.get(id).map(|group| &group.phase) {
            Some(Phase::Claiming { copies }) => *copies,
            _ => 0,
        }
    }

    fn run(&mut self, id: GroupId, ticket: Ticket) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(key) = group.key.clone() else { return };
        group.waits = 0;
        let message = group.message.clone();
        self.note_takeover(&key, &ticket);
        let run = Run { message, key, attempt: ticket.attempt, interrupted: ticket.interrupted };
        if let Some(group) = self.groups.get_mut(id) {
            group.phase = Phase::Running { ticket, since: self.now };
        }
        self.slots -= 1;
        self.out.push(Command::Run(id, run));
    }

    pub(super) fn note_takeover(&mut self, key: &Key, ticket: &Ticket) {
        if ticket.interrupted {
            self.counts.takeovers += 1;
            info!(
                queue = &*self.policy.queue,
                key = key.as_str(),
                attempt = ticket.attempt,
                "runs again: the attempt before was cut off"
            );
        }
    }

    pub(super) fn ran(&mut self, id: GroupId, verdict: Verdict) {
        self.slots += 1;
        let Some(group) = self.groups.get_mut(id) else { return };
        let Phase::Running { ticket, since } = &group.phase else { return };
        group.ran = Some(self.now.duration_since(*since));
        let ticket = ticket.clone();
        let chance = self.random.f64();
        match after_run(verdict, ticket.attempt, &self.policy.retry, chance) {
            AfterRun::Done => {
                let outcome = Outcome::Handled { attempt: ticket.attempt };
                self.finish(id, ticket, Ending::Done, Then::Conclude(outcome));
            }
            AfterRun::Retry { error, delay } => {
                if !self.draining && waits_here(delay, self.held, usize::from(self.policy.prefetch)) {
                    self.fail_and_hold(id, ticket, error, delay);
                } else {
                    self.begin_publishing(id, Some(ticket), Purpose::Delay(delay), error);
                }
            }
            AfterRun::DeadLetter { reason, error } => self.give_up(id, Some(ticket), reason, error),
            AfterRun::Pause { error } => {
                if !self.handler.is_on() {
                    self.pause(&error);
                }
                self.release(id, ticket, false);
            }
            // It had begun, and may have taken effect before it was stopped.
            AfterRun::Stopped => self.release(id, ticket, true),
        }
    }

    /// The message runs under its key and fingerprint instead.
    fn rekey(&mut self, id: GroupId) {
        if let Some(group) = self.remove(id)
            && let Some(key) = group.key
        {
            let key = key.with_fingerprint(group.fingerprint);
            let Group { fingerprint, message, receipts, origin, .. } = group;
            if !receipts.is_empty() {
                self.admit(Arrival { key, fingerprint, message, origin, receipts });
            }
        }
    }

    /// Enters a waiting phase, each time for longer.
    fn wait(&mut self, id: GroupId, phase: Phase, min: Duration, max: Duration) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.receipts.is_empty() {
            self.remove(id);
            return;
        }
        self.held += usize::from(matches!(phase, Phase::Held));
        group.phase = phase;
        group.waits = group.waits.saturating_add(1);
        let delay = growing(min, max, group.waits);
        self.start_timer(delay, Timer::Group(id));
    }
}

/// `min`, doubled with each wait, at most `max`.
pub(super) fn growing(min: Duration, max: Duration, waits: u32) -> Duration {
    min.saturating_mul(1 << waits.saturating_sub(1).min(16)).min(max)
}

/// As the ledger counts.
pub(super) fn count(copies: usize) -> u32 {
    u32::try_from(copies).unwrap_or(u32::MAX)
}
