//! The worker processes: started, killed, and asked to stop.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{cli::Failure, handler::program::STACK_IS_OURS};

use super::{path::Path, plan::Plan};

/// Beyond the drain timeout and all that follows it.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Dropping it kills them all.
#[derive(Debug)]
pub(super) struct Crew {
    /// `None` where none runs.
    workers: Vec<Option<Child>>,
    /// The length of each one's log when it was started: those before it have written there too.
    logs_before: Vec<u64>,
    arguments: Vec<OsString>,
    /// Holds passwords: passed on in the environment alone.
    urls: String,
    folder: PathBuf,
}

impl Crew {
    pub(super) fn new(plan: &Plan, workers: u32) -> Self {
        let urls: Vec<&str> = plan.config.broker.urls.iter().map(|url| url.expose()).collect();
        Self {
            workers: (0..workers).map(|_| None).collect(),
            logs_before: vec![0; workers as usize],
            arguments: plan.arguments.clone(),
            urls: urls.join(" "),
            folder: plan.folder.clone(),
        }
    }

    /// Before the start: the workers' connections go by way of a path of ours.
    pub(super) fn connect_through(&mut self, path: &Path) {
        self.urls = path.url(&self.urls);
    }

    pub(super) fn start_all(&mut self) -> Result<(), Failure> {
        (0..self.workers.len()).try_for_each(|worker| self.start(worker))
    }

    fn start(&mut self, worker: usize) -> Result<(), Failure> {
        let log = self.log(worker);
        let cannot = |what: &str, error: std::io::Error| {
            Failure::failed(format!("cannot start a worker: {what}: {error}"))
        };
        let said = OpenOptions::new().create(true).append(true).open(&log);
        let said = said.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (before, said) = said.map_err(|error| cannot(&log.display().to_string(), error))?;
        self.logs_before[worker] = before;
        let program = env::current_exe().map_err(|error| cannot("this program", error))?;
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            let ours = name.as_encoded_bytes().starts_with(b"ACKONCE_");
            let kept = ["ACKONCE_PASSWORD", "ACKONCE_PASSWORD_FILE", STACK_IS_OURS];
            if ours && !kept.iter().any(|kept| name == *kept) {
                command.env_remove(name);
            }
        }
        let child = command
            .args(&self.arguments)
            .env("AMQP_URL", &self.urls)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            // A Ctrl-C in the terminal is meant for this process, which then kills them.
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        self.workers[worker] = Some(child.map_err(|error| cannot("this program", error))?);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// As `kill -9`, at once; then another one in its place.
    pub(super) async fn kill_and_start(&mut self, worker: usize) -> Result<(), Failure> {
        self.check()?;
        if let Some(mut child) = self.workers[worker].take() {
            child.kill().await.map_err(|error| Failure::failed(format!("cannot kill a worker: {error}")))?;
        }
        self.start(worker)
    }

    /// # Errors
    ///
    /// A worker has ended by itself, which none should, whatever happens.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        for worker in 0..self.workers.len() {
            let Some(child) = &mut self.workers[worker] else { continue };
            if let Some(status) = child.try_wait().map_err(Failure::failed)? {
                return Err(self.ended(worker, status));
            }
        }
        Ok(())
    }

    fn ended(&self, worker: usize, status: ExitStatus) -> Failure {
        Failure::failed(format!("a worker ended by itself ({status}): see {}", self.log(worker).display()))
    }

    /// Asked to stop before it could hear of it: a process that has only just started, and has taken nothing, dies of
    /// the signal.
    fn died_young(&self, worker: usize, status: ExitStatus) -> bool {
        let said = fs::read(self.log(worker)).unwrap_or_default();
        let before = usize::try_from(self.logs_before[worker]).unwrap_or(usize::MAX);
        let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default());
        status.signal() == Some(Signal::TERM.as_raw()) && !said.contains("consuming from")
    }

    fn log(&self, worker: usize) -> PathBuf {
        self.folder.join(format!("worker-{worker}.log"))
    }

    /// With SIGTERM.
    ///
    /// # Errors
    ///
    /// A worker that does not end in time, or not as it should.
    pub(super) async fn stop_all(&mut self) -> Result<(), Failure> {
        self.check()?;
        for child in self.workers.iter().flatten() {
            let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            // One that has just ended has no process any more, and is heard of below.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        for worker in 0..self.workers.len() {
            let Some(mut child) = self.workers[worker].take() else { continue };
            match timeout(STOP_LIMIT, child.wait()).await {
                Ok(Ok(status)) if status.success() || self.died_young(worker, status) => {}
                Ok(Ok(status)) => return Err(self.ended(worker, status)),
                Ok(Err(error)) => return Err(Failure::failed(error)),
                Err(_) => {
                    let log = self.log(worker);
                    return Err(Failure::failed(format!("a worker does not stop: see {}", log.display())));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn kill_all(&mut self) {
        for child in self.workers.iter_mut().filter_map(Option::take) {
            let mut child = child;
            // It may have ended already.
            let _ = child.kill().await;
        }
    }
}
