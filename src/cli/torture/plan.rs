//! What is to be done, checked before anything is made: the workers' command line, and how runs are noted.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::{
    broker::topology,
    cli::{Failure, run::serve},
    config::{Config, HandlerConfig, SqlConfig},
    ledger::sqlite::{RECORD, RECORD_SCHEMA},
    worker::decide,
};

use super::{Recorder, TortureArgs};

/// Flags of `run` that torture sets itself.
const OWN: [&str; 7] = ["config", "queue", "ledger", "key", "scope", "declare", "jitter"];
/// The variables that count here; all others of ours are taken from the workers' environment.
const VARIABLES: [&str; 2] = ["AMQP_URL", "ACKONCE_PASSWORD_FILE"];
/// Short pauses between attempts, unless the user wants others.
const PAUSES: [(&str, &str); 2] = [("initial-interval", "100ms"), ("max-interval", "1s")];

/// Runs its arguments and, if they succeed, appends one line to the file `$0`. One write of a short line is whole.
const NOTE: &str = r#"if [ $# -gt 0 ]; then "$@" || exit $?; fi; echo "$ACKONCE_KEY $ACKONCE_ATTEMPT $ACKONCE_INTERRUPTED" >> "$0""#;

/// Where the effects of runs can be seen.
#[derive(Clone, Debug)]
pub(super) enum Evidence {
    /// A line in this file for each run that succeeded.
    Lines(PathBuf),
    /// A row in the ledger's file, in the run's own transaction.
    Rows,
    /// Nowhere: only what the ledger knows.
    LedgerOnly,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) queue: String,
    pub(super) queue_type: topology::QueueType,
    pub(super) folder: PathBuf,
    pub(super) ledger: PathBuf,
    /// One worker, as the processes see it.
    pub(super) config: Config,
    /// What follows `ackonce run`.
    pub(super) arguments: Vec<OsString>,
    pub(super) evidence: Evidence,
    /// In the report.
    pub(super) handler: &'static str,
    /// Where the first URL leads.
    pub(super) broker_authority: String,
}

