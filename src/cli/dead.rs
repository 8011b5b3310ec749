//! `ackonce dead`: what lies in a dead-letter queue: look at it, send it back, remove it.
//! The work is [`Desk`]'s; here is what is asked for, and what is told.

mod list;
mod purge;
mod replay;
mod report;
mod selection;
mod show;

use clap::{Args, Subcommand};

use super::{Failure, broker::BrokerArgs, ledger::output};
use crate::{
    broker::{BrokerError, Kind, topology},
    worker::desk::{CloseError, DeadLetter, Desk},
};

#[derive(Args, Clone, Debug)]
pub struct DeadArgs {
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum DeadCommand {
    /// List letters, the oldest first
    List(list::ListArgs),
    /// Show one letter whole: properties, headers, body
    Show(show::ShowArgs),
    /// Send letters back to the work queue, as fresh runs
    Replay(replay::ReplayArgs),
    /// Remove letters for good
    Purge(purge::PurgeArgs),
}

/// Which queue, where.
#[derive(Args, Clone, Debug)]
struct Place {
    /// The work queue whose dead letters these are
    #[arg(long, value_name = "QUEUE", env = "ACKONCE_QUEUE")]
    queue: String,

    /// The dead-letter queue [default: the work queue's name and .dead]
    #[arg(long, value_name = "QUEUE")]
    dead_queue: Option<String>,

    /// One JSON object per line on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

/// Runs one of the commands.
///
/// # Errors
///
/// A usage failure before anything was touched; a failure if not all was done that was asked for.
pub async fn run(args: DeadArgs) -> Result<(), Failure> {
    match args.command {
        DeadCommand::List(args) => list::run(args).await,
        DeadCommand::Show(args) => show::run(args).await,
        DeadCommand::Replay(args) => replay::run(args).await,
        DeadCommand::Purge(args) => purge::run(args).await,
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        Self::failed(error)
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        Self::failed(error)
    }
}

impl Place {
    async fn open(&self) -> Result<Desk, Failure> {
        topology::check_queue_name(&self.queue).map_err(Failure::usage)?;
        let dead_queue = self.dead_queue.clone().unwrap_or_else(|| topology::dead_letter_queue(&self.queue));
        if dead_queue == self.queue {
            return Err(Failure::usage("the dead-letter queue is the work queue itself"));
        }
        let endpoints = self.broker.endpoints()?;
        for warning in endpoints.iter().flat_map(|endpoint| endpoint.warnings()) {
            output::note(&format!("warning: {warning}"));
        }
        let warn = |warning: &str| output::note(&format!("warning: {}", output::printable(warning)));
        Desk::open(endpoints, &self.queue, &dead_queue, warn).await.map_err(|error| match error.kind() {
            Kind::NotFound => Failure::failed(format!(
                "{error}: nothing was ever dead-lettered there, or --dead-queue names where it was"
            )),
            _ => Failure::from(error),
        })
    }
}

/// What a letter is called, for a terminal.
fn shown(letter: &DeadLetter) -> String {
    output::printable(letter.name())
}
