//! One way to run `ackonce run`, whose failures show the command and all that it printed.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use ackonce::{
    cli::{self, Cli},
    config::{Config, Problems},
};
use clap::Parser;
use tempfile::TempDir;

/// One invocation of `ackonce run`: its file, flags and environment.
pub struct Setup {
    pub dir: TempDir,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Setup {
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), args: Vec::new(), env: Vec::new() }
    }

    pub fn config_path(&self) -> PathBuf {
        self.dir.path().join("ackonce.toml")
    }

    pub fn file(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub fn bytes(self, bytes: &[u8]) -> Self {
        fs::write(self.config_path(), bytes).unwrap();
        let path = self.config_path().to_string_lossy().into_owned();
        self.args(["--config", &path])
    }

    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn cli(&self) -> Cli {
        self.try_cli().unwrap()
    }

    pub fn try_cli(&self) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["ackonce", "run"].into_iter().chain(self.args.iter().map(String::as_str)))
    }

    /// The configuration, read in this process.
    pub fn load(&self) -> Result<Config, Problems> {
        self.load_from(self.cli())
    }

    pub fn try_load(&self) -> Option<Result<Config, Problems>> {
        self.try_cli().ok().map(|cli| self.load_from(cli))
    }

    fn load_from(&self, cli: Cli) -> Result<Config, Problems> {
        let env = self.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        match cli.command {
            cli::Command::Run(args) => args.config_in(env),
            other => panic!("not run: {other:?}"),
        }
    }

    pub fn run(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ackonce"));
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("run").args(&self.args).output().unwrap()
    }

    /// What the real binary prints on stderr when it refuses this with exit code 2.
    pub fn fails(&self) -> String {
        let output = self.run();
        assert_eq!(output.status.code(), Some(2), "{:?} {:?}\n{}", self.args, self.env, report(&output));
        assert!(output.stdout.is_empty(), "{}", report(&output));
        String::from_utf8(output.stderr).unwrap()
    }
}

pub fn report(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\nstdout: {stdout}\nstderr: {stderr}", output.status)
}
