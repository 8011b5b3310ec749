//! Looking into a ledger, and what an operator may do to it: beside the writer, also from another
//! process. Each call opens a connection of its own and returns owned rows, so that no read
//! transaction outlives it; one would keep the log from being reused.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use rusqlite::{Connection, TransactionBehavior};

use super::{
    batch::unknown_liveness,
    blocking,
    claim::read_state,
    errors::{RowError, ledger_error},
    failures,
    files::{beside, len},
    open::{self, Located, connect},
    owners::Owners,
};
use crate::{
    key::Key,
    ledger::{
        Change, Changed, Filter, Forgotten, Inspect, LedgerError, Millis, Row, ScopeStats, State, Stats,
    },
};

/// So many owners are kept without asking whether a row still names them: about 20 KiB.
const OWNERS_KEPT: u64 = 256;

/// What all lists of rows select; see [`read_row`].
const COLUMNS: &str =
    "s.name, m.key, m.state, m.attempts, m.duplicates, o.name, m.first_seen_ms, m.updated_ms,
    m.last_duplicate_ms, m.last_error, m.next_attempt_ms, m.id";

/// Reads a ledger that is there; never creates one.
#[derive(Clone, Debug)]
pub struct SqliteReader {
    path: PathBuf,
    owners: Owners,
    busy_timeout: Duration,
    /// Owners to exceed before the next search for those that no row names.
    owners_swept: Arc<AtomicU64>,
}

impl SqliteReader {
    /// # Errors
    ///
    /// If there is no file at `path`, or it is not a sound ledger of a known version. It is left as it is.
    pub fn open(path: impl AsRef<Path>, busy_timeout: Duration) -> Result<Self, LedgerError> {
        match open::locate(path.as_ref())? {
            Located::Missing(_) => Err(open::missing(path.as_ref())),
            Located::Present(path) => {
                open::open_existing(&path, busy_timeout)?;
                Ok(Self::at(path, busy_timeout))
            }
        }
    }

    /// For a ledger that has been opened already.
    pub(super) fn at(path: PathBuf, busy_timeout: Duration) -> Self {
        let owners_swept = Arc::new(AtomicU64::new(OWNERS_KEPT));
        Self { owners: Owners::of(&path), path, busy_timeout, owners_swept }
    }

