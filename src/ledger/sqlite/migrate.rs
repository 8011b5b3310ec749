//! The schema and its versions.

use rusqlite::{Connection, TransactionBehavior};

/// The schema at its latest version: what a new ledger gets.
pub(super) const SCHEMA: &str = include_str!("../../../schema.sql");

/// `PRAGMA application_id` of every ledger: 'ack1'.
pub(super) const APPLICATION_ID: i64 = 0x6163_6b31;

/// `MIGRATIONS[n]` moves a ledger from version n + 1 to n + 2. Never edit one that was released;
/// `schema.sql` is kept equal to what they all lead to.
const MIGRATIONS: &[&str] = &[];

/// The version this program writes.
pub(super) const VERSION: i64 = 1 + MIGRATIONS.len() as i64;

/// Moves an older ledger up, in one transaction. Two processes may try at once: one waits.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if version(connection)? >= VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = usize::try_from(version(&transaction)?).unwrap_or(0).max(1);
    for migration in MIGRATIONS.iter().skip(from - 1) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

pub(super) fn application_id(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}
