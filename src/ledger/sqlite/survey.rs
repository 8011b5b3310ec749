//! Whether a worker could use a ledger, found out without making or changing one.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::config::DbConfig;
use rustix::fs::{Access, access};

use super::{
    create,
    errors::ledger_error,
    files::{beside, len},
    open::{self, Located},
    owners::Owners,
};
use crate::ledger::LedgerError;

/// What was found at a ledger's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survey {
    /// A sound ledger that can be written.
    Present { path: PathBuf, bytes: u64, messages: u64 },
    /// Nothing, in a directory where a worker can create it.
    Missing { path: PathBuf, directory: PathBuf },
}

/// The version of the SQLite that ledgers are written with.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Looks at the ledger at `path` as a worker would open it. Blocks.
///
/// SQLite keeps two files beside a ledger that is open, and removes them when nobody has it open any more; of
/// a ledger that a crash has left with its log, log and index stay as they are.
///
/// # Errors
///
/// Why a worker could not open or write it: one sentence with what to do.
pub fn survey(path: impl AsRef<Path>, busy_timeout: Duration) -> Result<Survey, LedgerError> {
    match open::locate(path.as_ref())? {
        Located::Present(path) => present(path, busy_timeout),
        Located::Missing(path) => {
            create::no_leftovers(&path)?;
            let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
            writable(&directory).map_err(|error| {
                LedgerError::fatal(format!(
                    "cannot create the ledger {}: its directory is not writable ({error}): make it so, or \
                     give another path",
                    path.display()
                ))
            })?;
            Ok(Survey::Missing { path, directory })
        }
    }
}

fn present(path: PathBuf, busy_timeout: Duration) -> Result<Survey, LedgerError> {
    let error = |e: rusqlite::Error| ledger_error(&path, &e);
    let logged = len(&beside(&path, "-wal")) > 0;
    let connection = open::open_existing(&path, busy_timeout)?;
    // The log that a crash has left is for the next worker to write into the ledger.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, logged).map_err(error)?;
    let messages: i64 =
        connection.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).map_err(error)?;
    // Takes the lock of a writer, and writes nothing.
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").map_err(error)?;
    drop(connection);
    owners_writable(&path)?;
    Ok(Survey::Present { bytes: len(&path), messages: messages.max(0).unsigned_abs(), path })
}

/// Each worker makes a lock file in the directory beside the ledger, and that directory first of all.
fn owners_writable(path: &Path) -> Result<(), LedgerError> {
    let owners = Owners::of(path);
    let directory = if owners.dir().exists() { Some(owners.dir()) } else { path.parent() };
    let directory = directory.unwrap_or(Path::new("/"));
    writable(directory).map_err(|error| {
        LedgerError::fatal(format!(
            "a worker on the ledger {} could not make its lock file in {} ({error}): make that writable",
            path.display(),
            directory.display()
        ))
    })
}

fn writable(directory: &Path) -> io::Result<()> {
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}
