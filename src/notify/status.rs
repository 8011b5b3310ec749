//! How the workers are, as one line for people: what `systemctl status` shows.

use std::time::SystemTime;

use tokio::time::Instant;

use super::Told;

/// A supervisor keeps one line of moderate length.
const CHARS_MAX: usize = 500;

/// Turns moments into times of day, always the same one for the same moment: a line that only seems to change would
/// be told anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    wall: SystemTime,
    steady: Instant,
}

impl Clock {
    pub(super) fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    fn said(&self, moment: Instant) -> String {
        let wall = match moment.checked_duration_since(self.steady) {
            Some(after) => self.wall + after,
            None => self.wall - (self.steady - moment),
        };
        format!(" since {}", humantime::format_rfc3339_seconds(wall))
    }
}

/// One line: how much of the work is done, and what keeps the rest from it.
pub(super) fn of(workers: &[Told], now: Instant, clock: &Clock) -> String {
    let shown: Vec<_> = workers.iter().map(|worker| (&worker.queue, worker.signs.shown())).collect();
    let mut said = Vec::new();
    let mut consuming = Vec::new();
    let mut under_way = None;
    for (queue, shown) in &shown {
        let hindrances = shown.hindrances(now);
        if hindrances.is_empty() {
            consuming.push(&***queue);
        }
        if shown.draining && !shown.ended {
            *under_way.get_or_insert(0) += shown.in_flight;
        }
        // That is said for all of them together.
        let particular =
            hindrances.iter().filter(|hindrance| !matches!(hindrance.what, "draining" | "ended"));
        said.extend(particular.map(|hindrance| {
            let since = hindrance.since.map_or_else(String::new, |since| clock.said(since));
            format!("{queue}: {}", hindrance.said(&since))
        }));
    }
    let first = match (under_way, consuming.as_slice(), shown.len()) {
        (Some(messages), ..) => format!("draining, messages under way: {messages}"),
        (None, [], _) if said.is_empty() => "ended".to_owned(),
        (None, [queue], 1) => format!("consuming from {queue}"),
        (None, [], 1) => String::new(),
        (None, some, all) if some.len() == all => format!("consuming from {all} queues"),
        (None, some, all) => format!("consuming from {} of {all} queues", some.len()),
    };
    if !first.is_empty() {
        said.insert(0, first);
    }
    said.join("; ").replace(char::is_control, " ").chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use crate::worker::signs::{Away, Shown, Signs};

    use super::*;

    fn told(queue: &str, change: impl FnOnce(&mut Shown)) -> Told {
        let mut shown = Signs::new(|_, _| {}).shown();
        shown.turned = Some(Instant::now());
        shown.no_session = None;
        change(&mut shown);
        Told { queue: queue.into(), signs: Arc::new(Signs::showing(shown)) }
    }

    fn clock(now: Instant) -> Clock {
        Clock { wall: SystemTime::UNIX_EPOCH + Duration::from_secs(3600), steady: now }
    }

    fn away(since: Instant, why: &str) -> Option<Away> {
        Some(Away { since, why: why.to_owned() })
    }

    #[test]
    fn a_worker_that_consumes_is_named_and_several_are_counted() {
        let now = Instant::now();
        let one = told("orders", |_| {});
        assert_eq!(of(std::slice::from_ref(&one), now, &clock(now)), "consuming from orders");
        assert_eq!(of(&[one, told("mails", |_| {})], now, &clock(now)), "consuming from 2 queues");
    }

    #[test]
    fn what_is_away_is_said_with_the_time_since_when_and_in_one_line() {
        let now = Instant::now();
        let since = now - Duration::from_secs(60);
        let lost = told("orders", |shown| shown.no_session = away(since, "gone\nfor good"));
        let line = "orders: no session with the broker since 1970-01-01T00:59:00Z: gone for good";
        assert_eq!(of(std::slice::from_ref(&lost), now, &clock(now)), line);
        let later = now + Duration::from_secs(5);
        assert_eq!(
            of(std::slice::from_ref(&lost), later, &clock(now)),
            line,
            "the same moment, the same line"
        );
        let both = [told("mails", |_| {}), lost];
        assert_eq!(of(&both, now, &clock(now)), format!("consuming from 1 of 2 queues; {line}"));
        let long = told("orders", |shown| shown.ledger = away(since, &"ä".repeat(1000)));
        assert_eq!(of(&[long], now, &clock(now)).chars().count(), CHARS_MAX);
    }

    #[test]
    fn a_drain_says_how_much_is_left() {
        let now = Instant::now();
        let draining = |queue, in_flight| {
            told(queue, |shown| {
                shown.draining = true;
                shown.in_flight = in_flight;
                shown.no_session = away(now, "closed");
            })
        };
        let both = [draining("orders", 2), draining("mails", 1)];
        assert_eq!(of(&both, now, &clock(now)), "draining, messages under way: 3");
        assert_eq!(of(&[told("orders", |shown| shown.ended = true)], now, &clock(now)), "ended");
    }
}
