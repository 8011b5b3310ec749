//! The write-ahead log's length. It is emptied into the ledger all the time, unless some program holds
//! a read transaction: then it grows until the disk is full.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::files::beside;

/// While the log stays too long, it is mentioned at most so often.
const MENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Warns of a log that grows too long.
pub(super) struct LogWatch {
    path: PathBuf,
    bytes_max: u64,
    /// Since it became too long.
    mentioned: Option<Instant>,
}

impl LogWatch {
    pub(super) fn new(ledger: &Path, bytes_max: u64) -> Self {
        Self { path: beside(ledger, "-wal"), bytes_max, mentioned: None }
    }

    /// Takes note of the log's length after a commit.
    pub(super) fn look(&mut self, bytes: u64, now: Instant) {
        if bytes <= self.bytes_max {
            if self.mentioned.take().is_some() {
                tracing::info!(bytes, "the ledger's log {} is short again", self.path.display());
            }
        } else if self.is_to_mention(now) {
            self.mentioned = Some(now);
            tracing::warn!(
                bytes,
                "the ledger's log {} grows, because some program holds a read transaction on the ledger: close it \
                 (an open sqlite3 shell?), before the disk is full",
                self.path.display()
            );
        }
    }

    fn is_to_mention(&self, now: Instant) -> bool {
        self.mentioned.is_none_or(|at| now.duration_since(at) >= MENTION_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_mentioned_once_a_minute() {
        let mut watch = LogWatch::new(Path::new("ackonce.db"), 100);
        let start = Instant::now();
        let mut mentioned = Vec::new();
        for (second, bytes) in [(0, 100), (1, 101), (2, 200), (60, 200), (61, 200), (62, 100), (63, 101)] {
            let now = start + Duration::from_secs(second);
            watch.look(bytes, now);
            if watch.mentioned == Some(now) {
                mentioned.push(second);
            }
        }
        assert_eq!(mentioned, [1, 61, 63]);
    }
}
