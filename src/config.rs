//! File, environment and flags become one validated configuration.
//!
//! A setting given as a flag counts more than the same one in the environment, that more than the
//! file, and that more than the default. Every mistake is found and reported at once.
//!
//! - `twins`: the flags and environment variables, and which key of the file each stands for;
//! - `file`: the file's text becomes a table;
//! - `section`: reads a table key by key, so that wrong types and unknown keys are problems;
//! - `broker`, `ledger`, `worker`, `retry`, `handler`: one part each, with its defaults and relations;
//! - `problem`, `secret`: how mistakes are worded, and what is never printed.

mod broker;
mod file;
mod handler;
mod ledger;
mod problem;
mod retry;
mod secret;
mod section;
mod twins;
mod worker;

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

pub use self::{
    broker::BrokerConfig,
    handler::{ExecConfig, HandlerConfig},
    ledger::{LedgerConfig, LedgerUrl},
    problem::{Problem, Problems},
    secret::{BrokerUrl, Secret, without_credentials},
    worker::{Declare, QueueType, WorkerConfig},
};
use self::{
    retry::for_people,
    section::{Given, Raw, Section},
    twins::{At, Override},
};

/// Everything that was configured, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub broker: BrokerConfig,
    pub ledger: LedgerConfig,
    /// Time for running handlers at a shutdown; may be zero.
    pub drain_timeout: Duration,
    /// At least one, no two on the same queue. They may share a scope: a key that is done on one
    /// queue is then a duplicate on the other.
    pub workers: Vec<WorkerConfig>,
}

/// With the kill grace of 5 s it stays within the 30 s that most supervisors allow.
const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Config {
    /// Puts together what was given: each flag's name (without dashes) and values, and the
    /// environment. The file is named by the flag `config` or by `ACKONCE_CONFIG`.
    ///
    /// # Errors
    ///
    /// Every mistake in all of them.
    pub fn load<'a>(
        flags: impl IntoIterator<Item = (&'a str, &'a [String])>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut overrides = twins::from_env(environment, &mut problems);
        overrides.extend(twins::from_flags(flags));

        let table = match twins::text_of(&overrides, "config").map(file::read) {
            Some(Ok(table)) => Some(table),
            Some(Err(error)) => {
                // Without the file the rest cannot be judged.
                problems.push(error);
                return Err(problems);
            }
            None => None,
        };
        let has_file = table.is_some();
        let mut top = Section::new("", table.unwrap_or_default());
        let mut broker = top.table("broker", "[broker]".to_owned());
        let mut ledger = top.table("ledger", "[ledger]".to_owned());
        let mut workers = top.tables("worker");
        if workers.is_empty() && !has_file && overrides.iter().any(|(twin, _)| twin.is_of_worker()) {
            workers.push(Section::new("", toml::Table::new()));
        }
        let mut workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let place = if has_file { format!("{}: retry", worker.place()) } else { String::new() };
                let retry = worker.table("retry", place);
                (worker, retry)
            })
            .collect();
        let only = if has_file { twins::text_of(&overrides, "queue") } else { None };
        for (twin, setting) in &overrides {
            match twin.at {
                At::CommandLine => {}
                At::Top => top.set(twin.key, setting.clone()),
                At::Broker => broker.set(twin.key, setting.clone()),
                At::Ledger => ledger.set(twin.key, setting.clone()),
                At::Worker | At::Retry => {
                    let concerned =
                        |worker: &Section| only.is_none_or(|queue| worker.is_text("queue", queue));
                    for (worker, retry) in workers.iter_mut().filter(|(worker, _)| concerned(worker)) {
                        apply_to_worker(worker, retry, (*twin, setting.clone()));
                    }
                }
            }
        }
        if workers.is_empty() && !top.has_problems() {
            problems.push(NO_WORKER);
        }
        let selected =
            workers.iter().any(|(worker, _)| only.is_none_or(|queue| worker.is_text("queue", queue)));
        if let Some(queue) = only.filter(|_| !selected && !workers.is_empty()) {
            problems.push(format!("no worker of the file has the queue {queue:?}: name one that it has"));
        }

        let broker = finish(broker, &mut problems, broker::read);
        let (ledger, retention) = finish(ledger, &mut problems, ledger::read);
        let drain_timeout = finish(top, &mut problems, |top| {
            top.time("drain_timeout", Duration::ZERO..=DAY).map_or(DRAIN_TIMEOUT_DEFAULT, |time| time.value)
        });
        let mut workers = read_workers(workers, &retention, &mut problems);
        if let Some(queue) = only {
            workers.retain(|worker| &*worker.policy.queue == queue);
        }
        problems.or(Self { broker, ledger, drain_timeout, workers })
    }
}

const NO_WORKER: &str = "no worker is configured: give --queue Q with --exec CMD… or --log, \
                         or --config F with a [[worker]] table in it";

/// A handler given outside the file takes the place of the file's.
fn apply_to_worker(worker: &mut Section, retry: &mut Section, (twin, setting): Override) {
    if handler::KINDS.contains(&twin.key) {
        if matches!(&setting.raw, Raw::Text(text) if twin.key == "log" && matches!(text.as_str(), "false" | "0"))
        {
            worker.remove("log");
            return;
        }
        for kind in handler::KINDS {
            worker.remove(kind);
        }
    }
    let section = if twin.at == At::Retry { retry } else { worker };
    section.set(twin.key, setting);
}

fn finish<T>(mut section: Section, problems: &mut Problems, read: impl FnOnce(&mut Section) -> T) -> T {
    let value = read(&mut section);
    section.finish(problems);
    value
}

fn read_workers(
    sections: Vec<(Section, Section)>,
    retention: &Given<Duration>,
    problems: &mut Problems,
) -> Vec<WorkerConfig> {
    let mut workers = Vec::new();
    let mut queues: BTreeMap<String, String> = BTreeMap::new();
    for (mut section, mut retry) in sections {
        let read = worker::read(&mut section, &mut retry);
        if read.horizon >= retention.value {
            section.problem_here(&format!(
                "a message can be under way through its attempts for {}, but {} forgets it after {}: \
                 raise the retention, or lower max_attempts, max_interval or timeout",
                for_people(read.horizon),
                retention.said,
                for_people(retention.value)
            ));
        }
        if let Some(queue) = read.queue {
            if let Some(other) = queues.get(&queue.value) {
                section.problem(format!(
                    "{}: {other} consumes it already, and each message would go to only one of them: \
                     raise that one's concurrency instead",
                    queue.said
                ));
            } else {
                queues.insert(queue.value, section.place().to_owned());
            }
        }
        workers.extend(read.config);
        section.finish(problems);
        retry.finish(problems);
    }
    workers
}
