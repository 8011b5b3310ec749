//! What one transaction shares between its rows: its statements, ids of names, and who is alive.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    path::Path,
    sync::Arc,
};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row};

use super::{errors::RowError, owners::Owners};
use crate::ledger::{LedgerError, Millis};

/// Ids by name. There are few names in a transaction.
type Names = RefCell<Vec<(Arc<str>, i64)>>;

/// One transaction's view of the ledger.
pub(super) struct Batch<'a> {
    connection: &'a Connection,
    owners: &'a Owners,
    /// Taken from the connection's cache at their first use, which costs as much as a small statement, and
    /// given back with the batch.
    statements: RefCell<Vec<(&'static str, CachedStatement<'a>)>>,
    scope_ids: Names,
    owner_ids: Names,
    /// Owners by id: name, and whether they were alive when first asked for.
    living: RefCell<HashMap<i64, (Arc<str>, bool)>>,
    /// Whether the key that was claimed last had a row.
    known_key: Cell<bool>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(connection: &'a Connection, owners: &'a Owners) -> Self {
        Self {
            connection,
            owners,
            statements: RefCell::default(),
            scope_ids: RefCell::default(),
            owner_ids: RefCell::default(),
            living: RefCell::default(),
            known_key: Cell::default(),
        }
    }

    pub(super) fn known_key(&self) -> bool {
        self.known_key.get()
    }

    pub(super) fn set_known_key(&self, known: bool) {
        self.known_key.set(known);
    }

    /// After a rollback of any part: ids that were given in it are not there.
    pub(super) fn forget_ids(&self) {
        self.scope_ids.borrow_mut().clear();
        self.owner_ids.borrow_mut().clear();
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Does something with a statement of the ledger's own.
    pub(super) fn with<T>(
        &self,
        sql: &'static str,
        work: impl FnOnce(&mut CachedStatement<'a>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let known = |(text, _): &(&'static str, _)| *text == sql;
        let position = self.statements.borrow().iter().position(known);
        let mut statement = match position {
            Some(position) => self.statements.borrow_mut().swap_remove(position).1,
            None => self.connection.prepare_cached(sql)?,
        };
        let result = work(&mut statement);
        self.statements.borrow_mut().push((sql, statement));
        result
    }

    /// How many rows a statement has changed.
    pub(super) fn execute(&self, sql: &'static str, parameters: impl Params) -> rusqlite::Result<usize> {
        self.with(sql, |statement| statement.execute(parameters))
    }

    /// The one row that a query finds, if it finds one.
    pub(super) fn find<T>(
        &self,
        sql: &'static str,
        parameters: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.with(sql, |statement| statement.query_row(parameters, read).optional())
    }

    /// The scope's id, if any key was ever claimed in it.
    pub(super) fn scope_id(&self, name: &Arc<str>) -> rusqlite::Result<Option<i64>> {
        self.id(&self.scope_ids, "SELECT id FROM scopes WHERE name = ?1", name)
    }

    pub(super) fn scope_id_or_new(&self, name: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some(id) = self.scope_id(name)? {
            return Ok(id);
        }
        self.execute("INSERT INTO scopes (name) VALUES (?1)", [&**name])?;
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
        self.execute("INSERT INTO owners (name, since_ms) VALUES (?1, ?2)", (&**name, now))?;
        Ok(remember(&self.owner_ids, name, self.connection.last_insert_rowid()))
    }

    /// The owner's name if it is alive; asked once in a transaction.
    pub(super) fn living_owner(&self, id: i64) -> Result<Option<Arc<str>>, RowError> {
        if let Some((name, alive)) = self.living.borrow().get(&id) {
            return Ok(alive.then(|| name.clone()));
        }
        let name: Option<String> =
            self.find("SELECT name FROM owners WHERE id = ?1", [id], |row| row.get(0))?;
        let name: Arc<str> = name.unwrap_or_default().into();
        let alive =
            self.owners.is_alive(&name).map_err(|e| unknown_liveness(self.owners.dir(), &name, &e))?;
        self.living.borrow_mut().insert(id, (name.clone(), alive));
        Ok(alive.then_some(name))
    }

    fn id(&self, known: &Names, sql: &'static str, name: &Arc<str>) -> rusqlite::Result<Option<i64>> {
        if let Some((_, id)) = known.borrow().iter().find(|(known, _)| known == name) {
            return Ok(Some(*id));
        }
        let id = self.find(sql, [&**name], |row| row.get(0))?;
        Ok(id.map(|id| remember(known, name, id)))
    }
}

fn remember(known: &Names, name: &Arc<str>, id: i64) -> i64 {
    known.borrow_mut().push((name.clone(), id));
    id
}

/// Neither alive nor dead may be assumed.
pub(super) fn unknown_liveness(dir: &Path, name: &str, error: &std::io::Error) -> LedgerError {
    LedgerError::transient(format!(
        "cannot tell whether the worker {name} is alive: {}: {error}",
        dir.join(name).display()
    ))
}
