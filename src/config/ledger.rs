//! The ledger's settings.

use std::{path::PathBuf, time::Duration};

use super::section::{Given, Section};

/// Where the ledger is and how long it remembers.
#[derive(Clone, Debug)]
pub struct LedgerConfig {
    pub url: LedgerUrl,
    /// Longer than the longest way a message can take through its attempts.
    pub retention: Duration,
    /// A worker runs although locks may not hold where the ledger is.
    pub allow_network_file_system: bool,
}

/// A ledger by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerUrl {
    /// A database file; a relative path counts from the working directory.
    Sqlite(PathBuf),
}

const PATH_DEFAULT: &str = "ackonce.db";
const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);
/// A hundred years: for ever, as far as sums of times are concerned.
const RETENTION_MAX: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// The ledger, and how to begin a sentence about its retention.
pub(super) fn read(ledger: &mut Section) -> (LedgerConfig, Given<Duration>) {
    let given = ledger.text("url", "expected a path or sqlite:PATH");
    let url = given.and_then(|given| url(ledger, &given));
    let retention = ledger.time("retention", Duration::from_secs(1)..=RETENTION_MAX);
    let retention = retention.unwrap_or_else(|| Given {
        value: RETENTION_DEFAULT,
        said: format!("{}: retention (default 7d)", ledger.place()),
    });
    let url = url.unwrap_or_else(|| LedgerUrl::Sqlite(PATH_DEFAULT.into()));
    let allowed = ledger.switch("allow_network_file_system", "expected true or false");
    let allow_network_file_system = allowed.is_some_and(|allowed| allowed.value);
    (LedgerConfig { url, retention: retention.value, allow_network_file_system }, retention)
}

fn url(ledger: &mut Section, given: &Given<String>) -> Option<LedgerUrl> {
    let said = &given.said;
    let (scheme, path) = match given.value.split_once(':') {
        Some((scheme, path)) if is_scheme(scheme) => (scheme, path.strip_prefix("//").unwrap_or(path)),
        _ => ("sqlite", given.value.as_str()),
    };
    match scheme {
        "sqlite" if path.trim().is_empty() => {
            ledger.problem(format!("{said}: no file is named: write a path or sqlite:PATH"));
        }
        "sqlite" if path.contains('\0') => {
            ledger.problem(format!("{said}: a NUL character cannot be part of a path: take it out"));
        }
        "sqlite" if path == ":memory:" => {
            ledger.problem(format!("{said}: a ledger in memory forgets what was done: name a file"));
        }
        "sqlite" => return Some(LedgerUrl::Sqlite(path.into())),
        "postgres" | "postgresql" | "mysql" | "redis" => ledger.problem(format!(
            "{said}: {scheme} ledgers are not available in this version: use a path or sqlite:PATH"
        )),
        _ => {
            ledger.problem(format!(
                "{said}: unknown kind of ledger: use sqlite:PATH, or ./NAME for a file whose name holds a colon"
            ));
        }
    }
    None
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !text.starts_with('.')
}
