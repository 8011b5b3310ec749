//! One hour of what became of deliveries, in memory: a sample of the workers' counts every few seconds.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value as Json, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{ledger::unix_millis, worker::outcome::Counts};

use super::Watched;

/// Between two samples.
pub(super) const STEP: Duration = Duration::from_secs(5);
/// One hour of steps, and the sample from which the first one counts. For each worker 32 bytes a sample: 23 KiB.
const SAMPLES_MAX: usize = 721;
/// What is counted of each worker, in this order.
const NAMES: [&str; 4] = ["handled", "duplicates", "retried", "dead_lettered"];

/// The last hour's samples, the oldest first.
#[derive(Default)]
pub(super) struct History(Mutex<VecDeque<Sample>>);

/// Counts since the start, of each worker.
struct Sample {
    at: Instant,
    workers: Box<[[u64; NAMES.len()]]>,
}

/// Takes samples for as long as it is polled.
pub(super) async fn record(watched: &Watched) {
    let mut ticks = interval(STEP);
    // A thread that could not run has no samples of that time; the next one counts for all of it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        watched.history.add(watched.workers.iter().map(|worker| counted(&worker.counts.borrow())).collect());
    }
}

/// What was given up by rejecting counts as dead-lettered: it went to the queue's own dead-letter exchange.
fn counted(counts: &Counts) -> [u64; NAMES.len()] {
    [counts.handled, counts.duplicates, counts.retried, counts.dead_lettered + counts.rejected]
}

impl History {
    fn add(&self, workers: Box<[[u64; NAMES.len()]]>) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(Sample { at: Instant::now(), workers });
    }

    /// Rates per second from sample to sample, and what was counted over all of them: of one worker, or of all
    /// together. Times are those of the steps' ends, in milliseconds since 1970.
    pub(super) fn json(&self, worker: Option<usize>) -> Json {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, now_ms) = (Instant::now(), unix_millis());
        let of = |sample: &Sample, name: usize| -> u64 {
            let counts = |workers: &[[u64; NAMES.len()]]| workers.iter().map(|counts| counts[name]).sum();
            match worker {
                Some(worker) => sample.workers.get(worker).map_or(0, |counts| counts[name]),
                None => counts(&sample.workers),
            }
        };
        let at_ms = |sample: &Sample| {
            let age = now.saturating_duration_since(sample.at).as_millis();
            now_ms.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX))
        };
        let steps = || samples.iter().zip(samples.iter().skip(1));
        let mut json = json!({
            "step_ms": u64::try_from(STEP.as_millis()).unwrap_or(u64::MAX),
            "now_ms": now_ms,
            "at_ms": steps().map(|(_, to)| at_ms(to)).collect::<Vec<_>>(),
        });
        for (index, name) in NAMES.into_iter().enumerate() {
            let rate = |(from, to): (&Sample, &Sample)| {
                let seconds = to.at.saturating_duration_since(from.at).as_secs_f64();
                let count = of(to, index).saturating_sub(of(from, index)) as f64;
                if seconds > 0.0 { (count / seconds * 1000.0).round() / 1000.0 } else { 0.0 }
            };
            let ends = samples.front().zip(samples.back());
            let total = ends.map_or(0, |(first, last)| of(last, index).saturating_sub(of(first, index)));
            json["per_second"][name] = steps().map(rate).collect::<Vec<_>>().into();
            json["total"][name] = total.into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sampled(counts: &[[u64; 4]]) -> History {
        let history = History::default();
        for (index, counts) in counts.iter().enumerate() {
            if index > 0 {
                tokio::time::advance(STEP).await;
            }
            history.add(Box::new([*counts, [1, 0, 0, 0]]));
        }
        history
    }

    #[tokio::test(start_paused = true)]
    async fn rates_are_what_was_counted_between_two_samples() {
        let history = sampled(&[[10, 0, 0, 0], [15, 1, 0, 0], [115, 1, 0, 2]]).await;
        let all = history.json(None);
        assert_eq!(all["per_second"]["handled"], json!([1.0, 20.0]));
        assert_eq!(all["per_second"]["duplicates"], json!([0.2, 0.0]));
        assert_eq!(all["total"], json!({"handled": 105, "duplicates": 1, "retried": 0, "dead_lettered": 2}));
        let at = |index: usize| all["at_ms"][index].as_i64().unwrap();
        assert_eq!(at(1) - at(0), 5000);
        assert_eq!(at(1), all["now_ms"].as_i64().unwrap());
        assert_eq!(history.json(Some(1))["per_second"]["handled"], json!([0.0, 0.0]));
        assert_eq!(history.json(Some(7))["total"]["handled"], json!(0), "there is no such worker");
        assert_eq!(History::default().json(None)["per_second"]["handled"], json!([]));
    }

    #[tokio::test(start_paused = true)]
    async fn one_hour_is_kept_and_no_more() {
        let counts: Vec<_> = (0..2000).map(|n| [n, 0, 0, 0]).collect();
        let json = sampled(&counts).await.json(None);
        assert_eq!(json["at_ms"].as_array().unwrap().len(), 720);
        assert_eq!(json["total"]["handled"], json!(720));
    }
}
