//! Accounting for a whole ledger, row by row: for a check that everything that was sent is there.

use rusqlite::OptionalExtension;

use super::{claim::read_state, errors::RowError, read::SqliteReader};
use crate::ledger::{LedgerError, State};

/// The table in which [`RECORD`] notes each run of an SQL handler, in the run's own transaction.
pub const RECORD_SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS torture_effects (key TEXT NOT NULL, attempt INTEGER NOT NULL) STRICT;\n";

/// One statement of an SQL handler that notes the run it belongs to.
pub const RECORD: &str = "INSERT INTO torture_effects (key, attempt) VALUES (:key, :attempt);\n";

/// What became of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate<'a> {
    pub key: &'a str,
    pub state: State,
    pub attempts: u32,
    /// Attempts that are known to have failed, at most
    /// [`FAILURES_MAX`](crate::ledger::history::FAILURES_MAX).
    pub failures: u32,
}

impl SqliteReader {
    /// How many messages were ever claimed, as long as none was pruned: cheap, whatever the ledger's size.
    ///
    /// # Errors
    ///
    /// The ledger cannot be read. So for the others here.
    pub fn claimed(&self) -> Result<u64, LedgerError> {
        self.read(|connection| {
            let last = connection.query_row("SELECT max(id) FROM messages", [], |row| row.get(0));
            let last: Option<i64> = last.optional()?.flatten();
            Ok(last.unwrap_or_default().max(0).unsigned_abs())
        })
    }

    /// How many messages are done or dead: one pass through the ledger.
    pub fn ended(&self) -> Result<u64, LedgerError> {
        self.read(|connection| {
            let sql = "SELECT count(*) FROM messages WHERE state IN ('done', 'dead')";
            let ended: i64 = connection.query_row(sql, [], |row| row.get(0))?;
            Ok(ended.max(0).unsigned_abs())
        })
    }

    /// Shows every row to `each`.
    pub fn each_fate(&self, mut each: impl FnMut(Fate<'_>)) -> Result<(), LedgerError> {
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT key, state, attempts, (SELECT count(*) FROM failures WHERE message_id = m.id)
                   FROM messages AS m",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                let (state, attempts, failures) = (read_state(row, 1)?, row.get(2)?, row.get(3)?);
                each(Fate { key, state, attempts, failures });
            }
            Ok(())
        })
    }

    /// Shows every effect that [`RECORD`] has noted to `each`: its key and attempt.
    pub fn each_effect(&self, mut each: impl FnMut(&str, u32)) -> Result<(), LedgerError> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT key, attempt FROM torture_effects")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?, row.get(1)?);
            }
            Ok::<(), RowError>(())
        })
    }
}
