//! The files of an `sql` handler, and the handler they become on an open ledger.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    cli::Failure,
    config::SqlConfig,
    ledger::{
        LedgerError,
        sqlite::{Script, SqliteEffects, SqliteLedger},
    },
};

/// What was read of one handler's files.
pub(super) struct Files {
    statements: (PathBuf, String),
    schema: Option<(PathBuf, String)>,
    timeout: Duration,
}

impl Files {
    /// # Errors
    ///
    /// One sentence: which file cannot be read, and why.
    pub(super) fn read(config: &SqlConfig) -> Result<Self, String> {
        Ok(Self {
            statements: read(&config.file)?,
            schema: config.schema.as_deref().map(read).transpose()?,
            timeout: config.timeout,
        })
    }

    /// Makes the schema, then prepares every statement against it.
    ///
    /// # Errors
    ///
    /// With code 2 which statement of which file is not possible; with code 1 why the ledger is not.
    pub(super) async fn effects(self, ledger: Arc<SqliteLedger>) -> Result<SqliteEffects, Failure> {
        let checking = tokio::task::spawn_blocking(move || {
            if let Some((file, schema)) = &self.schema {
                ledger.set_up(schema).map_err(|error| failure(file, &error))?;
            }
            let (file, statements) = &self.statements;
            let script = Script::new(statements, &ledger).map_err(|error| failure(file, &error))?;
            Ok(ledger.effects(script, self.timeout))
        });
        checking.await.map_err(|panic| Failure::failed(format!("preparing SQL: {panic}")))?
    }
}

fn read(file: &Path) -> Result<(PathBuf, String), String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok((file.to_owned(), text)),
        Err(error) => Err(format!("cannot read the SQL in {}: {error}", file.display())),
    }
}

fn failure(file: &Path, error: &LedgerError) -> Failure {
    if error.is_transient() {
        Failure::failed(error.to_string())
    } else {
        Failure::usage(format!("{}: {error}", file.display()))
    }
}
