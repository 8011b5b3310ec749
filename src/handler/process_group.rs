//! A child process with a process group of its own: signalled, ended and reaped as a whole.

use std::{
    fs, io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group, test_kill_process_group},
};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

/// At a shutdown the grace between TERM and KILL is at most this, so that a handler that was told to
/// stop has ended before the worker gives up on it.
pub(super) const STOP_GRACE_MAX: Duration = Duration::from_secs(5);

/// How long to wait for what was killed to be gone: the kernel does it soon.
const KILLED_LIMIT: Duration = Duration::from_millis(500);
/// How often a group without its leader is looked at: often at first, then less.
const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// A running child and whatever it starts in its group.
///
/// Dropping it kills the whole group; the leader is reaped by the runtime.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    leader: Child,
    /// `None` once nothing of the group is to be signalled any more.
    id: Option<Pid>,
}

/// The parent's ends of the child's three streams.
#[derive(Debug)]
pub(super) struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl ProcessGroup {
    /// Starts the command as the leader of a new group.
    ///
    /// The child begins with no signal blocked and with SIGPIPE's default action, whatever this
    /// process does (the standard library sees to it), and inherits no other descriptor of ours than
    /// the three streams that the command names: all are closed when it begins.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let leader = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = leader.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { leader, id })
    }

    /// The same, with three pipes.
    pub(super) fn spawn_piped(command: &mut Command) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Self::spawn(command)?;
        let leader = &mut group.leader;
        match (leader.stdin.take(), leader.stdout.take(), leader.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((group, Pipes { stdin, stdout, stderr })),
            // Cannot be: all three were asked for just now.
            _ => Err(io::Error::other("the child has no pipes")),
        }
    }

    /// The leader's process id, while it is not reaped.
    pub(super) fn pid(&self) -> Option<u32> {
        self.leader.id()
    }

    /// Waits for the leader to end, and reaps it.
    ///
    /// # Cancellation
    ///
    /// Dropping the future changes nothing; it can be called again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// TERM for the whole group, KILL for what is left of it after the grace, and the leader reaped.
    /// Returns how the leader ended.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the group as it is; dropping the group kills it.
    pub(super) async fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        let all = async {
            let status = self.leader.wait().await;
            gone(self.id).await;
            status
        };
        let status = match timeout(grace, all).await {
            Ok(status) => status,
            Err(_) => {
                self.signal(Signal::KILL);
                let status = self.leader.wait().await;
                let _ = timeout(KILLED_LIMIT, gone(self.id)).await;
                status
            }
        };
        self.id = None;
        status.ok()
    }

    /// Lets go of a group whose leader has ended by itself: what it left running on purpose lives on.
    pub(super) fn release(mut self) {
        self.id = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // An error means that nothing of the group is left. Its number is not given to another
            // process while a member lives or the leader is unreaped, and long after that.
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Returns when no process of the group does anything any more.
async fn gone(group: Option<Pid>) {
    let Some(id) = group else { return };
    let mut pause = LOOK_MIN;
    while test_kill_process_group(id) != Err(Errno::SRCH) && has_living(id) {
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// Whether a process of the group is more than a zombie: an orphan waits for the first process of the
/// machine or container to reap it, which may take its time, or never do it. Where there is no
/// `/proc` to look into, it is taken to live.
fn has_living(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    processes.flatten().any(|process| {
        // `pid (name) state parent group …`, where the name may hold anything.
        let stat = fs::read(process.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let Some((_, fields)) = stat.rsplit_once(')') else { return false };
        let mut fields = fields.split_ascii_whitespace();
        let (state, found) = (fields.next(), fields.nth(1));
        found == Some(&group) && !matches!(state, Some("Z" | "X"))
    })
}
