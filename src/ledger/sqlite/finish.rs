//! Finishing one claim: a change fenced by everything that its ticket proves.

use std::sync::Arc;

use rusqlite::Row;

use super::{
    batch::Batch,
    claim::{IGNORED, read_state},
    errors::RowError,
    failures,
};
use crate::ledger::{Ending, Finish, Finished, Millis, State, bounded_error};

/// Row ids are used again after pruning, so the id alone proves nothing. A released attempt keeps
/// `interrupted` for the next one, and sets it if it had begun; any other ending answers that question.
const FINISH: &str = "
    UPDATE messages
       SET state = ?6, attempts = ?7, interrupted = (interrupted AND ?8) OR ?14, last_error = ifnull(?9, last_error),
           duplicates = duplicates + ?10,
           last_duplicate_ms = CASE WHEN ?10 > 0 THEN ?11 ELSE last_duplicate_ms END,
           updated_ms = ?11, parked = CASE WHEN ?12 THEN ?5 ELSE parked END, next_attempt_ms = ?13
     WHERE id = ?1 AND scope_id = ?2 AND key = ?3 AND owner_id = ?4 AND attempts = ?5 AND state = 'processing'";

/// The same for what nearly every message comes to: done, and alone. Columns that stay are not checked anew.
const FINISH_DONE: &str = "
    UPDATE messages SET state = 'done', interrupted = 0, updated_ms = ?6, next_attempt_ms = NULL
     WHERE id = ?1 AND scope_id = ?2 AND key = ?3 AND owner_id = ?4 AND attempts = ?5 AND state = 'processing'";

const LOOK: &str = "
    SELECT state, attempts FROM messages WHERE id = ?1 AND scope_id = ?2 AND key = ?3 AND owner_id = ?4";

pub(super) fn finish(
    batch: &Batch<'_>,
    owner: &Arc<str>,
    finish: &Finish,
    now: Millis,
) -> Result<Finished, RowError> {
    let (Some(scope_id), Some(owner_id)) = (batch.scope_id(&finish.scope)?, batch.owner_id(owner)?) else {
        return Ok(Finished::Lost);
    };
    let (row, key, attempt) = (finish.ticket.row, finish.key.as_str(), finish.ticket.attempt);
    let (state, attempts, error) = match &finish.ending {
        Ending::Done => (State::Done, attempt, None),
        Ending::Failed { error, .. } => (State::Failed, attempt, Some(bounded_error(error))),
        Ending::Dead { error, .. } => (State::Dead, attempt, Some(bounded_error(error))),
        Ending::Released { .. } => (State::Failed, attempt.saturating_sub(1), None),
    };
    let changed = if matches!(finish.ending, Ending::Done) && finish.copies == 0 {
        batch.execute(FINISH_DONE, (row, scope_id, key, owner_id, attempt, now))?
    } else {
        let released = matches!(finish.ending, Ending::Released { .. });
        let parameters = (
            row,
            scope_id,
            key,
            owner_id,
            attempt,
            state.as_str(),
            attempts,
            released,
            error,
            finish.copies,
            now,
            matches!(finish.ending, Ending::Failed { parked: true, .. } | Ending::Dead { copied: true, .. }),
            finish.ending.next_attempt(now),
            matches!(finish.ending, Ending::Released { interrupted: true }),
        );
        batch.execute(FINISH, parameters)?
    };
    if changed == 1 {
        if let Some(error) = error {
            failures::add(batch, row, attempt, finish.ran, error, now)?;
        }
        return Ok(Finished::Recorded);
    }
    let read = |row: &Row<'_>| Ok((read_state(row, 0)?, row.get::<_, u32>(1)?));
    let found = batch.find(LOOK, (row, scope_id, key, owner_id), read)?;
    Ok(match found {
        Some(found) if found == (state, attempts) => Finished::Recorded,
        Some((State::Processing, found)) if found == attempt => Finished::Refused(IGNORED.to_owned()),
        Some(_) | None => Finished::Lost,
    })
}
