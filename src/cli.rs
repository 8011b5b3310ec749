//! The commands, one file each, and what they have in common.

pub mod failure;
pub mod ledger;
pub mod logging;
pub mod run;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// Runs a handler once per RabbitMQ message.
#[derive(Debug, Parser)]
#[command(name = "ackonce", version, about, propagate_version = true)]
pub struct Cli {
    /// How much is logged to stderr: off, error, warn, info, debug, trace, or a filter such as
    /// ackonce::worker=debug
    #[arg(
        long,
        global = true,
        env = "ACKONCE_LOG_LEVEL",
        hide_env_values = true,
        default_value = "info",
        value_name = "LEVEL"
    )]
    pub log_level: String,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Consume a queue and run a handler once per message
    Run(Box<run::RunArgs>),
    /// Look into a ledger: what became of each message; forget or prune rows
    Ledger(ledger::LedgerArgs),
}

impl Command {
    /// Does the work of one command.
    ///
    /// # Errors
    ///
    /// What went wrong, with the exit code.
    pub fn execute(self) -> Result<(), Failure> {
        match self {
            Command::Run(args) => run::execute(args.config()?),
            Command::Ledger(args) => ledger::execute(args),
        }
    }
}
