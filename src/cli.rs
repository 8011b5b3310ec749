//! The commands, one file each, and what they have in common.

pub mod bench;
pub mod broker;
pub mod check;
pub mod completions;
pub mod dead;
pub mod failure;
pub mod init;
pub mod ledger;
pub mod logging;
pub mod man;
mod progress;
pub mod publish;
pub mod run;
mod screen;
mod signals;
pub mod stack;
pub mod torture;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// Runs a handler once per RabbitMQ message.
#[derive(Debug, Parser)]
#[command(name = "ackonce", version, about, propagate_version = true)]
pub struct Cli {
    /// How much is logged to stderr: off, error, warn, info, debug, trace, or a filter such as
    /// ackonce::worker=debug [default: info]
    #[arg(long, global = true, env = "ACKONCE_LOG_LEVEL", hide_env_values = true, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// How it is logged: text, or json (one object per line) [default: text]
    #[arg(long, global = true, env = "ACKONCE_LOG_FORMAT", hide_env_values = true, value_name = "FORMAT")]
    pub log_format: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Consume a queue and run a handler once per message
    Run(Box<run::RunArgs>),
    /// Say whether a worker would work here: configuration, broker, queue, ledger, handler
    Check(Box<check::CheckArgs>),
    /// Look into a ledger: what became of each message; forget or prune rows
    Ledger(ledger::LedgerArgs),
    /// Look at dead letters, send them back, or remove them
    Dead(Box<dead::DeadArgs>),
    /// Measure what the ledger costs here: a raw consumer against the full path
    Bench(bench::BenchArgs),
    /// Kill workers on your broker, with your handler, and count what is lost or doubled
    Torture(Box<torture::TortureArgs>),
    /// Publish messages, confirmed by the broker
    Publish(Box<publish::PublishArgs>),
    /// Print what a shell completes
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write a page for each command
    Man(man::ManArgs),
}

/// Two threads: the work is waiting for others, and what computes or blocks has threads of its own.
const RUNTIME_THREADS: usize = 2;

/// Runs one command's future to its end. What still blocks then, such as a read of standard input,
/// is left behind.
fn on_runtime(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

impl Command {
    /// Does the work of one command.
    ///
    /// # Errors
    ///
    /// What went wrong, with the exit code.
    pub fn execute(self) -> Result<(), Failure> {
        match self {
            Command::Run(args) => on_runtime(run::execute(*args)),
            Command::Check(args) => on_runtime(check::run(*args)),
            Command::Bench(args) => on_runtime(bench::run(args)),
            Command::Torture(args) => on_runtime(torture::run(*args)),
            Command::Publish(args) => on_runtime(publish::run(*args)),
            Command::Dead(args) => on_runtime(dead::run(*args)),
            Command::Ledger(args) => on_runtime(ledger::run(args)),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}
