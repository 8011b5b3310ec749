//! As the first process of a container: a small init, with the program itself as its child.
//!
//! Whatever a handler leaves behind becomes a child of process 1 when its parent ends, and stays a zombie until that
//! one asks for its status. The worker must not do so itself: who asks for any child's status would now and then take
//! a handler's away from the runtime, which waits for it. So process 1 starts the program once more and does two
//! things only: it passes signals on, and collects whatever ends. No status can go to the wrong place, and without a
//! container nothing of this is there.
//!
//! The kernel gives process 1 no signal that it has no handler for, and kills all others when it ends.

use std::{env, fs, io, process};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait},
};
use tokio::{
    runtime,
    signal::unix::{self, SignalKind, signal},
    sync::mpsc,
};

use super::Failure;

const FIRST_PROCESS: u32 = 1;

/// What is passed on: all that ask a process for something.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];

/// As process 1, runs the program as a child, until that has ended: its exit code, or 128 and the signal that
/// killed it, as shells say it. As any other process it returns `None` at once.
///
/// # Errors
///
/// The child cannot be started.
pub fn run() -> Option<Result<u8, Failure>> {
    if process::id() != FIRST_PROCESS {
        return None;
    }
    let cannot = |error| Failure::failed(format!("cannot run as the first process: {error}"));
    Some(run_child().map_err(cannot))
}

fn run_child() -> io::Result<u8> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let mut asked = signals()?;
        let child = start()?;
        loop {
            // Signals of the same kind that come together are one: everything that has ended is collected.
            if let Some(code) = collect(child)? {
                return Ok(code);
            }
            tokio::select! {
                _ = ended.recv() => {}
                // Never ends: each signal's task holds a sender.
                Some(signal) = asked.recv() => {
                    if !has_come_already(signal) {
                        // It may have ended just now.
                        let _ = kill_process(child, signal);
                    }
                }
            }
        }
    })
}

fn signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(PASSED_ON.len());
    for passed_on in PASSED_ON {
        let mut signals: unix::Signal = signal(SignalKind::from_raw(passed_on.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(passed_on).await.is_ok() {}
        });
    }
    Ok(receiver)
}

/// The same program with the same arguments, environment, streams and process group.
fn start() -> io::Result<Pid> {
    let mut command = process::Command::new(env::current_exe()?);
    let mut arguments = env::args_os();
    if let Some(name) = arguments.next() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
    }
    // A watchdog that is meant for us is meant for it.
    if env::var("WATCHDOG_PID").is_ok_and(|pid| pid == FIRST_PROCESS.to_string()) {
        command.env_remove("WATCHDOG_PID");
    }
    // Dropping the handle leaves the child to us.
    let child = command.args(arguments).spawn()?;
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("the child has no process id"))
}

/// Collects all that have ended; the child's code if it is among them.
fn collect(child: Pid) -> io::Result<Option<u8>> {
    let mut code = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => code = Some(code_of(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(code),
            Err(error) => return Err(error.into()),
        }
    }
}

fn code_of(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A terminal in whose foreground we are has told our whole process group, and so the child too. Told twice, it would
/// stop at once instead of draining.
fn has_come_already(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::QUIT)
        && fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_in_foreground(&stat))
}

/// Whether the process of such a line of `/proc/PID/stat` belongs to the foreground group of its terminal. A group from
/// outside the namespace has the number 0; without a terminal the foreground is -1.
fn is_in_foreground(stat: &str) -> bool {
    // `pid (name) state parent group session terminal foreground …`, where the name may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    fields.get(2).is_some_and(|group| fields.get(5) == Some(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreground_is_read_from_the_group_and_its_terminal() {
        for (stat, foreground) in [
            ("1 (ackonce) S 0 1 1 34816 1 4194560 2", true),
            ("1 (a) b) S 0 1 1 34816 1 4194560 2", true),
            ("1 (ackonce) S 0 0 0 34816 0 4194560 2", true),
            ("1 (ackonce) S 0 1 1 34816 7 4194560 2", false),
            ("1 (ackonce) S 0 1 1 0 -1 4194560 2", false),
            ("", false),
        ] {
            assert_eq!(is_in_foreground(stat), foreground, "{stat}");
        }
    }
}