type Flags = Vec<(&'static str, Vec<String>)>;

impl Plan {
    /// # Errors
    ///
    /// Code 2: what is wrong with the options, or with the handler.
    pub(super) async fn new(args: &TortureArgs) -> Result<Self, Failure> {
        let mut flags = args.worker.flags();
        if let Some((own, _)) = flags.iter().find(|(flag, values)| OWN.contains(flag) && !values.is_empty()) {
            return Err(Failure::usage(format!(
                "--{own} cannot be given: torture has a queue and a ledger of its own"
            )));
        }
        let id = Uuid::now_v7().simple().to_string();
        let queue = format!("ackonce.torture.{id}");
        let folder = std::path::absolute(args.folder.join(format!("ackonce-torture-{id}")))
            .map_err(|error| Failure::usage(format!("--folder: {error}")))?;
        let ledger = folder.join("ackonce.db");
        set(&mut flags, "queue", vec![queue.clone()]);
        set(&mut flags, "ledger", vec![ledger.display().to_string()]);
        set(&mut flags, "declare", vec!["passive".to_owned()]);
        set(&mut flags, "jitter", vec!["0".to_owned()]);
        for (flag, pause) in PAUSES {
            if given(&flags, flag).is_empty() {
                set(&mut flags, flag, vec![pause.to_owned()]);
            }
        }
        let kinds = ["exec", "shell", "pipe", "http", "sql", "log"];
        let own_handler = kinds.iter().any(|kind| !given(&flags, kind).is_empty());
        if !own_handler {
            set(&mut flags, "exec", vec!["/bin/true".to_owned()]);
        }
        // The user's own handler is judged as it was given, before anything is made.
        let config = load(&flags)?;
        serve::check(&config.workers).await?;
        let broker_authority = broker_authority(args, &config)?;
        fs::create_dir(&folder).map_err(|error| {
            Failure::usage(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
        let recorder = (!own_handler).then_some(args.recorder);
        let (evidence, handler) = note_runs(&mut flags, &config, recorder, &folder)?;
        let config = load(&flags)?;
        Ok(Self {
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..1 << 53)),
            queue_type: config.workers[0].queue_type,
            arguments: arguments(&flags),
            queue,
            folder,
            ledger,
            config,
            evidence,
            handler,
            broker_authority,
        })
    }

    /// Every queue that may have been made.
    pub(super) fn queues(&self) -> Vec<String> {
        let mut queues = vec![self.queue.clone(), topology::dead_letter_queue(&self.queue)];
        let retry = &self.config.workers[0].policy.retry;
        for attempt in 1..retry.max_attempts.min(100) {
            // Without jitter, which torture turns off, these are all the delays there are.
            let delay_ms = decide::delay(retry, attempt, 0.5).as_millis();
            let delay_ms = u64::try_from(delay_ms).unwrap_or(u64::MAX);
            let queue = topology::retry_queue(&self.queue, delay_ms, self.queue_type).name;
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        queues
    }
}

fn given<'a>(flags: &'a Flags, name: &str) -> &'a [String] {
    flags.iter().find(|(flag, _)| *flag == name).map_or(&[], |(_, values)| values)
}

fn set(flags: &mut Flags, name: &'static str, values: Vec<String>) {
    flags.retain(|(flag, _)| *flag != name);
    flags.push((name, values));
}

fn load(flags: &Flags) -> Result<Config, Failure> {
    let environment = VARIABLES.iter().filter_map(|name| Some((OsString::from(name), env::var_os(name)?)));
    Ok(Config::load(flags.iter().map(|(flag, values)| (*flag, values.as_slice())), environment)?)
}

/// Puts a note around each run, as far as the handler's kind allows.
fn note_runs(
    flags: &mut Flags,
    config: &Config,
    recorder: Option<Recorder>,
    folder: &Path,
) -> Result<(Evidence, &'static str), Failure> {
    let lines = folder.join("effects");
    let noted = |command: Vec<String>| {
        let mut words =
            vec!["/bin/sh".to_owned(), "-c".to_owned(), NOTE.to_owned(), lines.display().to_string()];
        words.extend(command);
        words
    };
    match (&config.workers[0].handler, recorder) {
        (_, Some(Recorder::Command)) => {
            set(flags, "exec", noted(Vec::new()));
            Ok((Evidence::Lines(lines), "built-in command"))
        }
        (_, Some(Recorder::Sql)) => {
            set(flags, "exec", Vec::new());
            set_sql(flags, folder, None)?;
            Ok((Evidence::Rows, "built-in sql"))
        }
        (HandlerConfig::Exec(exec), None) => {
            let command = std::iter::once(&exec.program).chain(&exec.args).cloned().collect();
            set(flags, "exec", noted(command));
            set(flags, "shell", Vec::new());
            Ok((Evidence::Lines(lines), "command"))
        }
        (HandlerConfig::Sql(sql), None) => {
            set_sql(flags, folder, Some(sql))?;
            Ok((Evidence::Rows, "sql"))
        }
        (HandlerConfig::Http(_), None) => Ok((Evidence::LedgerOnly, "http")),
        (HandlerConfig::Pipe(_), None) => Ok((Evidence::LedgerOnly, "pipe")),
        (HandlerConfig::Log, None) => Ok((Evidence::LedgerOnly, "log")),
    }
}

/// The note comes before the user's own statements, in the same transaction.
fn set_sql(flags: &mut Flags, folder: &Path, own: Option<&SqlConfig>) -> Result<(), Failure> {
    let read = |file: &Path| {
        fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read the SQL in {}: {error}", file.display())))
    };
    let statements = own.map(|sql| read(&sql.file)).transpose()?.unwrap_or_default();
    let schema = own.and_then(|sql| sql.schema.as_deref()).map(read).transpose()?.unwrap_or_default();
    for (flag, name, text) in [
        ("sql", "effects.sql", format!("{RECORD}{statements}")),
        ("sql-schema", "schema.sql", format!("{RECORD_SCHEMA}{schema}")),
    ] {
        let path = folder.join(name);
        fs::write(&path, text)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
        set(flags, flag, vec![path.display().to_string()]);
    }
    Ok(())
}

/// The workers' command line; the URL, which may hold a password, is not in it.
fn arguments(flags: &Flags) -> Vec<OsString> {
    let mut arguments = vec![OsString::from("run")];
    let mut rest = Vec::new();
    for (flag, values) in flags.iter().filter(|(flag, values)| *flag != "url" && !values.is_empty()) {
        match *flag {
            "log" => arguments.push("--log".into()),
            // These take what follows, whatever it looks like, so they come last.
            "exec" | "pipe" => {
                rest.push(OsString::from(format!("--{flag}")));
                rest.extend(values.iter().map(OsString::from));
            }
            _ => arguments.extend(values.iter().map(|value| format!("--{flag}={value}").into())),
        }
    }
    arguments.extend(rest);
    arguments
}

fn broker_authority(args: &TortureArgs, config: &Config) -> Result<String, Failure> {
    let endpoints = serve::endpoints(&config.broker)?;
    let plain = endpoints.len() == 1 && !endpoints[0].is_tls();
    if args.cuts > 0 && !plain {
        return Err(Failure::usage("--cuts needs one broker, reached without TLS: amqp://"));
    }
    Ok(endpoints[0].authority())
}
