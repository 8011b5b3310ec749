//! Handlers: what the user wants done with each message, once. The contract, and the kinds.

pub mod exec;
mod function;
pub mod http;
pub mod log;
mod output;
pub mod pipe;
mod process_group;
pub mod program;

use std::{sync::Arc, time::Duration};

pub use function::{Function, function};
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    key::Key,
    message::{Message, TraceContext},
};

/// Does the user's work for one message.
///
/// # Contract
///
/// The same key comes again, with a higher attempt, until a run ends in [`Verdict::Done`] or
/// [`Verdict::GiveUp`], so a handler with effects outside the ledger's transaction should be able
/// to tell that it has been there ([`Work::key`], [`Work::attempt`], [`Work::interrupted`]).
/// Several runs go on at once, never two of one key.
///
/// # Cancellation
///
/// The future is dropped only when the process is about to end; whatever it started must then die
/// with it. When [`Work::stop`] turns true, the handler ends soon with [`Verdict::Stopped`], or
/// with its true verdict if it has one by then.
pub trait Handler: Send + Sync {
    /// Begins one run. Called in the order of the claims and from the worker's own loop, so the call
    /// itself must not block; the work belongs into the future.
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict>;

    /// Whether a run takes time. One that does not is given as many slots as there are deliveries, and is polled by
    /// the worker's own loop: whatever blocks in it would hold all messages up.
    fn waits(&self) -> bool {
        true
    }

    /// Whether it is set up so that it can ever start; asked once, before consuming begins.
    ///
    /// # Errors
    ///
    /// One sentence on what waiting does not cure, and what to do.
    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether it could start now, within a few seconds; asked before the first run and while the
    /// worker is paused.
    ///
    /// # Errors
    ///
    /// One sentence: what is missing and what to do.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Ends what outlives single runs, after the last of them: gently, or `at_once`. May be called again.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves it half-ended; dropping the handler ends the rest.
    fn close(&self, at_once: bool) -> BoxFuture<'_, ()> {
        let _ = at_once;
        Box::pin(async {})
    }

    /// Which guarantee holds with this handler and why, in one line for the log.
    fn guarantee(&self) -> &'static str;
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub struct Work {
    pub message: Arc<Message>,
    pub key: Key,
    pub scope: Arc<str>,
    pub queue: Arc<str>,
    /// Counts from 1.
    pub attempt: u32,
    /// The attempt before was cut off, by a crash or at the drain deadline, and may have taken effect.
    pub interrupted: bool,
    /// Turns true at the drain deadline.
    pub stop: watch::Receiver<bool>,
    /// This run as a step of its trace, if such steps are recorded.
    pub span: Option<TraceContext>,
}

impl Work {
    /// What the user's work belongs to: this run's own step if there is one, else what the message's sender named.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.span.clone().or_else(|| TraceContext::of(&self.message.properties))
    }
}

/// What a handler says about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// Try again, not before `after` if that is given.
    Retry {
        error: String,
        after: Option<Duration>,
    },
    /// No further attempt can help: dead-letter it.
    GiveUp {
        error: String,
    },
    /// The handler itself is missing or unreachable: says nothing about the message, uses no attempt.
    CannotStart {
        error: String,
    },
    /// Stopped at the drain deadline; uses no attempt.
    Stopped,
}
