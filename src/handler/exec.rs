//! A command for each message: the body on its standard input, the metadata in its environment.

mod environment;
mod exit_codes;
mod streams;
mod trouble;

use std::{io, process::ExitStatus, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{process::Command, time::sleep};

use super::{
    Handler, Verdict, Work,
    output::with_words,
    process_group::{ProcessGroup, STOP_GRACE_MAX},
    program,
};
use environment::Headers;
pub use exit_codes::ExitCodes;
use streams::{Streams, UNATTENDED};
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
        let (mut group, mut streams) = match self.start(&work) {
            Ok(started) => started,
            Err(error) => {
                return Verdict::CannotStart { error: program::start_error(&self.program, &error) };
            }
        };
        let end = tokio::select! {
            // An end in time counts, even if it is noticed late.
            biased;
            status = attended(&mut group, &mut streams) => End::Exited(status),
            // An error means that the worker is gone, which is a stop as well.
            _ = work.stop.wait_for(|stop| *stop) => End::Stopped,
            () = sleep(self.timeout) => End::TimedOut,
        };
        // It may take its time to end, and say more than its pipes hold.
        if !matches!(end, End::Exited(_)) {
            streams.attend();
        }
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
    fn start(&self, work: &Work) -> io::Result<(ProcessGroup, Streams)> {
        match self.start_with(work, Headers::Fitting) {
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                self.start_with(work, Headers::LeftOut)
            }
            started => started,
        }
    }

    fn start_with(&self, work: &Work, headers: Headers) -> io::Result<(ProcessGroup, Streams)> {
        let mut command = self.command(work, headers);
        let streams = Streams::prepare(&mut command, work.message.clone())?;
        // The command's ends of the pipes are closed here together with `command`.
        Ok((ProcessGroup::spawn(&mut command)?, streams))
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

/// Waits for the leader to end; attends to its streams if that takes longer than most commands do.
async fn attended(group: &mut ProcessGroup, streams: &mut Streams) -> io::Result<ExitStatus> {
    if !streams.has_more_input() {
        tokio::select! {
            biased;
            status = group.wait() => return status,
            () = sleep(UNATTENDED) => {}
        }
    }
    streams.attend();
    group.wait().await
}
