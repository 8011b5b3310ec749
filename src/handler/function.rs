//! A closure of a Rust program as a handler.

use std::fmt;

use futures::future::{BoxFuture, FutureExt};

use super::{Handler, Verdict, Work};

/// Made by [`function`].
#[derive(Clone)]
pub struct Function<F>(F);

impl<F> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function(..)")
    }
}

/// A handler that runs `run` for each message. See [`Handler`] for the contract.
///
/// The worker sets no time limit: the closure watches [`Work::stop`], or is dropped when the grace
/// after the drain deadline has passed; then the next worker runs the message again, as interrupted. A
/// panic is [`Verdict::Retry`].
///
/// ```
/// use ackonce::{Verdict, handler};
///
/// let _handler = handler::function(|work| async move {
///     match std::str::from_utf8(&work.message.body) {
///         Ok(_) => Verdict::Done,
///         Err(error) => Verdict::GiveUp { error: error.to_string() },
///     }
/// });
/// ```
pub fn function<F, R>(run: F) -> Function<F>
where
    F: Fn(Work) -> R + Send + Sync,
    R: Future<Output = Verdict> + Send + 'static,
{
    Function(run)
}

impl<F, R> Handler for Function<F>
where
    F: Fn(Work) -> R + Send + Sync,
    R: Future<Output = Verdict> + Send + 'static,
{
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        (self.0)(work).boxed()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn guarantee(&self) -> &'static str {
        "each message runs to success once; a crash between its end and the ledger's commit runs it again"
    }
}
