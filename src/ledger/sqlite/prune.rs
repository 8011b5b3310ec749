//! One step of pruning: looks at a bounded number of rows, removes a bounded number of them.

use rusqlite::Row;

use super::{
    batch::Batch,
    claim::read_state,
    errors::{RowError, refusal},
};
use crate::ledger::{Millis, Prune, Pruned, State, prune::Horizon};

/// Rows looked at in one step.
const LOOK_MAX: u32 = 2000;

const LOOK: &str = "
    SELECT id, state, owner_id, first_seen_ms, updated_ms FROM messages WHERE id > ?1 ORDER BY id LIMIT ?2";

pub(super) fn step(batch: &Batch<'_>, prune: Prune, now: Millis) -> Result<Pruned, RowError> {
    let horizon = Horizon::new(prune.retention_ms, now);
    let mut looked_at = 0;
    let mut pruned = Pruned { removed: 0, complete: false, last_row: prune.after_row };
    let mut look = batch.connection().prepare_cached(LOOK)?;
    let mut rows = look.query((prune.after_row, LOOK_MAX))?;
    let mut remove = batch.connection().prepare_cached("DELETE FROM messages WHERE id = ?1")?;
    while let Some(row) = rows.next()? {
        let row = Candidate::read(row)?;
        if horizon.ends_walk(row.first_seen) {
            return Ok(Pruned { complete: true, ..pruned });
        }
        if horizon.is_past(row.state, row.updated)
            && (row.state != State::Processing || batch.living_owner(row.owner_id)?.is_none())
        {
            if pruned.removed >= u64::from(prune.rows_max) {
                return Ok(pruned);
            }
            match remove.execute([row.id]) {
                Ok(_) => pruned.removed += 1,
                // A trigger keeps this row; the others can go.
                Err(e) if refusal(&e).is_some() && !batch.connection().is_autocommit() => {}
                Err(e) => return Err(e.into()),
            }
        }
        pruned.last_row = row.id;
        looked_at += 1;
    }
    Ok(Pruned { complete: looked_at < LOOK_MAX, ..pruned })
}

struct Candidate {
    id: i64,
    state: State,
    owner_id: i64,
    first_seen: Millis,
    updated: Millis,
}

impl Candidate {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            state: read_state(row, 1)?,
            owner_id: row.get(2)?,
            first_seen: row.get(3)?,
            updated: row.get(4)?,
        })
    }
}
