//! A command for each message: the body on its standard input, the metadata in its environment.

mod environment;
mod exit_codes;
mod trouble;

use std::{io, process::ExitStatus, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, Command},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    Handler, Verdict, Work,
    output::{Tail, with_words},
    process_group::{Pipes, ProcessGroup, STOP_GRACE_MAX},
    program,
};
use crate::message::Message;
use environment::Headers;
pub use exit_codes::ExitCodes;
use trouble::Trouble;

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
    exit_codes: ExitCodes,
    trouble: Trouble,
}

/// How long a child's output is read on after the child has exited: something it left running may
/// hold the pipe open for ever.
const OUTPUT_LINGER: Duration = Duration::from_millis(100);

impl Exec {
    /// `command` is a program, found as `execvp` finds it, and its arguments; no shell is involved.
    /// It must not be empty; an empty one never starts.
    pub fn new(command: &[String], timeout: Duration, kill_grace: Duration, exit_codes: ExitCodes) -> Self {
        let program = command.first().cloned().unwrap_or_default();
        let arguments = command.iter().skip(1).cloned().collect();
        let trouble = Trouble::default();
        Self { spec: Arc::new(Spec { program, arguments, timeout, kill_grace, exit_codes, trouble }) }
    }
}

impl Handler for Exec {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let spec = self.spec.clone();
        Box::pin(async move {
            let verdict = spec.run(work).await;
            match &verdict {
                Verdict::CannotStart { error } => spec.trouble.note(error),
                Verdict::Done | Verdict::Retry { .. } | Verdict::GiveUp { .. } => spec.trouble.clear(),
                Verdict::Stopped => {}
            }
            verdict
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        self.probe()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            program::find(&self.spec.program)?;
            self.spec.trouble.check()
        })
    }

    fn guarantee(&self) -> &'static str {
        "each message runs to success once; a crash between the command's success and the ledger's commit runs it again, with ACKONCE_INTERRUPTED=1"
    }
}

impl Spec {
    async fn run(&self, mut work: Work) -> Verdict {
        if *work.stop.borrow() {
            return Verdict::Stopped;
        }
        let (mut group, pipes) = match self.start(&work) {
            Ok(started) => started,
            Err(error) => {
                return Verdict::CannotStart { error: program::start_error(&self.program, &error) };
            }
        };
        let streams = Streams::follow(pipes, work.message.clone());
        let end = tokio::select! {
            // An end in time counts, even if it is noticed late.
            biased;
            status = group.wait() => End::Exited(status),
            // An error means that the worker is gone, which is a stop as well.
            _ = work.stop.wait_for(|stop| *stop) => End::Stopped,
            () = sleep(self.timeout) => End::TimedOut,
        };
        match end {
            End::Exited(status) => {
                group.release();
                let words = streams.last_words().await;
                match status {
                    Ok(status) => self.judge(status, &words),
                    Err(error) => {
                        Verdict::Retry { error: format!("waiting for the command: {error}"), after: None }
                    }
                }
            }
            End::TimedOut => {
                group.end(self.kill_grace).await;
                let limit = humantime::format_duration(self.timeout);
                let words = streams.last_words().await;
                Verdict::Retry { error: with_words(&format!("timed out after {limit}"), &words), after: None }
            }
            End::Stopped => {
                let status = group.end(self.kill_grace.min(STOP_GRACE_MAX)).await;
                match status.map(|status| self.judge(status, "")) {
                    // A command that ends well within the grace has done its work.
                    Some(verdict @ (Verdict::Done | Verdict::GiveUp { .. })) => verdict,
                    _ => Verdict::Stopped,
                }
            }
        }
    }

    /// A message never keeps its command from starting: headers that do not fit are left out.
    fn start(&self, work: &Work) -> io::Result<(ProcessGroup, Pipes)> {
        match ProcessGroup::spawn(&mut self.command(work, Headers::Fitting)) {
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                ProcessGroup::spawn(&mut self.command(work, Headers::LeftOut))
            }
            started => started,
        }
    }

    fn command(&self, work: &Work, headers: Headers) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        program::remove_our_settings(&mut command);
        environment::set(&mut command, work, headers);
        command
    }

    fn judge(&self, status: ExitStatus, words: &str) -> Verdict {
        let error = with_words(&program::ending(status), words);
        match status.code().map(|code| self.exit_codes.meaning(code)) {
            Some(exit_codes::Meaning::Done) => Verdict::Done,
            Some(exit_codes::Meaning::GiveUp) => Verdict::GiveUp { error },
            Some(exit_codes::Meaning::CannotStart) => {
                Verdict::CannotStart { error: format!("'{}' cannot run: {error}", self.program) }
            }
            Some(exit_codes::Meaning::Retry) | None => Verdict::Retry { error, after: None },
        }
    }
}

enum End {
    Exited(io::Result<ExitStatus>),
    TimedOut,
    Stopped,
}

/// The child's three streams, each served by a task: a child may fill one pipe before emptying the
/// other. The tasks end when this is dropped.
struct Streams {
    input: JoinHandle<()>,
    stdout: Tail,
    stderr: Tail,
}

impl Streams {
    fn follow(pipes: Pipes, message: Arc<Message>) -> Self {
        let input = tokio::spawn(write_body(pipes.stdin, message));
        Self { input, stdout: Tail::follow(pipes.stdout), stderr: Tail::follow(pipes.stderr) }
    }

    /// The tail of what it said: of its standard error, or else of its standard output.
    async fn last_words(&self) -> String {
        let closed = async { tokio::join!(self.stderr.closed(), self.stdout.closed()) };
        let _ = timeout(OUTPUT_LINGER, closed).await;
        let words = self.stderr.text();
        if words.is_empty() { self.stdout.text() } else { words }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.input.abort();
    }
}

/// A child need not read its input: how it exits counts, not the broken pipe.
async fn write_body(mut stdin: ChildStdin, message: Arc<Message>) {
    let _ = stdin.write_all(&message.body).await;
}
