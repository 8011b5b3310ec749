//! Opening a ledger: only a missing one is created; anything that is not a sound ledger is refused,
//! untouched.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{
    SqliteOptions, create,
    errors::{damaged, ledger_error},
    files::{beside, len},
    migrate::{self, APPLICATION_ID, VERSION},
};
use crate::ledger::LedgerError;

/// Has the fix of the WAL-reset bug, which could corrupt a ledger that several processes write.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Up to this size a ledger is checked page by page when it is opened (about 0.2 s).
const QUICK_CHECK_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The smallest page. SQLite takes a shorter file for an empty database.
const SQLITE_BYTES_MIN: u64 = 512;

/// What a path may keep in a URI.
const URI_SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Opens the ledger at `path` for writing, and says where it really is.
pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Connection, PathBuf), LedgerError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(LedgerError::fatal(format!(
            "SQLite {} is too old: 3.51.3 is needed",
            rusqlite::version()
        )));
    }
    let path = match locate(path)? {
        Located::Present(path) => path,
        Located::Missing(_) if !options.create => return Err(missing(path)),
        Located::Missing(path) => {
            create::create(&path)?;
            path
        }
    };
    let mut connection = open_existing(&path, options.busy_timeout)?;
    configure_writer(&mut connection, &path, options)?;
    Ok((connection, path))
}

/// Opens a ledger that is there, after making sure that it is one and sound.
pub(super) fn open_existing(path: &Path, busy_timeout: Duration) -> Result<Connection, LedgerError> {
    verify_untouched(path)?;
    let error = |e: rusqlite::Error| ledger_error(path, &e);
    let logged = len(&beside(path, "-wal")) > 0;
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, busy_timeout).map_err(error)?;
    // Before reading anything, which would make a log that such a connection cannot remove.
    if connection.is_readonly("main").map_err(error)? {
        return Err(LedgerError::fatal(format!(
            "the ledger {} is read-only for this user: make it and its directory writable",
            path.display()
        )));
    }
    // Until it is known to be a sound ledger, closing it must not write its log into it. (Without a
    // log there is nothing to write, and closing removes the empty files that opening made.)
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, logged).map_err(error)?;
    verify_readable(&connection, path, logged)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(error)?;
    Ok(connection)
}

/// Where a ledger is, or would be, with symbolic links resolved: the lock files lie beside the file
/// itself, so that all who share it agree on them.
pub(super) enum Located {
    Present(PathBuf),
    Missing(PathBuf),
}

pub(super) fn locate(path: &Path) -> Result<Located, LedgerError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return locate_missing(path),
        Err(e) => return Err(LedgerError::fatal(format!("cannot open the ledger {}: {e}", path.display()))),
    };
    let refuse = |why: &str| Err(LedgerError::fatal(format!("the ledger {} {why}", path.display())));
    if metadata.is_dir() {
        return refuse("is a directory: give the path of a file in it");
    }
    if !metadata.is_file() {
        return refuse("is not a regular file: give another path");
    }
    if metadata.len() == 0 {
        return refuse("is an empty file: restore it from a backup; removing it starts an empty ledger");
    }
    if metadata.len() < SQLITE_BYTES_MIN {
        return refuse(&format!(
            "is not one: it has only {} bytes: give the path of another file",
            metadata.len()
        ));
    }
    fs::canonicalize(path)
        .map(Located::Present)
        .map_err(|e| LedgerError::fatal(format!("cannot open the ledger {}: {e}", path.display())))
}

fn locate_missing(path: &Path) -> Result<Located, LedgerError> {
    let file = path.display();
    if fs::symlink_metadata(path).is_ok() {
        return Err(LedgerError::fatal(format!("the ledger {file} is a link that leads nowhere: remove it")));
    }
    let Some(name) = path.file_name() else {
        return Err(LedgerError::fatal(format!("the ledger's path '{file}' names no file")));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::canonicalize(parent).map_err(|e| {
        LedgerError::fatal(format!(
            "the ledger {file} cannot be created: its directory {} cannot be entered ({e}): create it first",
            parent.display()
        ))
    })?;
    Ok(Located::Missing(parent.join(name)))
}

pub(super) fn missing(path: &Path) -> LedgerError {
    LedgerError::fatal(format!(
        "there is no ledger at {}: a worker creates it when it first runs; is the path right?",
        path.display()
    ))
}

/// Opens a connection with the options that all of ours share.
pub(super) fn connect(path: &Path, flags: OpenFlags, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    // No mutex: a connection stays with one thread at a time.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags)?;
    wait_for_locks(&mut connection, busy_timeout)?;
    Ok(connection)
}

/// Waits in short naps. SQLite's own handler sleeps up to 100 ms at a time, and so would miss the
/// gaps that a pruning process leaves between its batches.
fn wait_for_locks(connection: &mut Connection, timeout: Duration) -> rusqlite::Result<()> {
    let mut since = Instant::now();
    connection.busy_handler(Some(move |tries: i32| {
        if tries == 0 {
            since = Instant::now();
        }
        let left = timeout.saturating_sub(since.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(1)));
        !left.is_zero()
    }))
}

