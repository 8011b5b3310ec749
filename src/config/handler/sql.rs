//! The settings of an `sql` handler.

use std::{path::PathBuf, time::Duration};

use crate::config::section::Section;

/// Statements that are run for each message in the ledger's own transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlConfig {
    /// The file with the statements.
    pub file: PathBuf,
    /// A file with the schema they need, run once at each start.
    pub schema: Option<PathBuf>,
    /// Time for one message's statements, then they are interrupted.
    pub timeout: Duration,
}

const EXPECTED: &str = "expected the name of a file with SQL statements";

pub(super) fn read(worker: &mut Section, timeout: Duration) -> Option<SqlConfig> {
    let schema = worker.text("sql_schema", EXPECTED).map(|file| PathBuf::from(file.value));
    let file = worker.text("sql", EXPECTED)?;
    if file.value.trim().is_empty() {
        worker.problem(format!("{}: {EXPECTED}", file.said));
        return None;
    }
    Some(SqlConfig { file: PathBuf::from(file.value), schema, timeout })
}

/// Makes the schema's setting known where there is no `sql` handler, and says that it has no effect.
pub(super) fn know(worker: &mut Section) {
    if worker.has("sql_schema") {
        worker.problem_here("sql_schema is only for sql handlers: take it out, or give sql");
        worker.remove("sql_schema");
    }
    worker.know("sql_schema");
}
