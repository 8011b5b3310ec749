//! What SQLite says, in our words: transient, fatal, or about one row only.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::ledger::{Failure, LedgerError, LedgerErrorKind};

/// Why one row's work ended early.
#[derive(Debug)]
pub(super) enum RowError {
    Sql(Error),
    /// Not about the row: the whole batch fails with it.
    Ledger(LedgerError),
    /// A run has ended the transaction around it: the batch is tried again without that run.
    Broken(Failure),
}

impl From<Error> for RowError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<LedgerError> for RowError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

/// The reason why SQLite refuses this one row, if that is what the error says: a constraint or a
/// trigger. Our own UNIQUE index never reports one, because claims meet it with DO NOTHING.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let about_row = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    );
    about_row.then(|| match constraint_kind(error) {
        Some(kind) => format!("the ledger refused the row: {kind}: {}", words(error)),
        None => format!("the ledger refused the row: {}", words(error)),
    })
}

fn constraint_kind(error: &Error) -> Option<&'static str> {
    match error.sqlite_error()?.extended_code {
        ffi::SQLITE_CONSTRAINT_CHECK => Some("CHECK"),
        ffi::SQLITE_CONSTRAINT_NOTNULL => Some("NOT NULL"),
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Some("FOREIGN KEY"),
        ffi::SQLITE_CONSTRAINT_UNIQUE => Some("UNIQUE"),
        ffi::SQLITE_CONSTRAINT_PRIMARYKEY => Some("PRIMARY KEY"),
        ffi::SQLITE_CONSTRAINT_TRIGGER => Some("trigger"),
        _ => None,
    }
}

/// The error as the ledger's user meets it: which file, what SQLite said, what to do.
pub(super) fn ledger_error(path: &Path, error: &Error) -> LedgerError {
    let file = path.display();
    let said = words(error);
    let (kind, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            LedgerErrorKind::Transient,
            format!("the ledger {file} is locked by another program ({said}): end its transaction"),
        ),
        Some(ErrorCode::DiskFull) => (
            LedgerErrorKind::Transient,
            format!("no room for the ledger {file} ({said}): free some disk space"),
        ),
        Some(ErrorCode::SystemIoFailure) => (
            LedgerErrorKind::Transient,
            format!("cannot read or write the ledger {file} ({said}{}): check its disk", extended(error)),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            LedgerErrorKind::Transient,
            format!("cannot write the ledger {file} ({said}): make it and its directory writable"),
        ),
        Some(ErrorCode::CannotOpen) => (
            LedgerErrorKind::Transient,
            format!("cannot open the ledger {file} ({said}): is it there, and its directory writable?"),
        ),
        Some(ErrorCode::DatabaseCorrupt) => (LedgerErrorKind::Fatal, damaged(path, &said)),
        Some(ErrorCode::NotADatabase) => (
            LedgerErrorKind::Fatal,
            format!(
                "{file} is not a ledger ({said}): give the path of another file, or move this one away to \
                 start with an empty ledger"
            ),
        ),
        _ => (LedgerErrorKind::Transient, format!("the ledger {file} failed: {said}")),
    };
    LedgerError { kind, message }
}

/// Errors of the file, the disk or the lock, which any statement may meet.
pub(super) fn is_of_the_ledger(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::OutOfMemory
        )
    )
}

pub(super) fn damaged(path: &Path, said: &str) -> String {
    format!(
        "the ledger {} is damaged ({said}): restore it from a backup; moving it away starts an empty ledger, \
         which knows none of the keys handled so far",
        path.display()
    )
}

/// SQLite's own sentence.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

fn extended(error: &Error) -> String {
    error.sqlite_error().map_or(String::new(), |e| format!(", code {}", e.extended_code))
}
