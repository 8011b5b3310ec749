//! `ackonce ledger`: what a ledger holds, and what an operator may do to it. Also while workers run.

mod change;
mod history;
pub(super) mod output;
mod prune;

use std::{env, ffi::OsString, time::Duration};

use clap::{Args, Subcommand};

use super::Failure;
use crate::{
    config::{Config, LedgerConfig, LedgerUrl, for_people},
    ledger::{Change, Filter, Inspect, LedgerError, Row, State, sqlite::SqliteReader, unix_millis},
};

#[derive(Args, Clone, Debug)]
pub struct LedgerArgs {
    /// Ledger: a path or sqlite:PATH [env: ACKONCE_LEDGER] [default: ackonce.db]
    #[arg(long, global = true, value_name = "URL")]
    ledger: Option<String>,
    /// Configuration file (TOML) that names the ledger and its retention [env: ACKONCE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum LedgerCommand {
    /// Count the rows of each scope
    Stats,
    /// List rows, the newest change first
    List {
        /// Only of this scope
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
        /// Only in this state: processing, done, failed or dead
        #[arg(long)]
        state: Option<State>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Show all about one key
    Show {
        key: String,
        /// Only in this scope
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
    },
    /// Forget a key, so that its next delivery runs as if it were the first
    Forget {
        key: String,
        /// Only in this scope
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
    },
    /// Let a dead, failed or done message run at its next delivery, from attempt 1
    Retry {
        key: String,
        /// Only in this scope
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
    },
    /// Take a message for done: its deliveries are duplicates from now on
    MarkDone {
        key: String,
        /// Only in this scope
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
    },
    /// Remove what is past the retention, in small steps between the workers' commits
    Prune {
        /// Age to remove from: done and dead rows since their last change; four times that for
        /// failed rows and interrupted ones [env: ACKONCE_RETENTION] [default: 7d]
        #[arg(long, value_name = "TIME")]
        older_than: Option<String>,
        /// Then make the file smaller (VACUUM); workers wait meanwhile
        #[arg(long)]
        compact: bool,
    },
}

/// All that concerns a ledger; the broker's variables need not even be right.
const VARIABLES: [&str; 3] = ["ACKONCE_CONFIG", "ACKONCE_LEDGER", "ACKONCE_RETENTION"];

/// A worker's commits are short; an operator can wait for some of them.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one of the commands.
///
/// # Errors
///
/// A usage failure if there is no ledger; a failure if it cannot be read or the key is not there.
pub async fn run(args: LedgerArgs) -> Result<(), Failure> {
    let LedgerConfig { url: LedgerUrl::Sqlite(path), retention, .. } = args.config(args.older_than())?;
    let configured = args.config(&[])?.retention;
    if std::fs::metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Err(Failure::usage(format!(
            "there is no ledger at {}: name it with --ledger; a worker creates it when it first runs",
            path.display()
        )));
    }
    let json = args.json;
    match args.command {
        LedgerCommand::Prune { compact, .. } => {
            warn_of_early_pruning(retention, configured);
            prune::run(&path, retention, compact, json).await
        }
        command => {
            let ledger = SqliteReader::open(&path, BUSY_TIMEOUT)?;
            inspect(&ledger, command, json).await
        }
    }
}

impl LedgerArgs {
    fn older_than(&self) -> &[String] {
        match &self.command {
            LedgerCommand::Prune { older_than, .. } => older_than.as_slice(),
            _ => &[],
        }
    }

    /// Flags, this process's environment and the file, as `run` reads them.
    fn config(&self, older_than: &[String]) -> Result<LedgerConfig, Failure> {
        let flags = [
            ("config", self.config.as_slice()),
            ("ledger", self.ledger.as_slice()),
            ("retention", older_than),
        ];
        let environment =
            VARIABLES.into_iter().filter_map(|name| Some((OsString::from(name), env::var_os(name)?)));
        let (_, ledger) = Config::load_without_workers(flags, environment)?;
        Ok(ledger)
    }
}

/// What is removed before a message can no longer come back runs a second time.
fn warn_of_early_pruning(retention: Duration, configured: Duration) {
    if retention < configured {
        output::note(&format!(
            "warning: rows older than {} are removed, but the configured retention is {}: a message that comes back \
             in between (from a dead-letter or a delay queue, or sent again) runs a second time",
            for_people(retention),
            for_people(configured)
        ));
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::failed(error)
    }
}

async fn inspect(ledger: &impl Inspect, command: LedgerCommand, json: bool) -> Result<(), Failure> {
    match command {
        LedgerCommand::Stats => {
            let stats = ledger.stats().await?;
            output::print(&if json { output::json(&stats)? } else { output::stats(&stats) })
        }
        LedgerCommand::List { scope, state, limit } => {
            let rows = ledger.list(Filter { scope, state, limit }).await?;
            output::print(&if json { output::json(&rows)? } else { output::list(&rows) })?;
            if !json && rows.len() == limit as usize && limit > 0 {
                output::note(&format!("the newest {limit} rows; --limit N shows more"));
            }
            Ok(())
        }
        LedgerCommand::Show { key, scope } => {
            let rows = found(&key, scope.as_deref(), ledger.show(&key, scope.as_deref()).await?)?;
            output::print(&if json { output::json(&rows)? } else { output::show(&rows, unix_millis()) })
        }
        LedgerCommand::Forget { key, scope } => {
            let rows = found(&key, scope.as_deref(), ledger.show(&key, scope.as_deref()).await?)?;
            let forgotten = ledger.forget(&key, scope.as_deref()).await?;
            output::print(&if json {
                output::json(&forgotten)?
            } else {
                output::forgotten(&rows, forgotten)
            })?;
            refuse_in_flight(&key, forgotten.in_flight)
        }
        LedgerCommand::Retry { key, scope } => {
            change::run(ledger, &key, scope.as_deref(), Change::Retry { even_done: true }, json).await
        }
        LedgerCommand::MarkDone { key, scope } => {
            change::run(ledger, &key, scope.as_deref(), Change::MarkDone, json).await
        }
        // It writes, and so was taken before.
        LedgerCommand::Prune { .. } => Ok(()),
    }
}

fn found(key: &str, scope: Option<&str>, rows: Vec<Row>) -> Result<Vec<Row>, Failure> {
    if !rows.is_empty() {
        return Ok(rows);
    }
    let scope = scope.map_or(String::new(), |scope| format!(" in the scope '{}'", output::printable(scope)));
    Err(Failure::failed(format!(
        "the ledger has no row for the key '{}'{scope}: keys are compared byte by byte",
        output::printable(key)
    )))
}

fn refuse_in_flight(key: &str, rows: u64) -> Result<(), Failure> {
    if rows == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the key '{}' is being worked on and stays: try again when its worker has finished or ended",
        output::printable(key)
    )))
}
