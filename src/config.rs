//! File, environment and flags become one validated configuration.
//!
//! A setting given as a flag counts more than the same one in the environment, that more than the
//! file, and that more than the default. Every mistake is found and reported at once.
//!
//! - `twins`: the flags and environment variables, and which key of the file each stands for;
//! - `file`: the file's text becomes a table;
//! - `sources`: the file's tables with flags and environment laid over them;
//! - `section`: reads a table key by key, so that wrong types and unknown keys are problems;
//! - `broker`, `ledger`, `listen`, `log_level`, `worker`, `retry`, `handler`: one part each, with its defaults and relations;
//! - `problem`, `secret`: how mistakes are worded, and what is never printed.

mod broker;
mod file;
mod handler;
mod ledger;
mod listen;
mod log_level;
mod problem;
mod retry;
mod secret;
mod section;
mod sources;
mod twins;
mod worker;

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

pub(crate) use self::retry::for_people;
pub use self::{
    broker::BrokerConfig,
    handler::{ExecConfig, HandlerConfig, HttpConfig, PipeConfig, SqlConfig},
    ledger::{LedgerConfig, LedgerUrl},
    listen::ListenConfig,
    log_level::LogLevel,
    problem::{Problem, Problems},
    secret::{BrokerUrl, Secret, SecretPairs, without_credentials},
    worker::WorkerConfig,
};
use self::{
    section::{Given, Section},
    sources::Sources,
};

/// Everything that was configured, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub broker: BrokerConfig,
    pub ledger: LedgerConfig,
    /// Time for running handlers at a shutdown; may be zero.
    pub drain_timeout: Duration,
    /// Where the status page, health, readiness and metrics are served; `None`: nowhere.
    pub listen: Option<ListenConfig>,
    /// The file's; a level given on the command line or in the environment counts more.
    pub log_level: Option<LogLevel>,
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
        let mut sources = Sources::gather(flags, environment)?;
        sources.require_worker();
        let Sources { top, broker, ledger, workers, only, mut problems } = sources;
        let broker = finish(broker, &mut problems, broker::read);
        let (ledger, retention) = finish(ledger, &mut problems, ledger::read);
        let (drain_timeout, listen, log_level) = finish(top, &mut problems, read_top);
        let mut workers = read_workers(workers, &retention, &mut problems);
        if let Some(queue) = only {
            workers.retain(|worker| *worker.policy.queue == queue);
        }
        problems.or(Self { broker, ledger, drain_timeout, listen, log_level, workers })
    }

    /// The same for a command that runs no worker: what concerns workers is neither needed nor judged.
    ///
    /// # Errors
    ///
    /// Every mistake in the rest.
    pub fn load_without_workers<'a>(
        flags: impl IntoIterator<Item = (&'a str, &'a [String])>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(BrokerConfig, LedgerConfig), Problems> {
        let Sources { top, broker, ledger, mut problems, .. } = Sources::gather(flags, environment)?;
        let broker = finish(broker, &mut problems, broker::read);
        let (ledger, _) = finish(ledger, &mut problems, ledger::read);
        finish(top, &mut problems, read_top);
        problems.or((broker, ledger))
    }
}

fn read_top(top: &mut Section) -> (Duration, Option<ListenConfig>, Option<LogLevel>) {
    (drain_timeout(top), listen::read(top), log_level::read(top))
}

fn drain_timeout(top: &mut Section) -> Duration {
    top.time("drain_timeout", Duration::ZERO..=DAY).map_or(DRAIN_TIMEOUT_DEFAULT, |time| time.value)
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
