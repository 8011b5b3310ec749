//! Creating a ledger: complete under a name of its own, then linked to its place, so that nobody
//! ever sees half of one, and of two processes that start at once the second finds the first's.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{OpenFlags, TransactionBehavior};
use uuid::Uuid;

use super::{errors::ledger_error, files::beside, migrate::SCHEMA, open::connect};
use crate::ledger::LedgerError;

/// Makes an empty ledger at `path`, where there is no file. Another process may do so meanwhile.
pub(super) fn create(path: &Path) -> Result<(), LedgerError> {
    no_leftovers(path)?;
    let cannot = |e: io::Error| {
        LedgerError::fatal(format!(
            "cannot create the ledger {}: {e}: is its directory writable?",
            path.display()
        ))
    };
    let draft = Draft::new(path).map_err(cannot)?;
    draft.fill().map_err(|e| ledger_error(path, &e))?;
    match fs::hard_link(&draft.path, path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(cannot(e)),
        _ => drop(draft),
    }
    // The name is durable only with its directory.
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()).map_err(cannot)
}

/// Refuses a log without its ledger: SQLite would take it for the new file's own, and replay another
/// ledger's pages into it.
pub(super) fn no_leftovers(path: &Path) -> Result<(), LedgerError> {
    for suffix in ["-wal", "-journal"] {
        let leftover = beside(path, suffix);
        if fs::symlink_metadata(&leftover).is_ok() {
            still_missing(path, &leftover)?;
        }
    }
    Ok(())
}

/// A log without its ledger: unless another process has just created both.
fn still_missing(path: &Path, leftover: &Path) -> Result<(), LedgerError> {
    if fs::metadata(path).is_ok() {
        return Ok(());
    }
    Err(LedgerError::fatal(format!(
        "the ledger {} is missing, but its log {} is there: restore the file, or move the log away to start with \
         an empty ledger",
        path.display(),
        leftover.display()
    )))
}

/// The new ledger under its temporary name, removed when dropped.
struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Readable for this user only, from the first moment; its log takes its mode from it.
    fn new(ledger: &Path) -> io::Result<Self> {
        let path = beside(ledger, format!(".{}.new", Uuid::now_v7().simple()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path })
    }

    /// Closing writes the log into the file and removes it: the file alone is the ledger.
    fn fill(&self) -> rusqlite::Result<()> {
        let mut connection = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE, Duration::from_secs(5))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(SCHEMA)?;
        transaction.commit()?;
        connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            // Gone already, or of no harm.
            let _ = fs::remove_file(beside(&self.path, suffix));
        }
    }
}
