//! What goes into the state machine, and what comes out of it.

use std::{sync::Arc, time::Duration};

use super::{super::decide::Reason, GroupId};
use crate::{
    handler::Verdict,
    key::Key,
    ledger::{Applied, Apply, Claim, ClaimRequest, Finish, Finished, LedgerError, Millis},
    message::{Delivery, Message, Receipt, SessionId, Settlement},
};

/// What happened.
#[derive(Debug)]
pub enum Event {
    SessionOpened(SessionId),
    SessionEnded,
    Delivered(Vec<Delivery>),
    Claimed(Vec<GroupId>, Result<Vec<Claim>, LedgerError>),
    Applied(Vec<GroupId>, Result<Vec<Applied>, LedgerError>),
    Ran(GroupId, Verdict),
    Finished(Vec<GroupId>, Result<Vec<Finished>, LedgerError>),
    /// The copy is confirmed by the broker, or why not.
    Published(GroupId, Result<(), String>),
    /// The handler could start now, or why not.
    Probed(Result<(), String>),
    /// A requested stop: start nothing more.
    Drain,
    /// The time that [`Core::next_wake`] named has come.
    Wake,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    Claim(Vec<GroupId>, Vec<ClaimRequest>),
    /// Claim, run and finish in one, for a handler that writes through the ledger.
    Apply(Vec<GroupId>, Vec<Apply>),
    Run(GroupId, Run),
    Finish(Vec<GroupId>, Vec<Finish>),
    Settle(Vec<(Receipt, Settlement)>),
    Publish(GroupId, Letter),
    Probe,
    /// Nothing more can be done: end with this error.
    Fail(LedgerError),
}

/// One run of the handler.
#[derive(Debug)]
pub struct Run {
    pub message: Arc<Message>,
    pub key: Key,
    pub attempt: u32,
    pub interrupted: bool,
}

/// One message that goes on as a copy of its own, confirmed before the original is acked.
#[derive(Clone, Debug)]
pub struct Letter {
    pub purpose: Purpose,
    pub message: Arc<Message>,
    pub key: Option<Key>,
    pub error: String,
    /// The attempt that has just ended; 0 for a message that was never claimed.
    pub attempt: u32,
    pub first_seen: Option<Millis>,
}

/// What a copy is published for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To lie in the dead-letter queue.
    Dead(Reason),
    /// To wait in a delay queue for so long, then come back.
    Delay(Duration),
}
