//! What one transaction shares between its rows: ids of names, and who is alive.

use std::{cell::RefCell, collections::HashMap, path::Path, sync::Arc};

use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::{errors::RowError, owners::Owners};
use crate::ledger::{LedgerError, Millis};

/// One transaction's view of the ledger.
pub(super) struct Batch<'a> {
    connection: &'a Connection,
    owners: &'a Owners,
    scope_ids: RefCell<HashMap<Arc<str>, i64>>,
    owner_ids: RefCell<HashMap<Arc<str>, i64>>,
    /// Owners by id: name, and whether they were alive when first asked for.
    living: RefCell<HashMap<i64, (Arc<str>, bool)>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(connection: &'a Connection, owners: &'a Owners) -> Self {
        Self {
            connection,
            owners,
            scope_ids: RefCell::default(),
            owner_ids: RefCell::default(),
            living: RefCell::default(),
        }
    }

    /// After a rollback of any part: ids that were given in it are not there.
    pub(super) fn forget_ids(&self) {
        self.scope_ids.borrow_mut().clear();
        self.owner_ids.borrow_mut().clear();
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    pub(super) fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(sql)
    }

    /// The scope's id, if any key was ever claimed in it.
    pub(super) fn scope_id(&self, name: &Arc<str>) -> rusqlite::Result<Option<i64>> {
        self.id(&self.scope_ids, "SELECT id FROM scopes WHERE name = ?1", name)
    }

    pub(super) fn scope_id_or_new(&self, name: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some(id) = self.scope_id(name)? {
            return Ok(id);
        }
        self.prepare("INSERT INTO scopes (name) VALUES (?1)")?.execute([&**name])?;
        Ok(remember(&self.scope_ids, name, self.connection.last_insert_rowid()))
    }

    /// The owner's id, if it has ever claimed anything.
    pub(super) fn owner_id(&self, name: &Arc<str>) -> rusqlite::Result<Option<i64>> {
        self.id(&self.owner_ids, "SELECT id FROM owners WHERE name = ?1", name)
    }

    pub(super) fn owner_id_or_new(&self, name: &Arc<str>, now: Millis) -> rusqlite::Result<i64> {
        if let Some(id) = self.owner_id(name)? {
            return Ok(id);
        }
        self.prepare("INSERT INTO owners (name, since_ms) VALUES (?1, ?2)")?.execute((&**name, now))?;
        Ok(remember(&self.owner_ids, name, self.connection.last_insert_rowid()))
    }

    /// The owner's name if it is alive; asked once in a transaction.
    pub(super) fn living_owner(&self, id: i64) -> Result<Option<Arc<str>>, RowError> {
        if let Some((name, alive)) = self.living.borrow().get(&id) {
            return Ok(alive.then(|| name.clone()));
        }
        let name: Option<String> = self
            .prepare("SELECT name FROM owners WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let name: Arc<str> = name.unwrap_or_default().into();
        let alive =
            self.owners.is_alive(&name).map_err(|e| unknown_liveness(self.owners.dir(), &name, &e))?;
        self.living.borrow_mut().insert(id, (name.clone(), alive));
        Ok(alive.then_some(name))
    }

    fn id(
        &self,
        known: &RefCell<HashMap<Arc<str>, i64>>,
        sql: &str,
        name: &Arc<str>,
    ) -> rusqlite::Result<Option<i64>> {
        if let Some(id) = known.borrow().get(name) {
            return Ok(Some(*id));
        }
        let id = self.prepare(sql)?.query_row([&**name], |row| row.get(0)).optional()?;
        Ok(id.map(|id| remember(known, name, id)))
    }
}

fn remember(known: &RefCell<HashMap<Arc<str>, i64>>, name: &Arc<str>, id: i64) -> i64 {
    known.borrow_mut().insert(name.clone(), id);
    id
}

/// Neither alive nor dead may be assumed.
pub(super) fn unknown_liveness(dir: &Path, name: &str, error: &std::io::Error) -> LedgerError {
    LedgerError::transient(format!(
        "cannot tell whether the worker {name} is alive: {}: {error}",
        dir.join(name).display()
    ))
}
