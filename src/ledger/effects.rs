//! Effects inside the ledger's own transaction: the one place where "exactly once" is said.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Claim, ClaimRequest, Ledger, LedgerError, Millis, Owner, Ticket};
use crate::message::Message;

/// A ledger together with a handler whose effect is written by the ledger's own transaction.
///
/// For each message: claim, run, row `done`, in one transaction that is durable before the answer
/// comes. A run that fails is undone by itself; its claim stays, and is finished like any other.
///
/// # Cancellation
///
/// As for [`Ledger`]: dropping the future of [`Effects::apply`] does not take the operation back.
pub trait Effects: Send + Sync {
    /// Claims each message for `owner` and runs it, or says why not. See [`Applied`].
    ///
    /// One batch never holds the same (scope, key) twice; answers come in the order of the requests.
    ///
    /// # Errors
    ///
    /// The ledger could not be read or written: nothing is known to have been recorded. Repeating
    /// the batch is safe; what was recorded after all is then a duplicate.
    fn apply(
        &self,
        owner: &Owner,
        requests: Vec<Apply>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Applied>, LedgerError>>;

    /// Whether a run could start now; asked before the first one and while the worker is paused.
    ///
    /// # Errors
    ///
    /// One sentence: what is missing and what to do.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Ends the run that is under way, and those to come, with [`Failure::Stopped`].
    fn stop(&self);

    /// The ledger that the effects are written with: a worker on it shares the transactions.
    fn ledger(&self) -> Arc<dyn Ledger>;

    /// Which guarantee holds and why, in one line for the log.
    fn guarantee(&self) -> &'static str;
}

/// Asks for one message.
#[derive(Clone, Debug)]
pub struct Apply {
    pub claim: ClaimRequest,
    pub message: Arc<Message>,
    /// A claim with a higher attempt is made but not run.
    pub attempts_max: u32,
    /// Whether a claim that was interrupted is run.
    pub reruns: bool,
}

/// The answer to an [`Apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The effect and the row `done` are durable, together; the further copies are counted on it.
    Done(Ticket),
    /// The claim is recorded, and nothing of the effect. To be finished.
    Failed { ticket: Ticket, failure: Failure },
    /// The answer to the claim alone: nothing ran. [`Claim::Claimed`] only where the request said so.
    Unrun(Claim),
    /// The batch took long, and nothing was done for this one: ask again.
    Postponed,
}

/// Why a run has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Try again.
    Retry { error: String },
    /// No further attempt can help: dead-letter it.
    GiveUp { error: String },
    /// The handler itself cannot run (a table is missing): says nothing about the message.
    CannotStart { error: String },
    /// Stopped by [`Effects::stop`].
    Stopped,
}
