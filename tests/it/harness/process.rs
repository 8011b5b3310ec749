//! The real binary as a child: what it says is kept, and it never outlives its test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::{LIMIT, until};

/// The binary, with none of our settings inherited from whoever runs the tests.
pub fn ackonce() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ackonce"));
    command.env_remove("RUST_MIN_STACK");
    for (name, _) in std::env::vars_os() {
        if name == "AMQP_URL" || name.as_encoded_bytes().starts_with(b"ACKONCE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A running child. Dropping it kills it.
pub struct Process {
    child: Child,
    said: PathBuf,
    printed: PathBuf,
    what: String,
}

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// Standard error.
    pub said: String,
    /// Standard output.
    pub printed: String,
    what: String,
}

impl Process {
    pub fn start(command: Command, folder: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (said, printed) =
            (folder.join(format!("said-{number}")), folder.join(format!("printed-{number}")));
        let output = File::create(&printed).expect("a file").into();
        let error = File::create(&said).expect("a file").into();
        Self::start_with(command, (output, printed), (error, said))
    }

    /// With outputs of which those files are, or become, the record.
    pub fn start_with(
        mut command: Command,
        (output, printed): (Stdio, PathBuf),
        (error, said): (Stdio, PathBuf),
    ) -> Self {
        let what = format!("{command:?}");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(error).spawn();
        Self { child: child.expect("the binary starts"), said, printed, what }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything on its standard error so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    pub fn printed(&self) -> String {
        fs::read_to_string(&self.printed).unwrap_or_default()
    }

    pub async fn until_said(&self, text: &str) {
        until(&format!("the worker says '{text}'"), LIMIT, async || self.said().contains(text)).await;
    }

    pub async fn until_consuming(&self) {
        self.until_said("consuming from").await;
    }

    /// As `kill -9`: it has no chance to do anything.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Asks it to stop and waits for its end.
    pub async fn terminate(self) -> Ended {
        self.signal(rustix::process::Signal::TERM);
        self.ended(LIMIT).await
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a status").is_none()
    }

    /// Asks it to stop, unless it has died already.
    pub fn ask_to_stop(&mut self) {
        if self.is_running() {
            self.signal(rustix::process::Signal::TERM);
        }
    }

    /// Waits for it to end by itself.
    pub async fn ended(mut self, limit: Duration) -> Ended {
        let what = format!("{} ends; it said:\n{}", self.what, self.said());
        until(&what, limit, async || !self.is_running()).await;
        let status = self.child.wait().expect("a status");
        Ended { status, said: self.said(), printed: self.printed(), what: self.what.clone() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = self.said();
            let tail = said.lines().rev().take(40).collect::<Vec<_>>();
            eprintln!("--- {} said", self.what);
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

impl Ended {
    #[track_caller]
    pub fn expect_exit(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.what, self.said);
        self
    }

    #[track_caller]
    pub fn expect_said(&self, text: &str) -> &Self {
        assert!(self.said.contains(text), "'{text}' was not said:\n{}", self.said);
        self
    }
}

/// Whether a process still does anything; a zombie does not.
pub fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// The children of a process, each with its name and state.
pub fn children(parent: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        if status.lines().any(|line| line == format!("PPid:\t{parent}")) {
            found.push(status.lines().take(3).collect::<Vec<_>>().join(" "));
        }
    }
    found
}

/// Their process ids.
pub fn child_pids(parent: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        if status.lines().any(|line| line == format!("PPid:\t{parent}")) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}
