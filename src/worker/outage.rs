//! Something the worker needs is away: when to try again, and how often to say so.

use std::{fmt::Display, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// While an outage lasts it is mentioned once at its start and then at most so often.
const MENTION_INTERVAL: Duration = Duration::from_secs(60);

/// One thing that may be away for a while: a broker, a ledger, a handler.
#[derive(Debug)]
pub struct Outage {
    backoff: ExponentialBuilder,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    since: Instant,
    /// What the latest failure was.
    why: String,
    mentioned: Instant,
    delays: ExponentialBackoff,
}

/// What to do about one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Try again after this.
    pub delay: Duration,
    /// Say it: it is the first failure, or the last mention is long ago.
    pub mention: bool,
}

impl Outage {
    /// Delays grow from `min` by doubling, with jitter, to at most `max`, and never end.
    pub fn new(min: Duration, max: Duration) -> Self {
        let backoff = ExponentialBuilder::new()
            .with_min_delay(min)
            .with_max_delay(max)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self { backoff, current: None }
    }

    pub fn fail(&mut self, now: Instant, why: impl Display) -> Failure {
        let first = self.current.is_none();
        let backoff = &self.backoff;
        let current = self.current.get_or_insert_with(|| Current {
            since: now,
            why: String::new(),
            mentioned: now,
            delays: backoff.build(),
        });
        let mention = first || now.duration_since(current.mentioned) >= MENTION_INTERVAL;
        if mention {
            current.mentioned = now;
        }
        current.why = why.to_string();
        // The builder has no limit of times, so there is always a next delay.
        Failure { delay: current.delays.next().unwrap_or(MENTION_INTERVAL), mention }
    }

    /// How long it lasted, if there was one.
    pub fn heal(&mut self, now: Instant) -> Option<Duration> {
        self.current.take().map(|current| now.duration_since(current.since))
    }

    pub fn is_on(&self) -> bool {
        self.current.is_some()
    }

    /// Since when it lasts, and what the latest failure was.
    pub fn current(&self) -> Option<(Instant, &str)> {
        self.current.as_ref().map(|current| (current.since, current.why.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_for_ever_and_mentions_are_sparse() {
        let mut outage = Outage::new(Duration::from_millis(100), Duration::from_secs(10));
        let start = Instant::now();
        let mut now = start;
        let mut mentions = 0;
        for round in 0..500 {
            let failure = outage.fail(now, round);
            assert!(failure.delay <= Duration::from_secs(20), "round {round}: {failure:?}");
            mentions += u32::from(failure.mention);
            now += failure.delay;
        }
        let minutes = now.duration_since(start).as_secs() / 60;
        assert!(minutes > 50, "500 rounds took only {minutes} min");
        assert!(u64::from(mentions) <= minutes + 1, "{mentions} mentions in {minutes} min");
        assert_eq!(outage.current(), Some((start, "499")));
        assert_eq!(outage.heal(now), Some(now.duration_since(start)));
        assert!(!outage.is_on() && outage.fail(now, "again").mention);
    }
}