/// What the file's own pages say, read without locks and without making or changing any file.
fn verify_untouched(path: &Path) -> Result<(), LedgerError> {
    let uri = format!("file:{}?immutable=1", percent_encode(path.as_os_str().as_bytes(), URI_SAFE));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let looked = connect(Path::new(&uri), flags, Duration::ZERO)
        .and_then(|connection| Ok((migrate::application_id(&connection)?, migrate::version(&connection)?)));
    match looked {
        Ok((id, version)) => verify_ours(path, id, version),
        // While a log exists, the file alone may be half-way through a checkpoint; the log completes it.
        Err(e)
            if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt)
                && len(&beside(path, "-wal")) > 0 =>
        {
            Ok(())
        }
        Err(e) => Err(ledger_error(path, &e)),
    }
}

fn verify_ours(path: &Path, id: i64, version: i64) -> Result<(), LedgerError> {
    let file = path.display();
    if id != APPLICATION_ID {
        return Err(LedgerError::fatal(format!(
            "{file} is an SQLite database, but not a ledger (application_id {id}): give the path of another file"
        )));
    }
    if version > VERSION {
        return Err(LedgerError::fatal(format!(
            "the ledger {file} has schema version {version}, and this program knows up to {VERSION}: use the \
             newer one that wrote it"
        )));
    }
    if version < 1 {
        return Err(LedgerError::fatal(damaged(path, &format!("schema version {version}"))));
    }
    Ok(())
}

/// The same through locks and log, and that the file is complete.
fn verify_readable(connection: &Connection, path: &Path, logged: bool) -> Result<(), LedgerError> {
    let error = |e: rusqlite::Error| ledger_error(path, &e);
    verify_ours(
        path,
        migrate::application_id(connection).map_err(error)?,
        migrate::version(connection).map_err(error)?,
    )?;
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let expected = number("page_count").map_err(error)? * number("page_size").map_err(error)?;
    let expected = expected.max(0).unsigned_abs();
    let found = len(path);
    if found < expected && !logged && len(&beside(path, "-wal")) == 0 {
        let said = format!("it has {found} bytes and should have {expected}");
        return Err(LedgerError::fatal(damaged(path, &said)));
    }
    if found <= QUICK_CHECK_BYTES_MAX {
        let said: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(error)?;
        if said != "ok" {
            // Its first line only says which database, and there is one.
            let said = said.lines().filter(|line| !line.starts_with("***")).collect::<Vec<_>>().join(", ");
            return Err(LedgerError::fatal(damaged(path, &said)));
        }
    }
    Ok(())
}

/// Every option that matters, written out.
fn configure_writer(
    connection: &mut Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<(), LedgerError> {
    let error = |e: rusqlite::Error| ledger_error(path, &e);
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(error)?;
    if mode != "wal" {
        return Err(LedgerError::fatal(format!(
            "the ledger {} cannot use a write-ahead log (journal mode stays '{mode}'): put it on a local disk",
            path.display()
        )));
    }
    connection
        .execute_batch(
            "PRAGMA locking_mode = NORMAL;           -- several processes may share the ledger
             PRAGMA synchronous = FULL;              -- a commit survives a power cut: acks depend on it
             PRAGMA fullfsync = ON;                  -- the same on macOS; no effect elsewhere
             PRAGMA foreign_keys = ON;               -- for tables that a user adds; ours declare none
             PRAGMA wal_autocheckpoint = 1000;       -- pages, 4 MiB
             PRAGMA cache_size = -16384;             -- KiB
             PRAGMA mmap_size = 0;                   -- an I/O error is reported, not a SIGBUS
             PRAGMA temp_store = MEMORY;             -- needs no room in a temporary directory
             PRAGMA cell_size_check = ON;            -- notices a damaged page before using it",
        )
        .map_err(error)?;
    connection
        .pragma_update_and_check(None, "journal_size_limit", options.log_bytes_max, |_| Ok(()))
        .map_err(error)?;
    if let Some(pages) = options.pages_max {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(error)?;
    }
    connection.set_prepared_statement_cache_capacity(256);
    migrate::migrate(connection).map_err(error)
}

#[cfg(test)]
mod tests;
