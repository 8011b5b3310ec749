//! Stopping on request, for the commands that do one thing and end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM; never anything where they cannot be had.
pub(super) struct Signals([Option<Signal>; 2]);

impl Signals {
    pub(super) fn new() -> Self {
        Self([SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok()))
    }

    /// The name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            Some(()) = wait(interrupt) => "SIGINT",
            Some(()) = wait(terminate) => "SIGTERM",
            else => std::future::pending().await,
        }
    }
}

async fn wait(signal: &mut Option<Signal>) -> Option<()> {
    signal.as_mut()?.recv().await
}
