//! A command for each message: the body on its standard input, the metadata in its environment.
//!
//! Exit status 0 is done, 65 (`EX_DATAERR`) give up, 126 and 127 (a shell's words for "cannot run"
//! and "not found") that the handler itself is missing, anything else retry.

mod environment;
mod output;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin, Command},
    time::{sleep, timeout},
};

use super::{Handler, Verdict, Work};
use output::Tail;

/// Runs one command per message.
#[derive(Clone, Debug)]
pub struct Exec {
    spec: Arc<Spec>,
}

#[derive(Debug)]
struct Spec {
    program: String,
    arguments: Vec<String>,
    /// From start to SIGTERM.
    timeout: Duration,
    /// From SIGTERM to SIGKILL.
    kill_grace: Duration,
}

/// How long a child's output is read on after the child has exited: something it left running may
/// hold the pipe open for ever.
const OUTPUT_LINGER: Duration = Duration::from_millis(100);

impl Exec {
    /// `command` is a program, found as `execvp` finds it, and its arguments; no shell is involved.
    /// It must not be empty; an empty one never starts.
    pub fn new(command: &[String], timeout: Duration, kill_grace: Duration) -> Self {
        let program = command.first().cloned().unwrap_or_default();
        let arguments = command.iter().skip(1).cloned().collect();
        Self { spec: Arc::new(Spec { program, arguments, timeout, kill_grace }) }
    }
}

impl Handler for Exec {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let spec = self.spec.clone();
        Box::pin(async move { spec.run(work).await })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        self.probe()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { find_program(&self.spec.program).map(drop) })
    }

    fn guarantee(&self) -> &'static str {
        "each message runs to success once; a crash between the command's success and the ledger's commit runs it again, with ACKONCE_INTERRUPTED=1"
    }
}

impl Spec {
    async fn run(&self, mut work: Work) -> Verdict {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        environment::set(&mut command, &work);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return self.not_spawned(&error),
        };
        // A child not waited for yet has an id.
        let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));

        // Input is written while output is read: a child may fill one pipe before emptying the other.
        let input = tokio::spawn(write_body(child.stdin.take(), work.message.clone()));
        let stdout = Tail::follow(child.stdout.take());
        let stderr = Tail::follow(child.stderr.take());

        let end = tokio::select! {
            status = child.wait() => End::Exited(status),
            () = sleep(self.timeout) => End::TimedOut,
            // An error means that the worker is gone, which is a stop as well.
            _ = work.stop.wait_for(|stop| *stop) => End::Stopped,
        };
        let verdict = match end {
            End::Exited(Ok(status)) => {
                let error = last_words(&stderr, &stdout).await;
                self.judge(status, error)
            }
            End::Exited(Err(error)) => {
                Verdict::Retry { error: format!("waiting for the command: {error}"), after: None }
            }
            End::TimedOut => {
                let _ = self.end(&mut child, &group).await;
                let limit = humantime::format_duration(self.timeout);
                let words = last_words(&stderr, &stdout).await;
                Verdict::Retry { error: with_words(&format!("timed out after {limit}"), &words), after: None }
            }
            // A command that ends well within the grace has done its work.
            End::Stopped => match self.end(&mut child, &group).await {
                Some(status) if status.success() => Verdict::Done,
                _ => Verdict::Stopped,
            },
        };
        input.abort();
        group.disarm();
        verdict
    }

    /// TERM for the whole group, and KILL for what is left of it after the grace.
    async fn end(&self, child: &mut Child, group: &ProcessGroup) -> Option<ExitStatus> {
        group.signal(Signal::TERM);
        let status = timeout(self.kill_grace, child.wait()).await;
        group.signal(Signal::KILL);
        match status {
            Ok(status) => status.ok(),
            Err(_) => child.wait().await.ok(),
        }
    }

    fn judge(&self, status: ExitStatus, words: String) -> Verdict {
        match status.code() {
            Some(0) => Verdict::Done,
            Some(65) => Verdict::GiveUp { error: with_words("exit status 65", &words) },
            Some(code @ (126 | 127)) => Verdict::CannotStart {
                error: with_words(&format!("'{}' cannot run: exit status {code}", self.program), &words),
            },
            Some(code) => {
                Verdict::Retry { error: with_words(&format!("exit status {code}"), &words), after: None }
            }
            None => Verdict::Retry { error: with_words(&signal_text(status), &words), after: None },
        }
    }

    fn not_spawned(&self, error: &std::io::Error) -> Verdict {
        let text = format!("cannot start '{}': {error}", self.program);
        match error.kind() {
            // Only what the message brought can be invalid or too long.
            ErrorKind::InvalidInput | ErrorKind::ArgumentListTooLong => Verdict::GiveUp { error: text },
            _ => Verdict::CannotStart { error: text },
        }
    }
}

enum End {
    Exited(std::io::Result<ExitStatus>),
    TimedOut,
    Stopped,
}

/// Kills the child's whole process group if the run is dropped half-way.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // An error means that nothing of the group is left.
            let _ = kill_process_group(pid, signal);
        }
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A child need not read its input: how it exits counts, not the broken pipe.
async fn write_body(stdin: Option<ChildStdin>, message: Arc<crate::message::Message>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&message.body).await;
        let _ = stdin.shutdown().await;
    }
}

async fn last_words(stderr: &Tail, stdout: &Tail) -> String {
    let _ = timeout(OUTPUT_LINGER, async { tokio::join!(stderr.closed(), stdout.closed()) }).await;
    let words = stderr.text();
    if words.is_empty() { stdout.text() } else { words }
}

fn with_words(what: &str, words: &str) -> String {
    if words.is_empty() { what.to_owned() } else { format!("{what}: {words}") }
}

fn signal_text(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(number) => format!("killed by signal {number}"),
        None => status.to_string(),
    }
}

/// Where the program is, by the rules of `execvp(3)`.
///
/// # Errors
///
/// One sentence if there is none that may be executed.
pub fn find_program(program: &str) -> Result<PathBuf, String> {
    let executable =
        |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let path = PathBuf::from(program);
        return if executable(&path) {
            Ok(path)
        } else if path.exists() {
            Err(format!("the handler '{program}' is not executable: chmod +x it"))
        } else {
            Err(format!("the handler '{program}' does not exist: check the path"))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| executable(candidate))
        .ok_or_else(|| format!("the handler '{program}' is not in PATH: install it, or give its path"))
}
