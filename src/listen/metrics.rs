//! From what the workers show, and from what was timed, to Prometheus's text. Labels are a worker's queue and words
//! of closed sets; nothing that a message carries.

use std::{fmt, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::prometheus_text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

use crate::{
    broker::Kind,
    ledger::{State, Stats, unix_millis},
    worker::{decide::Reason, outcome::Counts, signs::Shown},
};

use super::{
    Watched, WatchedWorker,
    times::{Commits, Times},
};

pub(super) use prometheus_text::CONTENT_TYPE;

/// Everything, as it is now. Without figures nothing is said of the ledger's rows.
pub(super) fn text(watched: &Watched, figures: Option<&Stats>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ackonce");
    let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "This program", version);
    let workers: Vec<_> = watched.workers.iter().map(Moment::of).collect();
    register_counts(&mut registry, &workers);
    register_states(&mut registry, &workers);
    register_times(&mut registry, watched);
    if let Some(stats) = figures {
        register_figures(&mut registry, stats);
    }
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

/// One worker at one moment.
struct Moment {
    queue: String,
    counts: Counts,
    shown: Shown,
    blocked: bool,
}

impl Moment {
    fn of(worker: &WatchedWorker) -> Self {
        Self {
            queue: worker.queue.to_string(),
            counts: *worker.counts.borrow(),
            shown: worker.signs.shown(),
            blocked: worker.outlet.is_blocked(),
        }
    }
}

type Labels = Vec<(&'static str, String)>;

/// For each worker, a value for each word of a closed set.
fn counters<const N: usize>(
    workers: &[Moment],
    label: &'static str,
    values: impl Fn(&Moment) -> [(&'static str, u64); N],
) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for worker in workers {
        for (word, value) in values(worker) {
            let labels = vec![("queue", worker.queue.clone()), (label, word.to_owned())];
            family.get_or_create(&labels).inc_by(value);
        }
    }
    family
}

fn counter(workers: &[Moment], value: impl Fn(&Moment) -> u64) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for worker in workers {
        family.get_or_create(&vec![("queue", worker.queue.clone())]).inc_by(value(worker));
    }
    family
}

fn gauge(workers: &[Moment], value: impl Fn(&Moment) -> usize) -> Family<Labels, Gauge> {
    let family = Family::<Labels, Gauge>::default();
    for worker in workers {
        let value = i64::try_from(value(worker)).unwrap_or(i64::MAX);
        family.get_or_create(&vec![("queue", worker.queue.clone())]).set(value);
    }
    family
}

fn register_counts(registry: &mut Registry, workers: &[Moment]) {
    let outcomes = counters(workers, "outcome", |Moment { counts, .. }| {
        [
            ("handled", counts.handled),
            ("duplicate", counts.duplicates),
            ("retried", counts.retried),
            ("dead-lettered", counts.dead_lettered),
            ("rejected", counts.rejected),
            ("returned", counts.returned),
        ]
    });
    registry.register("deliveries", "What became of deliveries", outcomes);
    let dead_letters = counters(workers, "reason", |worker| {
        let given_up = worker.counts.given_up;
        std::array::from_fn::<_, { Reason::ALL.len() }, _>(|n| (Reason::ALL[n].as_str(), given_up[n]))
    });
    registry.register("dead_letters", "Messages given up, dead-lettered or rejected", dead_letters);
    let missing = counter(workers, |worker| worker.counts.missing_key);
    registry.register("missing_keys", "Messages without a key", missing);
    let takeovers = counter(workers, |worker| worker.counts.takeovers);
    registry.register("takeovers", "Runs of messages whose attempt before was cut off", takeovers);
    let lost = counter(workers, |worker| worker.counts.lost_claims);
    registry.register("lost_claims", "Claims that another worker took over", lost);
    let sessions = counter(workers, |worker| worker.shown.sessions);
    registry.register("sessions", "Sessions with the broker that were opened", sessions);
    let ends = counters(workers, "reason", |worker| {
        let ends = worker.shown.session_ends;
        std::array::from_fn::<_, { Kind::ALL.len() }, _>(|n| (Kind::ALL[n].as_str(), ends[n]))
    });
    registry.register("session_ends", "Sessions that ended by themselves", ends);
}

fn register_states(registry: &mut Registry, workers: &[Moment]) {
    let in_flight = gauge(workers, |worker| worker.shown.in_flight);
    registry.register("in_flight", "Messages that are here, whatever they wait for", in_flight);
    let held = gauge(workers, |worker| worker.shown.held);
    registry.register("held", "Messages that wait here for their next attempt", held);
    let consuming = gauge(workers, |worker| worker.shown.no_session.is_none().into());
    registry.register("session_open", "1 while there is a session with the broker", consuming);
    let ledger = gauge(workers, |worker| worker.shown.ledger.is_some().into());
    registry.register("ledger_away", "1 while the ledger cannot be read or written", ledger);
    let handler = gauge(workers, |worker| worker.shown.handler.is_some().into());
    registry.register("handler_away", "1 while the handler cannot start", handler);
    let blocked = gauge(workers, |worker| worker.blocked.into());
    registry.register("blocked", "1 while an alarm of the broker blocks copies", blocked);
    let draining = gauge(workers, |worker| worker.shown.draining.into());
    registry.register("draining", "1 from the request to stop", draining);
}

fn register_times(registry: &mut Registry, watched: &Watched) {
    let Times { claim, apply, handler, finish } = watched.times.clone();
    registry.register("handler_duration_seconds", "Time of a run of the handler", handler);
    registry.register("claim_duration_seconds", "Time of a batch of claims", claim);
    registry.register("apply_duration_seconds", "Time of a batch of runs inside the ledger", apply);
    registry.register("finish_duration_seconds", "Time of a batch of finishes", finish);
    let Commits { took, messages } = watched.commits.clone();
    registry.register("ledger_commit_duration_seconds", "Time of a commit of the ledger", took);
    registry.register("ledger_commit_messages", "Claims and finishes in a commit", messages);
}

fn register_figures(registry: &mut Registry, stats: &Stats) {
    let rows = Family::<Labels, Gauge<u64, AtomicU64>>::default();
    let count = |state| stats.scopes.iter().map(|scope| scope.rows(state)).sum();
    for state in State::ALL {
        rows.get_or_create(&vec![("state", state.as_str().to_owned())]).set(count(state));
    }
    registry.register("ledger_rows", "Rows of the ledger", rows);
    let figure = |value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        gauge
    };
    registry.register("ledger_bytes", "Size of the ledger's file", figure(stats.bytes));
    registry.register("ledger_log_bytes", "Size of the ledger's write-ahead log", figure(stats.wal_bytes));
    let oldest = stats.scopes.iter().filter_map(|scope| scope.oldest_processing_ms).min();
    let age_ms = oldest.map_or(0, |since| unix_millis().saturating_sub(since).max(0));
    let age = Gauge::<f64, AtomicU64>::default();
    age.set(age_ms as f64 / 1000.0);
    registry.register("ledger_oldest_processing_seconds", "Age of the oldest claim; 0 if there is none", age);
}
