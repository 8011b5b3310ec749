//! Tells whoever wants to know how long each commit took and how much was in it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// One commit of claims and finishes.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Claims and finishes in it, at least 1.
    pub messages: usize,
    /// From the transaction's begin until it was durable.
    pub took: Duration,
}

type Watcher = Box<dyn Fn(Commit) + Send + Sync>;

/// Empty, and free of cost, until somebody sets a watcher.
#[derive(Clone, Default)]
pub(super) struct CommitWatch(Arc<OnceLock<Watcher>>);

impl CommitWatch {
    pub(super) fn set(&self, watcher: impl Fn(Commit) + Send + Sync + 'static) {
        // A second one is not told; see `SqliteLedger::watch_commits`.
        let _ = self.0.set(Box::new(watcher));
    }

    pub(super) fn tell(&self, began: Instant, messages: impl FnOnce() -> usize) {
        if let Some(watcher) = self.0.get() {
            let commit = Commit { messages: messages(), took: began.elapsed() };
            if commit.messages > 0 {
                watcher(commit);
            }
        }
    }
}

impl fmt::Debug for CommitWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommitWatch").field(&self.0.get().is_some()).finish()
    }
}
