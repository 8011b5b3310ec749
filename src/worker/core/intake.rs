//! Deliveries in: their keys, and the group each belongs to.

use tracing::warn;
use uuid::Uuid;

use crate::{
    key::{self, Fingerprint, Key, MissingKey},
    ledger::{Ending, Origin},
    message::{Delivery, Message, Receipt, Settlement},
};

use super::{
    super::{
        decide::Reason,
        letter,
        outcome::Outcome,
        policy::{OnMismatch, OnMissingKey},
    },
    Arrival, Core, Group, GroupId, Phase, Purpose,
};

impl Core {
    pub(super) fn delivered(&mut self, deliveries: Vec<Delivery>) {
        for Delivery { mut message, receipt } in deliveries {
            let made_up = letter::made_up_key(&message);
            let origin = letter::restore(&mut message);
            let fingerprint = Fingerprint::of(&message.body);
            match self.key_of(&message, made_up) {
                Ok(key) => {
                    self.admit(Arrival { key, fingerprint, message, origin, receipts: vec![receipt] });
                }
                Err(_) if self.draining => self.settle_all(vec![receipt], Settlement::Return),
                Err(MissingKey(error)) => {
                    warn!(queue = &*self.policy.queue, "a message has no key: {error}");
                    let phase = Phase::Claiming { copies: 1 };
                    let (receipts, rivals) = (vec![receipt], Vec::new());
                    let id = self.add(Group {
                        key: None,
                        fingerprint,
                        message,
                        receipts,
                        origin,
                        rivals,
                        phase,
                        waits: 0,
                        ran: None,
                        unsure: false,
                    });
                    self.give_up(id, None, Reason::MissingKey, error);
                }
            }
        }
    }

    /// The message's own key, or the one that the policy makes up for it, unless that was done before.
    fn key_of(&mut self, message: &Message, before: Option<Key>) -> Result<Key, MissingKey> {
        let missing = match self.policy.key.extract(message) {
            Ok(key) => return Ok(key),
            Err(missing) => missing,
        };
        self.counts.missing_key += 1;
        let made_up = match self.policy.on_missing_key {
            OnMissingKey::DeadLetter => None,
            OnMissingKey::HashBody => Key::new(&key::body_key(&message.body)),
            OnMissingKey::Process => {
                before.or_else(|| Key::new(&format!("{}{}", letter::MADE_UP, Uuid::now_v7())))
            }
        };
        made_up.ok_or(missing)
    }

    /// Adds an arrival to the group it belongs to, or makes it a group of its own.
    pub(super) fn admit(&mut self, arrival: Arrival) {
        if self.draining {
            self.settle_all(arrival.receipts, Settlement::Return);
            return;
        }
        if let Some(group) = self.by_key.get(&arrival.key).and_then(|id| self.groups.get_mut(*id)) {
            let same = self.policy.on_mismatch == OnMismatch::Ack || group.fingerprint == arrival.fingerprint;
            if same && matches!(arrival.origin, Origin::Sequel(_)) && group.goes_on_as_a_copy() {
                // It may be that very copy, which is then all that is left of the message: it is not settled
                // with the original, but has its turn when the ledger knows of it.
                group.rivals.push(arrival);
                return;
            }
            if same {
                group.receipts.extend(arrival.receipts);
                group.origin = group.origin.max(arrival.origin);
                return;
            }
            if !matches!(group.phase, Phase::Held) {
                group.rivals.push(arrival);
                return;
            }
            // Nothing has succeeded under this key yet, so the new body has its chance now; the
            // held group is admitted anew when its time comes.
        }
        let id = self.add(Group {
            key: Some(arrival.key.clone()),
            fingerprint: arrival.fingerprint,
            message: arrival.message,
            receipts: arrival.receipts,
            origin: arrival.origin,
            rivals: Vec::new(),
            phase: Phase::Queued,
            waits: 0,
            ran: None,
            unsure: false,
        });
        self.by_key.insert(arrival.key, id);
        self.line.push_back(id);
    }

    pub(super) fn add(&mut self, group: Group) -> GroupId {
        self.groups.insert(group)
    }

