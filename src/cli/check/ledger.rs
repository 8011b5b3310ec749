//! The ledger: can a worker use it, and what does it lie on?

use std::{path::Path, time::Duration};

use tokio::{task::spawn_blocking, time::timeout};

use super::report::Line;
use crate::{
    config::{Config, LedgerUrl, for_people},
    ledger::sqlite::{FileSystem, FileSystemKind, Survey, sqlite_version, survey},
};

/// For another program's transaction to end.
const BUSY: Duration = Duration::from_secs(2);
/// For all that is asked of the disk: a server behind it may be away.
const LIMIT: Duration = Duration::from_secs(20);

const LEDGER: &str = "ledger";
const FILE_SYSTEM: &str = "file system";
const RETENTION: &str = "retention";

/// All about the configuration's one ledger.
pub(super) async fn look(config: &Config) -> Vec<Line> {
    let LedgerUrl::Sqlite(path) = &config.ledger.url;
    let (looking, allowed) = (path.clone(), config.ledger.allow_network_file_system);
    let looked = timeout(LIMIT, spawn_blocking(move || [ledger(&looking), file_system(&looking, allowed)]));
    let mut lines = match looked.await {
        Ok(Ok(lines)) => lines.to_vec(),
        Ok(Err(panic)) => vec![Line::fail(LEDGER, format!("{}: {panic}", path.display()), "report this")],
        Err(_) => vec![Line::fail(
            LEDGER,
            format!("{}: its disk does not answer within {}", path.display(), for_people(LIMIT)),
            "look at the disk, or whether its server is away; put the ledger on a local disk",
        )],
    };
    lines.push(Line::ok("SQLite", sqlite_version()));
    lines.push(retention(config));
    lines
}

fn ledger(path: &Path) -> Line {
    match survey(path, BUSY) {
        Ok(Survey::Present { path, bytes, messages }) => Line::ok(
            LEDGER,
            format!("{}: sound and writable, {messages} messages, {bytes} bytes", path.display()),
        ),
        Ok(Survey::Missing { path, directory }) => Line::ok(
            LEDGER,
            format!("{}: will be created; {} is writable", path.display(), directory.display()),
        ),
        Err(error) => {
            Line::fail(LEDGER, error.message, "the ledger is --ledger, ACKONCE_LEDGER or [ledger] url")
        }
    }
}

fn file_system(path: &Path, network_is_allowed: bool) -> Line {
    let (place, found) = FileSystem::of_ledger(path);
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let value = format!("of {}: not known ({error})", place.display());
            return Line::fail(FILE_SYSTEM, value, "give the ledger a path on a local disk");
        }
    };
    let value = format!("{}, of {}", found.name, place.display());
    match found.kind {
        FileSystemKind::Local => Line::ok(FILE_SYSTEM, value),
        FileSystemKind::Volatile => Line::warn(
            FILE_SYSTEM,
            format!("{value}: it is gone with the host or container, and the ledger forgets what was done"),
            "put the ledger on a disk or a volume that stays",
        ),
        FileSystemKind::Network => {
            let value =
                format!("{value}: locks between hosts do not hold there, and a ledger can be damaged");
            let hint = "put the ledger on a local disk";
            if network_is_allowed {
                Line::warn(FILE_SYSTEM, value, hint)
            } else {
                Line::fail(FILE_SYSTEM, value, hint)
            }
        }
        FileSystemKind::Unknown => Line::warn(
            FILE_SYSTEM,
            format!("{value}: nothing is known of it"),
            "make sure that its files are on this host, and that locks work",
        ),
    }
}

/// A shorter one is no valid configuration, so this is only told.
fn retention(config: &Config) -> Line {
    let longest = config.workers.iter().map(|worker| worker.horizon).max().unwrap_or_default();
    Line::ok(
        RETENTION,
        format!(
            "{}; a message is under way through its attempts for {} at most",
            for_people(config.ledger.retention),
            for_people(longest)
        ),
    )
}
