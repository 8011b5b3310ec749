//! Percentiles of times.

use std::time::Duration;

use serde_json::{Value, json};

/// In milliseconds; by the nearest rank.
pub(crate) fn of(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    json!({ "count": times.len(), "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}
