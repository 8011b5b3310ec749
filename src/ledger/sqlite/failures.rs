//! The failed attempts of each message: the latest few.

use std::time::Duration;

use rusqlite::Row;

use super::batch::Batch;
use crate::ledger::{
    FailedAttempt, Millis,
    history::{FAILURES_MAX, millis},
};

const ADD: &str = "
    INSERT INTO failures (message_id, attempt, ended_ms, ran_ms, error) VALUES (?1, ?2, ?3, ?4, ?5)";

/// All but the latest so many.
const TRIM: &str = "
    DELETE FROM failures
     WHERE id IN (SELECT id FROM failures WHERE message_id = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)";

/// For [`read`]; the oldest first.
pub(super) const OF_MESSAGE: &str = "
    SELECT attempt, ended_ms, ran_ms, error FROM failures WHERE message_id = ?1 ORDER BY id";

/// Adds one to a message's history, in the transaction that finishes the attempt.
pub(super) fn add(
    batch: &Batch<'_>,
    message: i64,
    attempt: u32,
    ran: Option<Duration>,
    error: &str,
    now: Millis,
) -> rusqlite::Result<()> {
    batch.execute(ADD, (message, attempt, now, ran.map(millis), error))?;
    batch.execute(TRIM, (message, FAILURES_MAX)).map(drop)
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<FailedAttempt> {
    Ok(FailedAttempt { attempt: row.get(0)?, ended_ms: row.get(1)?, ran_ms: row.get(2)?, error: row.get(3)? })
}
