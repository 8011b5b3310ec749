//! The file's tables, with what flags and environment say laid over them; nothing is judged yet.

use std::ffi::OsString;

use toml::Table;

use super::{
    file, handler,
    problem::{Problems, quoted},
    section::{Raw, Section},
    twins::{self, At, Override},
};

#[derive(Debug)]
pub(super) struct Sources {
    pub top: Section,
    pub broker: Section,
    pub ledger: Section,
    /// Each worker with its `retry` table.
    pub workers: Vec<(Section, Section)>,
    /// The one queue of the file's that is to be run; `None` for all.
    pub only: Option<String>,
    pub problems: Problems,
}

impl Sources {
    /// # Errors
    ///
    /// A file that cannot be read: then nothing else can be judged.
    pub(super) fn gather<'a>(
        flags: impl IntoIterator<Item = (&'a str, &'a [String])>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut overrides = twins::from_env(environment, &mut problems);
        overrides.extend(twins::from_flags(flags));
        let table = match twins::text_of(&overrides, "config").map(file::read).transpose() {
            Ok(table) => table,
            Err(error) => {
                problems.push(error);
                return Err(problems);
            }
        };
        let only = twins::text_of(&overrides, "queue").filter(|_| table.is_some()).map(str::to_owned);
        let flags_only = table.is_none();
        let mut top = Section::new("", table.unwrap_or_default());
        let broker = top.table("broker", "[broker]".to_owned());
        let ledger = top.table("ledger", "[ledger]".to_owned());
        let mut workers: Vec<_> = top.tables("worker").into_iter().map(with_retry).collect();
        if flags_only && overrides.iter().any(|(twin, _)| twin.is_of_worker()) {
            workers.push((Section::new("", Table::new()), Section::new("", Table::new())));
        }
        let mut sources = Self { top, broker, ledger, workers, only, problems };
        for setting in overrides {
            sources.lay_over(setting);
        }
        Ok(sources)
    }

    /// Says so if there is no worker to run.
    pub(super) fn require_worker(&mut self) {
        const NO_WORKER: &str = "no worker is configured: give --queue Q with --exec CMD… or --log, \
                                 or --config F with a [[worker]] table in it";
        let concerned = self.workers.iter().any(|(worker, _)| is_concerned(worker, self.only.as_deref()));
        match &self.only {
            // A `worker` that is no list of tables has been complained about.
            _ if self.workers.is_empty() && self.top.has_problems() => {}
            _ if self.workers.is_empty() => self.problems.push(NO_WORKER),
            Some(queue) if !concerned => self
                .problems
                .push(format!("no worker of the file has the queue {}: name one that it has", quoted(queue))),
            Some(_) | None => {}
        }
    }

    fn lay_over(&mut self, (twin, setting): Override) {
        match twin.at {
            At::CommandLine => {}
            At::Top => self.top.set(twin.key, setting),
            At::Broker => self.broker.set(twin.key, setting),
            At::Ledger => self.ledger.set(twin.key, setting),
            At::Worker | At::Retry => {
                let only = self.only.as_deref();
                let concerned = self.workers.iter_mut().filter(|(worker, _)| is_concerned(worker, only));
                for (worker, retry) in concerned {
                    lay_over_worker(worker, retry, (twin, setting.clone()));
                }
            }
        }
    }
}

fn with_retry(mut worker: Section) -> (Section, Section) {
    let place = format!("{}: retry", worker.place());
    let retry = worker.table("retry", place);
    (worker, retry)
}

fn is_concerned(worker: &Section, only: Option<&str>) -> bool {
    only.is_none_or(|queue| worker.is_text("queue", queue))
}

/// A handler given outside the file takes the place of the file's.
fn lay_over_worker(worker: &mut Section, retry: &mut Section, (twin, setting): Override) {
    if handler::KINDS.contains(&twin.key) {
        let off = matches!(&setting.raw, Raw::Text(text) if matches!(text.trim(), "false" | "0"));
        if twin.key == "log" && off {
            worker.remove("log");
            return;
        }
        for kind in handler::KINDS {
            worker.remove(kind);
        }
        if twin.key != "http" {
            handler::HTTP_KEYS.into_iter().for_each(|key| worker.remove(key));
        }
        if twin.key != "sql" {
            worker.remove("sql_schema");
        }
    }
    let section = if twin.at == At::Retry { retry } else { worker };
    section.set(twin.key, setting);
}
