//! Opening the ledger that all workers share.

use std::path::Path;

use tracing::warn;

use crate::{
    cli::Failure,
    config::{LedgerConfig, LedgerUrl},
    ledger::sqlite::{FileSystem, FileSystemKind, SqliteLedger, SqliteOptions},
};

/// # Errors
///
/// With code 2 a place where a ledger must not be, before anything is made there; with code 1 what else is wrong.
pub(super) async fn open(config: &LedgerConfig) -> Result<SqliteLedger, Failure> {
    let LedgerUrl::Sqlite(path) = config.url.clone();
    let allowed = config.allow_network_file_system;
    let opening = tokio::task::spawn_blocking(move || {
        judge_place(&path, allowed)?;
        SqliteLedger::open(path, SqliteOptions::default()).map_err(|error| Failure::failed(error.to_string()))
    });
    opening.await.map_err(|panic| Failure::failed(format!("opening the ledger: {panic}")))?
}

/// Two hosts that each believe to have the lock damage the file; that cannot be seen before it has happened.
fn judge_place(path: &Path, allowed: bool) -> Result<(), Failure> {
    // What cannot be found out is no reason to refuse.
    let (_, Ok(FileSystem { name, kind: FileSystemKind::Network })) = FileSystem::of_ledger(path) else {
        return Ok(());
    };
    let place = format!("the ledger {} is on a network file system ({name}), where locks", path.display());
    if allowed {
        warn!("{place} may not hold: only workers of this host may use it");
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{place} between hosts do not hold and a ledger can be damaged: put it on a local disk, or say \
         --allow-network-file-system"
    )))
}
