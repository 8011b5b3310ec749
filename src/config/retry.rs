//! A worker's `retry` table, and how long a message can be under way through it.

use std::time::Duration;

use super::section::Section;
use crate::worker::policy::Retry;

/// Enough for weeks of attempts; keeps the sum of their delays computable.
const ATTEMPTS_MAX: u32 = 100_000;

/// A queue's TTL is a number of milliseconds in 32 bits.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(u32::MAX as u64);

pub(super) fn read(retry: &mut Section) -> Retry {
    let default = Retry::default();
    let attempts = retry.whole(
        "max_attempts",
        1..=ATTEMPTS_MAX,
        "expected a whole number from 1 (the first attempt counts) to 100000",
    );
    let times = Duration::from_millis(1)..=DELAY_MAX;
    let initial = retry.time("initial_interval", times.clone());
    let max = retry.time("max_interval", times);
    let multiplier = retry.number("multiplier", 1.0..=1000.0, "expected a number from 1 to 1000");
    let jitter = retry.number("jitter", 0.0..=1.0, "expected a number from 0 to 1");

    // One of the two alone moves the other's default out of its way.
    let (initial_interval, max_interval) = match (&initial, &max) {
        (None, None) => (default.initial_interval, default.max_interval),
        (Some(initial), None) => (initial.value, default.max_interval.max(initial.value)),
        (None, Some(max)) => (default.initial_interval.min(max.value), max.value),
        (Some(initial), Some(max)) => {
            if initial.value > max.value {
                let max = for_people(max.value);
                retry.problem(format!("{}: it is more than max_interval, {max}: lower it", initial.said));
            }
            (initial.value, max.value)
        }
    };
    let retry_policy = Retry {
        max_attempts: attempts.map_or(default.max_attempts, |attempts| attempts.value),
        initial_interval,
        multiplier: multiplier.map_or(default.multiplier, |multiplier| multiplier.value),
        max_interval,
        jitter: jitter.map_or(default.jitter, |jitter| jitter.value),
    };
    if longest_delay(&retry_policy) > DELAY_MAX {
        let longest = for_people(longest_delay(&retry_policy));
        let limit = for_people(DELAY_MAX);
        retry.problem_here(&format!(
            "max_interval with its jitter reaches {longest}, but a queue can delay a message for {limit} at most: shorten it"
        ));
    }
    retry_policy
}

/// The longest delay that can be drawn.
pub(super) fn longest_delay(retry: &Retry) -> Duration {
    seconds(retry.max_interval.as_secs_f64() * (1.0 + retry.jitter))
}

/// The longest time from a message's first attempt to the end of its last.
pub(super) fn horizon(retry: &Retry, timeout: Duration) -> Duration {
    let cap = retry.max_interval.as_secs_f64();
    let mut delay = retry.initial_interval.as_secs_f64();
    let mut delays = 0.0;
    for _ in 1..retry.max_attempts {
        delays += delay.min(cap);
        delay = (delay * retry.multiplier).min(cap);
    }
    let runs = timeout.as_secs_f64() * f64::from(retry.max_attempts);
    seconds(delays * (1.0 + retry.jitter) + runs)
}

/// As times are written in a configuration, in the two largest units: `49d 17h`, `2m 46s`.
pub(crate) fn for_people(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let all_ms = time.as_millis();
    let mut rest_ms = all_ms;
    let mut parts = Vec::new();
    for (unit, length_ms) in UNITS.into_iter().skip_while(|(_, length_ms)| *length_ms > all_ms).take(2) {
        if rest_ms >= length_ms {
            parts.push(format!("{}{unit}", rest_ms / length_ms));
        }
        rest_ms %= length_ms;
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Saturates instead of failing on what no `Duration` holds.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_two_units() {
        for (ms, shown) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1s 500ms"),
            (166_999, "2m 46s"),
            (7 * 86_400_000, "7d"),
            (u64::from(u32::MAX), "49d 17h"),
            (86_400_001, "1d"),
        ] {
            assert_eq!(for_people(Duration::from_millis(ms)), shown);
        }
        assert!(for_people(Duration::MAX).ends_with('h'));
    }

    #[test]
    fn the_horizon_adds_all_delays_and_all_runs() {
        let retry = Retry { jitter: 0.0, ..Retry::default() };
        // 1 + 2 + 4 + 8 seconds between five runs.
        assert_eq!(horizon(&retry, Duration::from_secs(30)), Duration::from_secs(15 + 150));
        let capped = Retry { max_attempts: 9, max_interval: Duration::from_secs(4), ..retry };
        assert_eq!(horizon(&capped, Duration::ZERO), Duration::from_secs(1 + 2 + 6 * 4));
        let once = Retry { max_attempts: 1, ..retry };
        assert_eq!(horizon(&once, Duration::from_secs(1)), Duration::from_secs(1));
    }
}
