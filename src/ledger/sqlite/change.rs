//! What an operator makes of rows: run them again, or take them for done.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{claim::read_state, errors::RowError, read::SqliteReader};
use crate::{
    key::Key,
    ledger::{Change, Changed, LedgerError, Millis, State},
};

/// CROSS JOIN: a lookup in each of the few scopes, not a search through all messages.
const FIND: &str = "
    SELECT m.id, m.state, o.name
      FROM scopes AS s CROSS JOIN messages AS m ON m.scope_id = s.id AND m.key = ?1
      LEFT JOIN owners AS o ON o.id = m.owner_id
     WHERE ?2 IS NULL OR s.name = ?2";

/// No attempt made and no copy waiting: nothing counts against the next delivery.
const RETRY: &str = "
    UPDATE messages
       SET state = 'failed', attempts = 0, parked = 0, interrupted = 0, next_attempt_ms = NULL,
           updated_ms = ?2
     WHERE id = ?1";

const MARK_DONE: &str = "
    UPDATE messages SET state = 'done', interrupted = 0, next_attempt_ms = NULL, updated_ms = ?2 WHERE id = ?1";

impl SqliteReader {
    pub(super) fn change_now(
        &self,
        keys: &[String],
        scope: Option<&str>,
        change: Change,
        now: Millis,
    ) -> Result<Vec<Changed>, LedgerError> {
        self.write(|connection| {
            let mut living = HashMap::new();
            let one = |text: &String| match Key::new(text) {
                Some(key) => self.change_key(connection, &key, scope, change, now, &mut living),
                None => Ok(Changed::default()),
            };
            keys.iter().map(one).collect()
        })
    }

    fn change_key(
        &self,
        connection: &Connection,
        key: &Key,
        scope: Option<&str>,
        change: Change,
        now: Millis,
        living: &mut HashMap<String, bool>,
    ) -> Result<Changed, RowError> {
        let rows: Vec<(i64, State, Option<String>)> = connection
            .prepare_cached(FIND)?
            .query_map((key.as_str(), scope), |row| Ok((row.get(0)?, read_state(row, 1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let mut changed = Changed::default();
        for (id, state, owner) in rows {
            if state == State::Processing && self.is_alive(owner.as_deref(), living)? {
                changed.in_flight += 1;
                continue;
            }
            let update = match (change, state) {
                (Change::MarkDone | Change::Retry { even_done: false }, State::Done) => {
                    changed.done += 1;
                    continue;
                }
                (Change::MarkDone, _) => MARK_DONE,
                (Change::Retry { .. }, _) => RETRY,
            };
            // 0 if a trigger ignores the change.
            changed.changed += connection.prepare_cached(update)?.execute((id, now))? as u64;
        }
        Ok(changed)
    }
}
