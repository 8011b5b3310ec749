//! Making the ledger's file smaller: removing rows only leaves free pages in it.
//!
//! VACUUM copies what is in use into a temporary file, and from there through the log back into the
//! ledger, in one transaction: readers go on, writers wait (as a worker does, and then tries again).
//! So it needs room twice, in two places.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, InterruptHandle};
use rustix::fs::{Access, access, statvfs};

use super::{
    errors::ledger_error,
    files::len,
    open::{self, Located},
};
use crate::ledger::LedgerError;

/// Where SQLite looks for a place for temporary files, in this order.
const TEMP_VARIABLES: [&str; 2] = ["SQLITE_TMPDIR", "TMPDIR"];
const TEMP_DIRS: [&str; 4] = ["/var/tmp", "/usr/tmp", "/tmp", "."];

/// The log's own overhead, in bytes for each byte of a page.
const LOG_OVERHEAD: f64 = 1.02;

/// Compacts one ledger.
#[derive(Debug)]
pub struct Compactor {
    path: PathBuf,
    connection: Connection,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The file's length.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Some program was reading: the file shrinks when it has ended and the next commits come.
    pub pending: bool,
}

impl Compactor {
    /// # Errors
    ///
    /// If there is no sound ledger at `path`.
    pub fn open(path: impl AsRef<Path>, busy_timeout: Duration) -> Result<Self, LedgerError> {
        let path = match open::locate(path.as_ref())? {
            Located::Missing(_) => return Err(open::missing(path.as_ref())),
            Located::Present(path) => path,
        };
        let connection = open::open_existing(&path, busy_timeout)?;
        connection
            .execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA temp_store = FILE")
            .map_err(|e| ledger_error(&path, &e))?;
        Ok(Self { path, connection })
    }

    /// Ends [`Self::run`] from another thread; the ledger is then as before.
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Compacts. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// Which directory has no room, or what else is wrong. The ledger is then as before.
    pub fn run(self) -> Result<Compacted, LedgerError> {
        let bytes_before = len(&self.path);
        let rooms = self.rooms()?;
        if let Some(small) = rooms.iter().find(|room| room.free < room.needed) {
            return Err(LedgerError::transient(small.sentence()));
        }
        self.connection.execute_batch("VACUUM").map_err(|error| self.explain(&error, &rooms))?;
        let checkpoint =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        // What was compacted is committed; the log is emptied by the next one who can.
        let pending = checkpoint.unwrap_or(true);
        Ok(Compacted { bytes_before, bytes_after: len(&self.path), pending })
    }

    /// The places that VACUUM needs room in, and how much.
    fn rooms(&self) -> Result<Vec<Room>, LedgerError> {
        let number = |pragma: &str| -> Result<u64, LedgerError> {
            let number = self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
            number.map(|n| n.max(0).unsigned_abs()).map_err(|e| ledger_error(&self.path, &e))
        };
        let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
        let needed = pages.saturating_mul(number("page_size")?);
        // A rounded estimate; no ledger has so many bytes that a float could not hold them.
        let logged = (needed as f64 * LOG_OVERHEAD) as u64;
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let temp = temp_dir();
        let together = device(dir) == device(&temp);
        let room = |dir: &Path, what, needed| Room { dir: dir.to_owned(), what, needed, free: free(dir) };
        Ok(if together {
            vec![room(dir, "the ledger's log and SQLite's temporary files", needed.saturating_add(logged))]
        } else {
            vec![
                room(&temp, "SQLite's temporary files (SQLITE_TMPDIR names another place)", needed),
                room(dir, "the ledger's log", logged),
            ]
        })
    }

    fn explain(&self, error: &rusqlite::Error, rooms: &[Room]) -> LedgerError {
        let file = self.path.display();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                let rooms: Vec<_> = rooms.iter().map(Room::sentence).collect();
                LedgerError::transient(format!("{error}: {}", rooms.join("; ")))
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LedgerError::transient(format!(
                "the ledger {file} is busy, and is not compacted: another program kept it locked all the time; try \
                 again, or end that program's transaction"
            )),
            Some(ErrorCode::OperationInterrupted) => {
                LedgerError::transient(format!("interrupted: the ledger {file} is not compacted"))
            }
            _ => ledger_error(&self.path, error),
        }
    }
}

/// A place that needs room.
struct Room {
    dir: PathBuf,
    what: &'static str,
    needed: u64,
    free: u64,
}

impl Room {
    fn sentence(&self) -> String {
        format!(
            "compacting needs about {} in {} for {}, and {} are free there: the ledger is as it was",
            mebibytes(self.needed),
            self.dir.display(),
            self.what,
            mebibytes(self.free)
        )
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// As SQLite chooses it.
fn temp_dir() -> PathBuf {
    let named = TEMP_VARIABLES.into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let usable = |dir: &PathBuf| {
        fs::metadata(dir).is_ok_and(|metadata| metadata.is_dir())
            && access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    };
    named.chain(TEMP_DIRS.into_iter().map(PathBuf::from)).find(usable).unwrap_or_else(|| ".".into())
}

/// Free bytes for this user; a file system that does not tell has enough.
fn free(dir: &Path) -> u64 {
    statvfs(dir).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn device(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|metadata| metadata.dev())
}
