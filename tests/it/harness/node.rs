//! A broker of a test's own, to be stopped, killed and asked by its control program.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A private node. Dropping it destroys it.
pub struct Node {
    folder: TempDir,
    pub url: String,
}

impl Node {
    pub fn start_new() -> Self {
        Self::start_with(&[])
    }

    /// RabbitMQ 4, which runs in a chroot; `None` where that cannot be made, because it takes root.
    pub fn start_new_4() -> Option<Self> {
        rustix::process::getuid().is_root().then(|| Self::start_with(&["--version", "4"]))
    }

    fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("node").display().to_string();
        let output = run(&[&["new"], options, &[path.as_str()]].concat());
        let url = String::from_utf8(output.stdout).expect("a URL").trim().to_owned();
        Self { folder, url }
    }

    /// Starts it again with these lines in its configuration, after those that it has.
    pub fn configure(&self, lines: &str) {
        self.stop();
        let file = self.folder.path().join("node/conf.d/test.conf");
        std::fs::write(file, lines).expect("a configuration");
        self.start();
    }

    /// A port of its own that it does not use by itself.
    pub fn spare_port(&self) -> u16 {
        let port = self.url.rsplit(':').next().expect("a port");
        // Nodes take every fourth number, and the two after it.
        port.parse::<u16>().expect("a number") + 3
    }

    pub fn stop(&self) {
        self.run("stop");
    }

    pub fn kill(&self) {
        self.run("kill");
    }

    pub fn start(&self) {
        self.run("start");
    }

    /// Stops it in its tracks (SIGSTOP): it answers nothing, and closes nothing.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let env = String::from_utf8(self.run("env").stdout).expect("text");
        let pid = env.lines().find_map(|line| line.strip_prefix("PID=")).expect("a pid");
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a number")).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Runs the node's control program and returns what it printed.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let folder = self.path();
        let mut all = vec!["ctl", "--dir", &folder];
        all.extend(arguments);
        String::from_utf8_lossy(&run(&all).stdout).into_owned()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "log") {
                    text.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()));
                }
            }
        }
        text
    }

    fn run(&self, verb: &str) -> Output {
        run(&[verb, &self.path()])
    }

    fn path(&self) -> String {
        self.folder.path().join("node").display().to_string()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = command(&["destroy", &self.path()]).status();
    }
}

fn run(arguments: &[&str]) -> Output {
    let output = command(arguments).stderr(Stdio::piped()).output().expect("scripts/broker runs");
    assert!(
        output.status.success(),
        "scripts/broker {arguments:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn command(arguments: &[&str]) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/broker");
    let mut command = Command::new(script);
    command.args(arguments).stdin(Stdio::null()).env_remove("AMQP_URL");
    command
}