    /// Where the ledger is, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn count(&self) -> Result<u64, LedgerError> {
        self.read(|connection| {
            Ok(connection.query_row("SELECT count(*) FROM messages", [], |row| read_count(row, 0))?)
        })
    }

    /// Removes dead owners that no row names, and the files of dead ones; only when they have become
    /// many, since it takes a search through the whole ledger.
    pub(super) fn sweep_owners(&self) -> Result<(), LedgerError> {
        let owners = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM owners", [], |row| read_count(row, 0))
        };
        if self.read(|connection| Ok(owners(connection)?))? <= self.owners_swept.load(Relaxed) {
            return Ok(());
        }
        let unnamed: Vec<(i64, String)> = self.read(|connection| {
            connection
                .prepare("SELECT id, name FROM owners WHERE id NOT IN (SELECT owner_id FROM messages)")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()
                .map_err(RowError::from)
        })?;
        let left = self.write(|connection| {
            for (id, name) in &unnamed {
                // In doubt it stays.
                if !self.owners.is_alive(name).unwrap_or(true) {
                    connection.prepare_cached("DELETE FROM owners WHERE id = ?1")?.execute([id])?;
                }
            }
            Ok(owners(connection)?)
        })?;
        self.owners_swept.store(left.saturating_mul(2).max(OWNERS_KEPT), Relaxed);
        Ok(())
    }

    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, RowError>,
    ) -> Result<T, LedgerError> {
        // Not SQLITE_OPEN_READ_ONLY: such a connection leaves the log's files behind if it is the last.
        self.connect()
            .and_then(|connection| {
                connection.pragma_update(None, "query_only", true)?;
                Ok(connection)
            })
            .map_err(RowError::from)
            .and_then(|connection| work(&connection))
            .map_err(|e| self.error(e))
    }

    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, RowError>,
    ) -> Result<T, LedgerError> {
        let work = || {
            let mut connection = self.connect()?;
            connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;")?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        work().map_err(|e| self.error(e))
    }

    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        connect(&self.path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE, self.busy_timeout)
    }

    fn error(&self, error: RowError) -> LedgerError {
        match error {
            RowError::Sql(error) => ledger_error(&self.path, &error),
            RowError::Ledger(error) => error,
            // Nothing runs here.
            RowError::Broken(_) => LedgerError::transient("the transaction has ended"),
        }
    }

    fn select(&self, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<Row>, LedgerError> {
        let mut rows = self.read(|connection| {
            // One snapshot: a row's id may be another's by the next statement.
            let snapshot = connection.unchecked_transaction()?;
            let mut failures = snapshot.prepare(failures::OF_MESSAGE)?;
            let mut read = |row: &rusqlite::Row<'_>| {
                let failures = failures.query_map([row.get::<_, i64>(11)?], failures::read)?;
                Ok(Row { failures: failures.collect::<Result<_, _>>()?, ..read_row(row)? })
            };
            snapshot
                .prepare(&format!("SELECT {COLUMNS} {rest}"))?
                .query_map(parameters, &mut read)?
                .collect::<Result<Vec<_>, _>>()
                .map_err(RowError::from)
        })?;
        let mut known = HashMap::new();
        for row in rows.iter_mut().filter(|row| row.state == State::Processing) {
            row.owner_alive = self.is_alive(row.owner.as_deref(), &mut known)?;
        }
        Ok(rows)
    }

    pub(super) fn is_alive(
        &self,
        owner: Option<&str>,
        known: &mut HashMap<String, bool>,
    ) -> Result<bool, LedgerError> {
        let Some(name) = owner else { return Ok(false) };
        if let Some(alive) = known.get(name) {
            return Ok(*alive);
        }
        let alive = self.owners.is_alive(name).map_err(|e| unknown_liveness(self.owners.dir(), name, &e))?;
        known.insert(name.to_owned(), alive);
        Ok(alive)
    }

    fn stats_now(&self) -> Result<Stats, LedgerError> {
        let scopes = self.read(scope_stats)?;
        Ok(Stats { scopes, bytes: len(&self.path), wal_bytes: len(&beside(&self.path, "-wal")) })
    }

    fn list_now(&self, filter: &Filter) -> Result<Vec<Row>, LedgerError> {
        self.select(
            "FROM messages AS m JOIN scopes AS s ON s.id = m.scope_id LEFT JOIN owners AS o ON o.id = m.owner_id
             WHERE (?1 IS NULL OR s.name = ?1) AND (?2 IS NULL OR m.state = ?2)
             ORDER BY m.updated_ms DESC, m.id DESC LIMIT ?3",
            (&filter.scope, filter.state.map(State::as_str), filter.limit),
        )
    }

    fn show_now(&self, key: &Key, scope: Option<&str>) -> Result<Vec<Row>, LedgerError> {
        // CROSS JOIN: a lookup in each of the few scopes, not a search through all messages.
        self.select(
            "FROM scopes AS s CROSS JOIN messages AS m ON m.scope_id = s.id AND m.key = ?1
             LEFT JOIN owners AS o ON o.id = m.owner_id
             WHERE ?2 IS NULL OR s.name = ?2 ORDER BY s.name",
            (key.as_str(), scope),
        )
    }

    fn forget_now(&self, key: &Key, scope: Option<&str>) -> Result<Forgotten, LedgerError> {
        self.write(|connection| {
            let rows: Vec<(i64, State, Option<String>)> = connection
                .prepare(
                    "SELECT m.id, m.state, o.name
                       FROM scopes AS s CROSS JOIN messages AS m ON m.scope_id = s.id AND m.key = ?1
                       LEFT JOIN owners AS o ON o.id = m.owner_id
                      WHERE ?2 IS NULL OR s.name = ?2",
                )?
                .query_map((key.as_str(), scope), |row| Ok((row.get(0)?, read_state(row, 1)?, row.get(2)?)))?
                .collect::<Result<_, _>>()?;
            let mut forgotten = Forgotten::default();
            for (id, state, owner) in rows {
                if state == State::Processing && self.is_alive(owner.as_deref(), &mut HashMap::new())? {
                    forgotten.in_flight += 1;
                } else {
                    connection.execute("DELETE FROM messages WHERE id = ?1", [id])?;
                    forgotten.removed += 1;
                }
            }
            Ok(forgotten)
        })
    }
}