    /// Takes a group out; its rivals have their turn.
    pub(super) fn remove(&mut self, id: GroupId) -> Option<Group> {
        let mut group = self.groups.remove(id)?;
        if matches!(group.phase, Phase::Held) {
            self.held -= 1;
        }
        if let Some(key) = &group.key
            && self.by_key.get(key) == Some(&id)
        {
            self.by_key.remove(key);
        }
        for rival in std::mem::take(&mut group.rivals) {
            self.admit(rival);
        }
        Some(group)
    }

    /// Puts a group (back) into the line.
    pub(super) fn enqueue(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get_mut(id) {
            group.phase = Phase::Queued;
            self.line.push_back(id);
        }
    }

    /// A held group's time has come: its receipts are admitted as if they had just arrived.
    pub(super) fn readmit(&mut self, id: GroupId) {
        if let Some(group) = self.remove(id)
            && let Some(key) = group.key
            && !group.receipts.is_empty()
        {
            let Group { fingerprint, message, receipts, origin, .. } = group;
            self.admit(Arrival { key, fingerprint, message, origin, receipts });
        }
    }

    /// Settles the first `copies` deliveries of a group and removes it; later ones are admitted anew.
    ///
    /// The outcome is that of the message; its further copies are duplicates, acked.
    pub(super) fn conclude(&mut self, id: GroupId, outcome: Outcome, copies: usize) {
        let Some(mut group) = self.remove(id) else { return };
        let late = group.receipts.split_off(copies.min(group.receipts.len()));
        outcome.log(&self.policy.queue, group.key.as_ref());
        self.counts.add(&outcome, 1);
        if let Some(settlement) = outcome.settlement() {
            let mut receipts = group.receipts.into_iter();
            self.settled.extend(receipts.next().map(|receipt| (receipt, settlement)));
            self.settle_copies(receipts.collect(), settlement);
        }
        if let Some(key) = group.key
            && !late.is_empty()
        {
            let Group { fingerprint, message, origin, .. } = group;
            self.admit(Arrival { key, fingerprint, message, origin, receipts: late });
        }
    }

    /// Copies beside the one an outcome is about: acked as duplicates, unless all are returned.
    pub(super) fn settle_copies(&mut self, receipts: Vec<Receipt>, settlement: Settlement) {
        if settlement == Settlement::Return {
            self.settle_all(receipts, Settlement::Return);
        } else {
            self.counts.add(&Outcome::Duplicate, receipts.len() as u64);
            self.settled.extend(receipts.into_iter().map(|receipt| (receipt, Settlement::Ack)));
        }
    }

    pub(super) fn settle_all(&mut self, receipts: Vec<Receipt>, settlement: Settlement) {
        if settlement == Settlement::Return {
            self.counts.add(&Outcome::Returned, receipts.len() as u64);
        }
        self.settled.extend(receipts.into_iter().map(|receipt| (receipt, settlement)));
    }

    /// The session is gone, and every receipt with it: the broker hands all of it over again.
    ///
    /// What has a claim, or may have one, goes on, and its redelivered copy joins it. What waits for its next attempt
    /// stays for the same reason, so that the copy does not run early.
    pub(super) fn session_ended(&mut self) {
        self.settled.clear();
        let mut gone = Vec::new();
        for (id, group) in &mut self.groups {
            group.receipts.clear();
            group.rivals.clear();
            match group.phase {
                Phase::Queued if group.unsure => {}
                Phase::Queued | Phase::Waiting | Phase::Publishing { ticket: None, pause: true, .. } => {
                    gone.push(id)
                }
                Phase::Claiming { .. }
                | Phase::Running { .. }
                | Phase::Publishing { .. }
                | Phase::Finishing { .. }
                | Phase::Held => {}
            }
        }
        for id in gone {
            self.remove(id);
        }
    }
}

impl Group {
    /// Its copy is on its way to a delay queue, or waits there, and may come back before its row says so.
    fn goes_on_as_a_copy(&self) -> bool {
        match &self.phase {
            Phase::Publishing { purpose, .. } => matches!(purpose, Purpose::Delay(_)),
            Phase::Finishing { ending, .. } => matches!(ending, Ending::Failed { parked: true, .. }),
            Phase::Queued | Phase::Claiming { .. } | Phase::Waiting | Phase::Running { .. } | Phase::Held => {
                false
            }
        }
    }
}
