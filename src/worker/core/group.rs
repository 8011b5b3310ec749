//! What is here now: deliveries in groups, and where each group stands.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{super::outcome::Outcome, words::Purpose};
use crate::{
    key::{Fingerprint, Key},
    ledger::{Ending, Origin, Ticket},
    message::{Message, Receipt},
};

/// All deliveries of one key and body that are here now.
#[derive(Debug)]
pub(super) struct Group {
    /// `None` for a message without a key, which is only ever dead-lettered.
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Fingerprint,
    pub(super) message: Arc<Message>,
    /// Of the present session only.
    pub(super) receipts: Vec<Receipt>,
    /// How much is known of where they come from: of several copies, that of the freshest.
    pub(super) origin: Origin,
    /// The same key with another body: they have their turn when this group's fate is known.
    pub(super) rivals: Vec<Arrival>,
    pub(super) phase: Phase,
    /// Waits in a row without progress; makes the next one longer.
    pub(super) waits: u32,
    /// How long the handler ran in the attempt that is being finished; `None` if it did not.
    pub(super) ran: Option<Duration>,
    /// A claim of it failed, and may be recorded all the same: nobody else gets the message before we know.
    pub(super) unsure: bool,
}

/// Where a group stands. Each variant says how it is left.
#[derive(Debug)]
pub(super) enum Phase {
    /// In the line for a slot → `Claiming`; or returned by a drain. Ends with its session, unless it is unsure.
    Queued,
    /// → `Running`, `Waiting`, `Publishing`, `Held`, or settled: as a duplicate, or as handled by
    /// the claim's own transaction.
    Claiming { copies: usize },
    /// Another process runs it; a timer → `Queued`.
    Waiting,
    /// → `Finishing`, `Publishing`.
    Running { ticket: Ticket, since: Instant },
    /// A copy is being published, or (`pause`) waits to be tried again → `Finishing` or settled.
    Publishing { ticket: Option<Ticket>, purpose: Purpose, error: String, pause: bool, since: Instant },
    /// → settled, `Held`, `Queued`.
    Finishing { ticket: Ticket, ending: Ending, then: Then, copies: usize },
    /// Waits for its next attempt; a timer admits its receipts anew.
    Held,
}

/// What follows once a finish is recorded.
#[derive(Clone, Debug)]
pub(super) enum Then {
    Conclude(Outcome),
    Hold(Outcome, Duration),
    Requeue,
}

/// Deliveries of one message on their way into a group.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) message: Arc<Message>,
    pub(super) origin: Origin,
    pub(super) receipts: Vec<Receipt>,
}