impl Inspect for SqliteReader {
    fn stats(&self) -> BoxFuture<'_, Result<Stats, LedgerError>> {
        let reader = self.clone();
        blocking(move || reader.stats_now())
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        let reader = self.clone();
        blocking(move || reader.list_now(&filter))
    }

    fn show(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Vec<Row>, LedgerError>> {
        let (reader, key, scope) = (self.clone(), Key::new(key), scope.map(str::to_owned));
        blocking(move || key.map_or(Ok(Vec::new()), |key| reader.show_now(&key, scope.as_deref())))
    }

    fn forget(&self, key: &str, scope: Option<&str>) -> BoxFuture<'_, Result<Forgotten, LedgerError>> {
        let (reader, key, scope) = (self.clone(), Key::new(key), scope.map(str::to_owned));
        blocking(move || {
            key.map_or(Ok(Forgotten::default()), |key| reader.forget_now(&key, scope.as_deref()))
        })
    }

    fn change(
        &self,
        keys: Vec<String>,
        scope: Option<&str>,
        change: Change,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<Changed>, LedgerError>> {
        let (reader, scope) = (self.clone(), scope.map(str::to_owned));
        blocking(move || reader.change_now(&keys, scope.as_deref(), change, now))
    }
}

/// One pass through the table in its own order: grouping by an index would jump about in it.
fn scope_stats(connection: &Connection) -> Result<Vec<ScopeStats>, RowError> {
    let mut by_scope: BTreeMap<String, ScopeStats> = BTreeMap::new();
    let mut names: HashMap<i64, String> = HashMap::new();
    let mut scopes = connection.prepare("SELECT id, name FROM scopes")?;
    let mut rows = scopes.query([])?;
    while let Some(row) = rows.next()? {
        names.insert(row.get(0)?, row.get(1)?);
    }
    let mut messages = connection.prepare("SELECT scope_id, state, duplicates, updated_ms FROM messages")?;
    let mut rows = messages.query([])?;
    while let Some(row) = rows.next()? {
        let Some(scope) = names.get(&row.get(0)?) else { continue };
        if !by_scope.contains_key(scope) {
            by_scope.insert(scope.clone(), ScopeStats { scope: scope.clone(), ..Default::default() });
        }
        let Some(stats) = by_scope.get_mut(scope) else { continue };
        stats.count(read_state(row, 1)?, read_count(row, 2)?, row.get(3)?);
    }
    Ok(by_scope.into_values().collect())
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        scope: row.get(0)?,
        message_id: row.get(1)?,
        state: read_state(row, 2)?,
        attempts: row.get(3)?,
        duplicates: read_count(row, 4)?,
        owner: row.get(5)?,
        owner_alive: false,
        first_seen_ms: row.get(6)?,
        updated_ms: row.get(7)?,
        last_duplicate_ms: row.get(8)?,
        next_attempt_ms: row.get(10)?,
        last_error: row.get(9)?,
        failures: Vec::new(),
    })
}

/// SQLite's integers are signed; our counts are never negative (there are CHECKs).
fn read_count(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|count| count.max(0).unsigned_abs())
}
