//! The ledger's files, seen from outside: only by `stat`. Opening and closing one of them ourselves
//! would drop the POSIX locks that SQLite holds on it, for the whole process.

use std::{
    ffi::OsStr,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::ledger::LedgerError;

/// `<ledger>-wal`, `<ledger>-shm` or `<ledger>-journal`.
pub(super) fn beside(ledger: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut path = ledger.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// The length of a file; 0 if there is none.
pub(super) fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Which files the paths led to when the ledger was opened.
#[derive(Debug)]
pub(super) struct Identity {
    files: [(PathBuf, (u64, u64)); 3],
}

impl Identity {
    /// Of a ledger that is open and was read, so that its log and the log's index are there.
    pub(super) fn of(ledger: &Path) -> io::Result<Self> {
        let file = |path: PathBuf| -> io::Result<_> {
            let metadata = fs::metadata(&path)?;
            Ok((path, inode(&metadata)))
        };
        Ok(Self {
            files: [file(ledger.to_owned())?, file(beside(ledger, "-wal"))?, file(beside(ledger, "-shm"))?],
        })
    }

    /// Whether the paths still lead there. If not, what SQLite commits is lost with the last handle,
    /// or at odds with what other processes see: nothing may be acked on it.
    /// Returns the log's length.
    pub(super) fn check(&self) -> Result<u64, LedgerError> {
        let mut lengths = [0; 3];
        for ((path, expected), length) in self.files.iter().zip(&mut lengths) {
            let what = match fs::metadata(path) {
                Ok(metadata) if inode(&metadata) == *expected => {
                    *length = metadata.len();
                    continue;
                }
                Ok(_) => "was replaced by another file".to_owned(),
                Err(e) if e.kind() == io::ErrorKind::NotFound => "is gone".to_owned(),
                Err(e) => format!("cannot be found ({e})"),
            };
            return Err(LedgerError::transient(format!(
                "the ledger's file {} {what} while in use: put it back, or start again to open what is there",
                path.display()
            )));
        }
        let [_, log, _] = lengths;
        Ok(log)
    }
}

fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
