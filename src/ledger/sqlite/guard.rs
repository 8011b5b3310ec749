//! What user's SQL may do while it runs inside the ledger's transaction, and for how long.
//!
//! Hooks on the connection, inactive outside of runs: statements are judged when they are prepared,
//! no commit happens amid a run, and SQL that runs too long is interrupted.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rusqlite::{
    Connection,
    hooks::{AuthAction, AuthContext, Authorization},
};

use super::migrate::SCHEMA;

/// Instructions of SQLite's machine between two looks at the clock: well below a millisecond.
const INSTRUCTIONS: i32 = 2000;

/// What is allowed at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The ledger's own work: everything.
    Own,
    /// A message's statements: rows of the user's tables.
    Run,
    /// The user's schema: also tables, indexes, views and triggers of the user's.
    Schema,
}

/// The hooks of one connection.
#[derive(Clone, Debug)]
pub(super) struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The names of the ledger's tables, views and indexes.
    own: HashSet<String>,
    state: Mutex<State>,
    /// The ledger is being closed.
    closing: AtomicBool,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    limit: Option<Limit>,
    interrupted: Option<Interrupted>,
    denied: Option<String>,
}

/// When a run is interrupted.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) stop: Arc<AtomicBool>,
}

/// Why a run was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    Overdue(Duration),
    Stopped,
    Closing,
}

/// What was noticed during a run.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    pub(super) interrupted: Option<Interrupted>,
    /// Why a statement was not allowed, if one was not.
    pub(super) denied: Option<String>,
}

impl Guard {
    /// Puts the hooks on a connection that only this guard's owner uses.
    pub(super) fn on(connection: &mut Connection) -> rusqlite::Result<Self> {
        let state = State { mode: Mode::Own, limit: None, interrupted: None, denied: None };
        let inner = Inner { own: own_names()?, state: Mutex::new(state), closing: AtomicBool::new(false) };
        let guard = Self(Arc::new(inner));
        let hook = guard.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| hook.judge(&context)))?;
        let hook = guard.clone();
        connection.progress_handler(INSTRUCTIONS, Some(move || hook.interrupts()))?;
        let hook = guard.clone();
        connection.commit_hook(Some(move || hook.forbids_commit()))?;
        Ok(guard)
    }

    /// Does `work` under the rules of `mode`, and says what was noticed meanwhile.
    pub(super) fn watch<T>(
        &self,
        mode: Mode,
        limit: Option<Limit>,
        work: impl FnOnce() -> T,
    ) -> (T, Noticed) {
        *self.state() = State { mode, limit, interrupted: None, denied: None };
        // `work` does not panic: the caller has caught that.
        let result = work();
        let mut state = self.state();
        state.mode = Mode::Own;
        state.limit = None;
        let denied = state.denied.take();
        (result, Noticed { interrupted: state.interrupted, denied })
    }

    /// The run under way, and all that follow, are interrupted: nobody waits for them any more.
    pub(super) fn close(&self) {
        self.0.closing.store(true, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, context: &AuthContext<'_>) -> Authorization {
        let mut state = self.state();
        let why = match state.mode {
            Mode::Own => None,
            mode => self.objection(mode, context),
        };
        match why {
            None => Authorization::Allow,
            Some(why) => {
                state.denied.get_or_insert(why);
                Authorization::Deny
            }
        }
    }

    fn objection(&self, mode: Mode, context: &AuthContext<'_>) -> Option<String> {
        use AuthAction::*;
        match context.action {
            Select | Read { .. } | Function { .. } | Recursive => None,
            // The first thing that a CREATE or DROP is about.
            Insert { table_name: "sqlite_master" } | Delete { table_name: "sqlite_master" } => {
                self.ddl(mode, &[])
            }
            Insert { table_name } | Update { table_name, .. } | Delete { table_name } => {
                self.is_own(mode, table_name).then(|| format!("the table {table_name} is the ledger's own"))
            }
            Transaction { .. } | Savepoint { .. } => {
                Some("it would begin or end a transaction: it already runs inside the ledger's".to_owned())
            }
            Attach { .. } | Detach { .. } => {
                Some("a commit is atomic in one file only: ATTACH and DETACH are not allowed".to_owned())
            }
            Pragma { pragma_name, .. } => {
                Some(format!("PRAGMA {pragma_name} could change how the ledger is kept"))
            }
            CreateIndex { table_name, index_name: name }
            | CreateTrigger { table_name, trigger_name: name }
            | DropIndex { table_name, index_name: name }
            | DropTrigger { table_name, trigger_name: name } => self.ddl(mode, &[table_name, name]),
            CreateTable { table_name } | DropTable { table_name } | AlterTable { table_name, .. } => {
                self.ddl(mode, &[table_name])
            }
            CreateView { view_name } | DropView { view_name } => self.ddl(mode, &[view_name]),
            Reindex { index_name } => self.ddl(mode, &[index_name]),
            Analyze { table_name } => self.ddl(mode, &[table_name]),
            CreateVtable { table_name, .. } | DropVtable { table_name, .. } => self.ddl(mode, &[table_name]),
            _ => Some("it would make something temporary, or is unknown here".to_owned()),
        }
    }

    fn ddl(&self, mode: Mode, names: &[&str]) -> Option<String> {
        if mode != Mode::Schema {
            return Some(
                "it changes the schema: that belongs into the schema's file (--sql-schema)".to_owned(),
            );
        }
        let own = names.iter().find(|name| self.is_own(mode, name))?;
        Some(format!("{own} is the ledger's own"))
    }

    /// A statement that changes the schema writes SQLite's own tables.
    fn is_own(&self, mode: Mode, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.0.own.contains(&name) || (mode != Mode::Schema && name.starts_with("sqlite_"))
    }

    fn interrupts(&self) -> bool {
        let mut state = self.state();
        let Some(limit) = &state.limit else { return false };
        let why = if self.0.closing.load(Relaxed) {
            Interrupted::Closing
        } else if limit.stop.load(Relaxed) {
            Interrupted::Stopped
        } else if Instant::now() >= limit.deadline {
            Interrupted::Overdue(limit.timeout)
        } else {
            return false;
        };
        state.interrupted.get_or_insert(why);
        true
    }

    /// Amid a run a commit becomes a rollback: also where SQLite has rolled the transaction back, and
    /// the run goes on with statements that would be transactions of their own.
    fn forbids_commit(&self) -> bool {
        self.state().mode == Mode::Run
    }
}

/// What a new ledger consists of, so that this list is never older than the schema.
fn own_names() -> rusqlite::Result<HashSet<String>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    let mut statement = connection.prepare("SELECT lower(name) FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}
