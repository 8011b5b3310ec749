//! A broker that delivers at least once: one work queue, its delay queues and its dead letters.
//!
//! What lies in it is never lost. Whatever a session holds unacked goes back, marked as redelivered,
//! when that session ends in any way.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ackonce::message::{Delivery, Message, Receipt, SessionId, Settlement};

use crate::process::Pid;

/// What counts as one message: its id and its body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    pub key: Option<String>,
    pub body: String,
}

impl Class {
    pub fn of(message: &Message) -> Self {
        let body = String::from_utf8_lossy(&message.body).into_owned();
        Self { key: message.properties.message_id.clone(), body }
    }
}

/// One message in a queue.
#[derive(Clone, Debug)]
pub struct Stored {
    pub message: Message,
    /// When the broker took it.
    pub at: Duration,
    place: u64,
}

impl Stored {
    pub fn class(&self) -> Class {
        Class::of(&self.message)
    }

    /// Which of the producer's messages it is, or is a copy of.
    pub fn uid(&self) -> &str {
        self.message.properties.correlation_id.as_deref().unwrap_or_default()
    }
}

/// One delivery that was not settled yet.
#[derive(Clone, Debug)]
pub struct Unacked {
    pub stored: Stored,
    pub since: Duration,
    pub holder: Pid,
}

#[derive(Debug)]
struct Session {
    holder: Pid,
    consuming: bool,
    tags: u64,
    unacked: BTreeMap<u64, Unacked>,
}

#[derive(Debug)]
pub struct Broker {
    pub is_up: bool,
    prefetch: usize,
    places: u64,
    ids: SessionId,
    ready: BTreeMap<u64, Stored>,
    sessions: HashMap<SessionId, Session>,
    delayed: Vec<(Duration, Stored)>,
    dead: Vec<Stored>,
}

impl Broker {
    pub fn new(prefetch: u16) -> Self {
        Self {
            is_up: true,
            prefetch: prefetch.into(),
            places: 0,
            ids: 0,
            ready: BTreeMap::new(),
            sessions: HashMap::new(),
            delayed: Vec::new(),
            dead: Vec::new(),
        }
    }

    fn store(&mut self, message: Message, at: Duration) -> Stored {
        self.places += 1;
        Stored { message, at, place: self.places }
    }

    /// To the end of the work queue.
    pub fn enqueue(&mut self, message: Message, now: Duration) {
        let stored = self.store(message, now);
        self.ready.insert(stored.place, stored);
    }

    /// Into a delay queue, until `due`.
    pub fn park(&mut self, message: Message, now: Duration, due: Duration) {
        let stored = self.store(message, now);
        self.delayed.push((due, stored));
    }

    /// Into the dead-letter queue, where it stays.
    pub fn bury(&mut self, message: Message, now: Duration) {
        let stored = self.store(message, now);
        self.dead.push(stored);
    }

    /// What has waited long enough is at the end of the work queue, as a message of its own; the moment
    /// it was stored stays that of its publication.
    pub fn release(&mut self, now: Duration) {
        let (due, waiting) = std::mem::take(&mut self.delayed).into_iter().partition(|(due, _)| *due <= now);
        self.delayed = waiting;
        for (_, stored) in due {
            self.places += 1;
            self.ready.insert(self.places, Stored { place: self.places, ..stored });
        }
    }

    pub fn open(&mut self, holder: Pid) -> SessionId {
        self.ids += 1;
        let session = Session { holder, consuming: true, tags: 0, unacked: BTreeMap::new() };
        self.sessions.insert(self.ids, session);
        self.ids
    }

    /// Delivers nothing more; what is unacked may still be settled.
    pub fn cancel(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.consuming = false;
        }
    }

    /// Ends a session. Whether there was one.
    pub fn close(&mut self, session: SessionId) -> bool {
        let Some(session) = self.sessions.remove(&session) else { return false };
        for unacked in session.unacked.into_values() {
            self.requeue(unacked.stored);
        }
        true
    }

    /// Back to where it was.
    fn requeue(&mut self, mut stored: Stored) {
        stored.message.redelivered = true;
        self.ready.insert(stored.place, stored);
    }

    /// Sessions that could be given something now, in a fixed order.
    pub fn hungry(&self) -> Vec<(SessionId, Pid)> {
        let mut hungry: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.consuming && session.unacked.len() < self.prefetch)
            .map(|(id, session)| (*id, session.holder))
            .collect();
        hungry.sort_unstable();
        if self.ready.is_empty() { Vec::new() } else { hungry }
    }

    /// Hands over at most `max`, and no more than the prefetch allows.
    pub fn deliver(&mut self, id: SessionId, max: usize, now: Duration) -> Vec<Delivery> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        let mut deliveries = Vec::new();
        while deliveries.len() < max && session.unacked.len() < self.prefetch {
            let Some((_, stored)) = self.ready.pop_first() else { break };
            session.tags += 1;
            let message = Arc::new(stored.message.clone());
            deliveries.push(Delivery { message, receipt: Receipt::new(id, session.tags) });
            session.unacked.insert(session.tags, Unacked { stored, since: now, holder: session.holder });
        }
        deliveries
    }

    /// What was settled; `None` if the session or the delivery is not there any more.
    pub fn settle(&mut self, receipt: &Receipt, settlement: Settlement, now: Duration) -> Option<Unacked> {
        let session = self.sessions.get_mut(&receipt.session())?;
        let unacked = session.unacked.remove(&receipt.tag())?;
        match settlement {
            Settlement::Ack => {}
            Settlement::Reject => self.bury(unacked.stored.message.clone(), now),
            Settlement::Return => self.requeue(unacked.stored.clone()),
        }
        Some(unacked)
    }

    /// What a receipt is for, if it is still unacked.
    pub fn find(&self, receipt: &Receipt) -> Option<&Unacked> {
        self.sessions.get(&receipt.session())?.unacked.get(&receipt.tag())
    }

    /// All that it holds, the dead letters included.
    pub fn stored(&self) -> impl Iterator<Item = &Stored> {
        let delayed = self.delayed.iter().map(|(_, stored)| stored);
        self.ready
            .values()
            .chain(self.unacked().map(|unacked| &unacked.stored))
            .chain(delayed)
            .chain(&self.dead)
    }

    pub fn unacked(&self) -> impl Iterator<Item = &Unacked> {
        self.sessions.values().flat_map(|session| session.unacked.values())
    }

    pub fn dead(&self) -> &[Stored] {
        &self.dead
    }

    /// How much is in the work queue, unacked, and in delay queues.
    pub fn pending(&self) -> (usize, usize, usize) {
        (self.ready.len(), self.unacked().count(), self.delayed.len())
    }
}
