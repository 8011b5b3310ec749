//! The program of a handler: where it is, whether it could start, and what it must not inherit.

use std::{
    ffi::OsStr,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::ExitStatus,
};

use tokio::process::Command;

/// Where `execvp(3)` looks when there is no `PATH`.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Where the program is, by the rules of `execvp(3)`.
///
/// # Errors
///
/// One sentence if there is none that may be executed.
pub(super) fn find(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH");
    find_in(program, path.as_deref().unwrap_or(OsStr::new(PATH_DEFAULT)))
}

fn find_in(program: &str, path: &OsStr) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return if is_executable(&path) {
            Ok(path)
        } else if path.is_dir() {
            Err(format!("the handler '{program}' is a directory: give the path of a program"))
        } else if path.exists() {
            Err(format!("the handler '{program}' is not executable: chmod +x it"))
        } else {
            Err(format!("the handler '{program}' does not exist: check the path"))
        };
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(program))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| format!("the handler '{program}' is not in PATH: install it, or give its path"))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The variable by which Rust's standard library sizes the stacks of threads.
pub const STACK_VARIABLE: &str = "RUST_MIN_STACK";
/// Set beside it if it was set by us.
pub const STACK_IS_OURS: &str = "ACKONCE_STACK_SET";

/// By these a supervisor is told things of us, and of nobody else.
const SUPERVISOR_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// By OpenTelemetry's convention for traces in an environment.
pub(super) const TRACEPARENT: &str = "TRACEPARENT";
pub(super) const TRACESTATE: &str = "TRACESTATE";

/// Takes our own settings and secrets, and the trace that the worker itself may be part of, out of what the
/// child inherits.
pub(super) fn remove_our_settings(command: &mut Command) {
    if std::env::var_os(STACK_IS_OURS).is_some() {
        command.env_remove(STACK_VARIABLE);
    }
    SUPERVISOR_VARIABLES.into_iter().for_each(|name| {
        command.env_remove(name);
    });
    command.env_remove(TRACEPARENT).env_remove(TRACESTATE);
    for (name, _) in std::env::vars_os() {
        if name == "AMQP_URL" || name.as_encoded_bytes().starts_with(b"ACKONCE_") {
            command.env_remove(&name);
        }
    }
}

/// One sentence on why a program did not start. Says nothing of its arguments.
pub(super) fn start_error(program: &str, error: &io::Error) -> String {
    match (error.kind(), find(program)) {
        // "No such file", about a file that is there, is about the one that its first line names.
        (ErrorKind::NotFound, Ok(path)) => format!(
            "cannot start '{program}': the interpreter that the first line of {} names does not exist: \
             correct it",
            path.display()
        ),
        (ErrorKind::NotFound | ErrorKind::PermissionDenied, Err(why)) => why,
        _ => format!("cannot start '{program}': {error}"),
    }
}

/// How a program ended, in words: `exit status 7`, `killed by signal 9`.
pub(super) fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(number)) => format!("killed by signal {number}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_execvp_finds_it() {
        assert_eq!(find_in("sh", OsStr::new("/nowhere:/bin")), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find_in("/bin/sh", OsStr::new("")), Ok(PathBuf::from("/bin/sh")));
        for (program, why) in [
            ("sh", "not in PATH"),
            ("/bin/no-such", "does not exist"),
            ("/etc/passwd", "not executable"),
            ("/bin", "a directory"),
        ] {
            let error = find_in(program, OsStr::new("/nowhere")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
