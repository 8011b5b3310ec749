//! The line that stays below the log: `orders: consuming · 1,234 handled · 210/s · 8 in flight`.

use std::{collections::VecDeque, time::Duration};

use indicatif::HumanCount;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Observed;
use crate::{
    cli::screen,
    worker::{outcome::Counts, signs::Shown},
};

const REDRAW: Duration = Duration::from_millis(250);
/// The rate is that of so many redraws: five seconds.
const SAMPLES: usize = 20;

/// Shows a line for each worker, for ever.
pub(super) async fn show(workers: &[Observed]) {
    let mut rates: Vec<Rate> = workers.iter().map(|_| Rate::default()).collect();
    let mut redraws = interval(REDRAW);
    redraws.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        redraws.tick().await;
        let now = Instant::now();
        let lines: Vec<String> = workers
            .iter()
            .zip(&mut rates)
            .map(|(worker, rate)| {
                let counts = worker.counts();
                line(
                    &worker.queue,
                    &counts,
                    rate.of(counts.handled + counts.duplicates, now),
                    &(worker.shown)(),
                    now,
                )
            })
            .collect();
        screen::show(&lines);
    }
}

fn line(queue: &str, counts: &Counts, rate: u64, shown: &Shown, now: Instant) -> String {
    let hindrances = shown.not_working(now);
    let state = if hindrances.is_empty() { "consuming".to_owned() } else { hindrances.join(", ") };
    let some = |count: u64, word: &str| (count > 0).then(|| format!("{} {word}", HumanCount(count)));
    let parts = [
        Some(state),
        Some(format!("{} handled", HumanCount(counts.handled))),
        some(counts.duplicates, "duplicates"),
        Some(format!("{}/s", HumanCount(rate))),
        Some(format!("{} in flight", HumanCount(shown.in_flight as u64))),
        some(counts.retried, "retried"),
        some(counts.dead_lettered + counts.rejected, "dead"),
    ];
    format!("{queue}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

/// How fast a count has grown lately.
#[derive(Debug, Default)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    /// Per second, rounded.
    fn of(&mut self, count: u64, now: Instant) -> u64 {
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((now, count));
        let (since, before) = self.0[0];
        let seconds = now.duration_since(since).as_secs_f64();
        if seconds > 0.0 { ((count - before) as f64 / seconds).round() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::signs::{Away, Signs};

    #[test]
    fn a_line_says_how_the_worker_is_and_what_it_has_done() {
        let now = Instant::now();
        let well = Shown { no_session: None, in_flight: 8, ..Signs::untimed().shown() };
        let counts = Counts {
            handled: 1234,
            duplicates: 56,
            retried: 3,
            dead_lettered: 1,
            rejected: 1,
            ..Counts::default()
        };
        assert_eq!(
            line("orders", &counts, 210, &well, now),
            "orders: consuming · 1,234 handled · 56 duplicates · 210/s · 8 in flight · 3 retried · 2 dead"
        );
        let away = Some(Away { since: now - Duration::from_secs(3), why: "gone".to_owned() });
        let ill = Shown { no_session: away.clone(), ledger: away, in_flight: 0, ..well };
        assert_eq!(
            line("q", &Counts::default(), 0, &ill, now),
            "q: no session with the broker for 3 s: gone, paused by its ledger for 3 s: gone · 0 handled · 0/s · 0 in flight"
        );
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let mut rate = Rate::default();
        assert_eq!(rate.of(100, start), 0);
        for step in 1..=100_u32 {
            assert_eq!(rate.of(100 + u64::from(step) * 25, start + REDRAW * step), 100, "step {step}");
        }
        let idle = (101..=100 + SAMPLES as u32).map(|step| rate.of(2600, start + REDRAW * step));
        assert_eq!(idle.last(), Some(0));
    }
}
