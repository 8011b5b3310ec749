//! Which handler a worker runs. A new kind is one more variant and one more arm here.

mod http;
mod pipe;
mod sql;

use std::time::Duration;

pub use http::HttpConfig;
pub use sql::SqlConfig;

use super::section::{Given, Section};
use crate::handler::exec::ExitCodes;
pub use pipe::PipeConfig;

/// A handler as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerConfig {
    /// Logs each message and is done with it.
    Log,
    Exec(ExecConfig),
    Pipe(PipeConfig),
    Http(HttpConfig),
    Sql(SqlConfig),
}

impl HandlerConfig {
    /// The longest that one run can take; `None` for one that takes no time.
    pub fn longest_run(&self) -> Option<Duration> {
        match self {
            HandlerConfig::Log => None,
            HandlerConfig::Exec(exec) => Some(exec.timeout + exec.kill_grace),
            HandlerConfig::Pipe(pipe) => Some(pipe.timeout + pipe.kill_grace),
            HandlerConfig::Http(http) => Some(http.timeout),
            HandlerConfig::Sql(sql) => Some(sql.timeout),
        }
    }
}

/// A program run once per message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecConfig {
    /// Never empty.
    pub program: String,
    pub args: Vec<String>,
    /// Time for one run, then its process group gets TERM.
    pub timeout: Duration,
    /// Time between TERM and KILL.
    pub kill_grace: Duration,
    pub exit_codes: ExitCodes,
}

/// The keys that name a kind of handler; a worker has one of them.
pub(super) const KINDS: [&str; 6] = ["exec", "shell", "http", "pipe", "sql", "log"];

/// Keys that say more about one kind; where there is another, they mean nothing.
const OF_KINDS: [&str; 4] = ["exit_codes", "pipe_children", "pipe_in_flight", "pipe_framing"];

pub(super) use http::KEYS as HTTP_KEYS;

/// Reads the one handler of a worker.
pub(super) fn read(
    worker: &mut Section,
    timeout: Duration,
    kill_grace: Duration,
    concurrency: u16,
) -> Option<HandlerConfig> {
    let given: Vec<_> = KINDS.into_iter().filter(|kind| worker.has(kind)).collect();
    let handlers = given.iter().filter_map(|kind| read_kind(worker, kind, timeout, kill_grace, concurrency));
    let handlers: Vec<Option<HandlerConfig>> = handlers.collect();
    // Asked for, so that they are known names.
    for key in KINDS.into_iter().chain(OF_KINDS) {
        worker.know(key);
        worker.remove(key);
    }
    http::know(worker);
    sql::know(worker);
    match handlers.len() {
        0 => {
            worker.problem_here(
                "no handler: give exec = [\"PROGRAM\", …], http = \"URL\", sql = \"FILE\" or log = true",
            );
            None
        }
        1 => handlers.into_iter().next().flatten(),
        _ => {
            let given = given.join(", ");
            worker.problem_here(&format!("more than one handler ({given}): keep one of them"));
            None
        }
    }
}

/// `None` if this kind is switched off, `Some(None)` if it is wrong.
fn read_kind(
    worker: &mut Section,
    kind: &str,
    timeout: Duration,
    kill_grace: Duration,
    concurrency: u16,
) -> Option<Option<HandlerConfig>> {
    match kind {
        "log" => match worker.switch("log", LOG) {
            Some(Given { value: false, .. }) => None,
            Some(Given { value: true, .. }) => Some(Some(HandlerConfig::Log)),
            None => Some(None),
        },
        "exec" => {
            let exit_codes = worker.word("exit_codes").map(|codes| codes.value).unwrap_or_default();
            let given = worker.texts("exec", false, EXEC);
            let command = given.and_then(|given| command(worker, given, EXEC));
            Some(command.map(|(program, args)| {
                HandlerConfig::Exec(ExecConfig { program, args, timeout, kill_grace, exit_codes })
            }))
        }
        "shell" => {
            let exit_codes = worker.word("exit_codes").map(|codes| codes.value).unwrap_or_default();
            let (program, args) = match shell(worker) {
                Some(line) => (SHELL_PROGRAM.to_owned(), vec!["-c".to_owned(), line]),
                None => return Some(None),
            };
            Some(Some(HandlerConfig::Exec(ExecConfig { program, args, timeout, kill_grace, exit_codes })))
        }
        "pipe" => Some(pipe::read(worker, timeout, kill_grace, concurrency).map(HandlerConfig::Pipe)),
        "http" => Some(http::read(worker, timeout).map(HandlerConfig::Http)),
        "sql" => Some(sql::read(worker, timeout).map(HandlerConfig::Sql)),
        _ => {
            worker.remove(kind);
            worker.problem_here(&format!(
                "{kind} handlers are not available in this version: use exec, http, sql or log"
            ));
            Some(None)
        }
    }
}

const LOG: &str = "expected true or false (how much is logged is set by --log-level or ACKONCE_LOG_LEVEL)";
const EXEC: &str = "expected a list of texts, the program first, as in [\"./charge.sh\", \"--fast\"]";

const SHELL: &str = "expected a command line for /bin/sh, as in \"jq .id | tee -a ids\"";
const SHELL_PROGRAM: &str = "/bin/sh";
const NUL: &str = "a NUL character cannot be passed to a program: take it out";

/// A program and its arguments. `expected` says how they are written.
fn command(
    worker: &mut Section,
    command: Given<Vec<String>>,
    expected: &str,
) -> Option<(String, Vec<String>)> {
    let mut words = command.value.into_iter();
    let program = words.next().filter(|program| !program.trim().is_empty());
    let args: Vec<_> = words.collect();
    let Some(program) = program else {
        worker.problem(format!("{}: no program is named: {expected}", command.said));
        return None;
    };
    if program.contains('\0') || args.iter().any(|arg| arg.contains('\0')) {
        worker.problem(format!("{}: {NUL}", command.said));
        return None;
    }
    Some((program, args))
}

/// A line for the shell.
fn shell(worker: &mut Section) -> Option<String> {
    let line = worker.text("shell", SHELL)?;
    let wrong = match line.value.as_str() {
        blank if blank.trim().is_empty() => SHELL,
        text if text.contains('\0') => NUL,
        _ => return Some(line.value),
    };
    worker.problem(format!("{}: {wrong}", line.said));
    None
}
