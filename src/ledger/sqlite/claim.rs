//! Claiming one key: the state machine of [`crate::ledger`], in SQL.

use std::sync::Arc;

use rusqlite::Row;

use super::{batch::Batch, errors::RowError};
use crate::{
    key::Fingerprint,
    ledger::{Claim, ClaimRequest, Millis, State, Ticket},
};

/// Names our UNIQUE index: a conflict with any other is an error of the row, not a duplicate.
const INSERT: &str = "
    INSERT INTO messages (scope_id, key, state, attempts, owner_id, fingerprint, first_seen_ms, updated_ms)
    VALUES (?1, ?2, 'processing', 1, ?3, ?4, ?5, ?5)
    ON CONFLICT (scope_id, key) DO NOTHING";

const LOOK: &str = "
    SELECT id, state, attempts, interrupted, owner_id, fingerprint, first_seen_ms, parked
      FROM messages WHERE scope_id = ?1 AND key = ?2";

const CLAIM_AGAIN: &str = "
    UPDATE messages
       SET state = 'processing', attempts = ?2, interrupted = ?3, owner_id = ?4, fingerprint = ?5, updated_ms = ?6,
           next_attempt_ms = NULL, parked = CASE WHEN state = 'dead' OR ?7 THEN 0 ELSE parked END
     WHERE id = ?1";

const COUNT_DUPLICATES: &str = "
    UPDATE messages SET duplicates = duplicates + ?2, last_duplicate_ms = ?3 WHERE id = ?1";

/// Said when a trigger drops a change without an error (`RAISE(IGNORE)`).
pub(super) const IGNORED: &str = "a trigger of the ledger ignored the change";

pub(super) fn claim(
    batch: &Batch<'_>,
    owner: &Arc<str>,
    request: &ClaimRequest,
    now: Millis,
) -> Result<Claim, RowError> {
    let scope_id = batch.scope_id_or_new(&request.scope)?;
    let owner_id = batch.owner_id_or_new(owner, now)?;
    let key = request.key.as_str();
    let fingerprint = request.fingerprint.map(|f| f.0);

    // Duplicates come in swarms: where the last key was known, it costs less to look for this one first.
    let mut found = match batch.known_key() {
        true => batch.find(LOOK, (scope_id, key), Found::read)?,
        false => None,
    };
    if found.is_none() {
        let inserted = batch.execute(INSERT, (scope_id, key, owner_id, fingerprint, now))?;
        if inserted == 1 {
            batch.set_known_key(false);
            let row = batch.connection().last_insert_rowid();
            return Ok(Claim::Claimed(Ticket { row, attempt: 1, interrupted: false, first_seen: now }));
        }
        found = batch.find(LOOK, (scope_id, key), Found::read)?;
    }
    let Some(found) = found else {
        return Ok(Claim::Refused(IGNORED.to_owned()));
    };
    batch.set_known_key(true);

    let (own, another_body) = (found.owner_id == owner_id, found.is_another_body(request.fingerprint));
    if !another_body && request.origin.is_superseded(found.state, found.attempts, found.parked, own) {
        return Ok(Claim::Superseded);
    }
    let (attempt, interrupted) = match found.state {
        State::Done if another_body => return Ok(Claim::Mismatch),
        State::Done => {
            batch.execute(COUNT_DUPLICATES, (found.id, request.copies, now))?;
            return Ok(Claim::Duplicate);
        }
        State::Processing if own && !another_body => return Ok(Claim::Claimed(found.ticket())),
        State::Processing if own => (found.attempts, found.interrupted),
        State::Processing => match batch.living_owner(found.owner_id)? {
            Some(owner) => return Ok(Claim::InFlight { owner }),
            None => (found.attempts.saturating_add(1), true),
        },
        State::Failed => (found.attempts.saturating_add(1), found.interrupted),
        State::Dead => (1, false),
    };
    let claimed = (found.id, attempt, interrupted, owner_id, fingerprint, now, another_body);
    let changed = batch.execute(CLAIM_AGAIN, claimed)?;
    if changed != 1 {
        return Ok(Claim::Refused(IGNORED.to_owned()));
    }
    Ok(Claim::Claimed(Ticket { attempt, interrupted, ..found.ticket() }))
}

/// The row that a claim met.
struct Found {
    id: i64,
    state: State,
    attempts: u32,
    interrupted: bool,
    owner_id: i64,
    fingerprint: Option<[u8; 16]>,
    first_seen: Millis,
    parked: u32,
}

impl Found {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            state: read_state(row, 1)?,
            attempts: row.get(2)?,
            interrupted: row.get(3)?,
            owner_id: row.get(4)?,
            fingerprint: row.get(5)?,
            first_seen: row.get(6)?,
            parked: row.get(7)?,
        })
    }

    /// Only two known bodies can differ.
    fn is_another_body(&self, fingerprint: Option<Fingerprint>) -> bool {
        matches!((self.fingerprint, fingerprint), (Some(ours), Some(theirs)) if ours != theirs.0)
    }

    fn ticket(&self) -> Ticket {
        Ticket {
            row: self.id,
            attempt: self.attempts,
            interrupted: self.interrupted,
            first_seen: self.first_seen,
        }
    }
}

pub(super) fn read_state(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|e: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, e.into())
    })
}
