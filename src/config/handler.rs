//! Which handler a worker runs. A new kind is one more variant and one more arm here.

mod http;
mod sql;

use std::time::Duration;

pub use http::HttpConfig;
pub use sql::SqlConfig;

use super::section::{Given, Section};

/// A handler as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerConfig {
    /// Logs each message and is done with it.
    Log,
    Exec(ExecConfig),
    Http(HttpConfig),
    Sql(SqlConfig),
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
}

/// The keys that name a kind of handler; a worker has one of them.
pub(super) const KINDS: [&str; 5] = ["exec", "http", "pipe", "sql", "log"];

pub(super) use http::KEYS as HTTP_KEYS;

/// Reads the one handler of a worker.
pub(super) fn read(worker: &mut Section, timeout: Duration, kill_grace: Duration) -> Option<HandlerConfig> {
    let given: Vec<_> = KINDS.into_iter().filter(|kind| worker.has(kind)).collect();
    let handlers = given.iter().filter_map(|kind| read_kind(worker, kind, timeout, kill_grace));
    let handlers: Vec<Option<HandlerConfig>> = handlers.collect();
    // Asked for, so that they are known names.
    for kind in KINDS {
        worker.know(kind);
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
) -> Option<Option<HandlerConfig>> {
    match kind {
        "log" => match worker.switch("log", LOG) {
            Some(Given { value: false, .. }) => None,
            Some(Given { value: true, .. }) => Some(Some(HandlerConfig::Log)),
            None => Some(None),
        },
        "exec" => {
            let command = worker.texts("exec", false, EXEC);
            let exec = command.and_then(|command| exec(worker, command, timeout, kill_grace));
            Some(exec.map(HandlerConfig::Exec))
        }
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

fn exec(
    worker: &mut Section,
    command: Given<Vec<String>>,
    timeout: Duration,
    kill_grace: Duration,
) -> Option<ExecConfig> {
    let mut words = command.value.into_iter();
    let program = words.next().filter(|program| !program.trim().is_empty());
    let args: Vec<_> = words.collect();
    let Some(program) = program else {
        worker.problem(format!("{}: no program is named: {EXEC}", command.said));
        return None;
    };
    if program.contains('\0') || args.iter().any(|arg| arg.contains('\0')) {
        worker
            .problem(format!("{}: a NUL character cannot be passed to a program: take it out", command.said));
        return None;
    }
    Some(ExecConfig { program, args, timeout, kill_grace })
}
