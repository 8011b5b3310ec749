//! What a bench says: rates, their ratio, and what the ledger did meanwhile.

use std::time::Duration;

use serde::Serialize;

use super::{BenchArgs, round::Measured};

/// Medians over the rounds, unless said otherwise.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    messages: u64,
    rounds: usize,
    /// Messages per second.
    raw_rate: f64,
    full_rate: f64,
    /// Full path ÷ raw consumer: the median of the rounds' own ratios.
    ratio: f64,
    /// The rounds' ratios, smallest first.
    ratios: Vec<f64>,
    /// CPU time of this process per message.
    raw_cpu_us: f64,
    full_cpu_us: f64,
    /// Of the ledger, in all rounds.
    commits: u64,
    /// Claims and finishes in each, on average: two for each new message.
    operations_per_commit: f64,
    claim_ms: Percentiles,
    finish_ms: Percentiles,
    peak_memory_mib: Option<f64>,
}

/// Over the calls of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Report {
    pub(super) fn new(args: &BenchArgs, rounds: &[Measured]) -> Self {
        let rate = |time: Duration| args.messages as f64 / time.as_secs_f64();
        let per_message = |cpu: Duration| cpu.as_secs_f64() * 1e6 / args.messages as f64;
        let mut ratios: Vec<f64> =
            rounds.iter().map(|round| round.raw.as_secs_f64() / round.full.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        let calls = |of: fn(&Measured) -> &Vec<Duration>| -> Vec<Duration> {
            rounds.iter().flat_map(of).copied().collect()
        };
        let claims = calls(|round| &round.calls.claims);
        let finishes = calls(|round| &round.calls.finishes);
        let commits: u64 = rounds.iter().map(|round| round.calls.commits).sum();
        let operations: u64 = rounds.iter().map(|round| round.calls.operations).sum();
        Self {
            messages: args.messages,
            rounds: rounds.len(),
            raw_rate: median(rounds.iter().map(|round| rate(round.raw)).collect()),
            full_rate: median(rounds.iter().map(|round| rate(round.full)).collect()),
            ratio: median(ratios.clone()),
            ratios,
            raw_cpu_us: median(rounds.iter().map(|round| per_message(round.raw_cpu)).collect()),
            full_cpu_us: median(rounds.iter().map(|round| per_message(round.full_cpu)).collect()),
            commits,
            operations_per_commit: operations as f64 / commits.max(1) as f64,
            claim_ms: percentiles(claims),
            finish_ms: percentiles(finishes),
            peak_memory_mib: peak_memory_mib(),
        }
    }

    pub(super) fn print(&self, json: bool) {
        if json {
            // Numbers and lists of them always serialise.
            println!("{}", serde_json::to_string(self).unwrap_or_default());
            return;
        }
        println!("raw consumer        {:>10.0} messages/s", self.raw_rate);
        println!("full path           {:>10.0} messages/s", self.full_rate);
        let (low, high) = (self.ratios.first().copied(), self.ratios.last().copied());
        println!(
            "ratio               {:>10.2} (median of {} rounds of {} messages; {:.2} to {:.2})",
            self.ratio,
            self.rounds,
            self.messages,
            low.unwrap_or_default(),
            high.unwrap_or_default(),
        );
        println!(
            "CPU                 {:>10.1} µs per message; the raw consumer {:.1} µs",
            self.full_cpu_us, self.raw_cpu_us
        );
        println!(
            "ledger              {:>10.1} claims and finishes per commit, {} commits",
            self.operations_per_commit, self.commits
        );
        for (name, times) in [("claim", self.claim_ms), ("finish", self.finish_ms)] {
            println!(
                "{name:<20}{:>10.2} ms median, {:.2} ms at 99 %, {:.2} ms at most",
                times.p50, times.p99, times.max
            );
        }
        if let Some(mib) = self.peak_memory_mib {
            println!("peak memory         {mib:>10.1} MiB");
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

fn percentiles(mut times: Vec<Duration>) -> Percentiles {
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    Percentiles { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

/// The most memory that this process ever held, as Linux tells it.
fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        let all = percentiles(times);
        assert_eq!((all.p50, all.p99, all.max), (50.0, 99.0, 100.0));
        assert_eq!(percentiles(Vec::new()).max, 0.0);
    }
}
