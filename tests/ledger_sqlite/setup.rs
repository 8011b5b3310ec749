//! A ledger in a directory of its own, and other programs' connections to it.

use std::{fs, path::PathBuf, time::Duration};

use ackonce::{
    key::Key,
    ledger::{
        Claim, ClaimRequest, Ending, Filter, Finish, Finished, Inspect, Ledger, LedgerError, Origin, Owner,
        Row, Ticket,
        sqlite::{SqliteLedger, SqliteOptions},
        unix_millis,
    },
};
use rusqlite::Connection;
use tempfile::TempDir;

/// Short: tests that meet it wait for it.
pub const BUSY_TIMEOUT: Duration = Duration::from_millis(300);

pub fn options() -> SqliteOptions {
    SqliteOptions { busy_timeout: BUSY_TIMEOUT, ..SqliteOptions::default() }
}

/// A directory with a ledger to be.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("ackonce.db")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn open(&self) -> SqliteLedger {
        self.open_with(options())
    }

    pub fn open_with(&self, options: SqliteOptions) -> SqliteLedger {
        SqliteLedger::open(self.path(), options).unwrap()
    }

    /// The error that opening ends with.
    pub fn refused(&self) -> LedgerError {
        SqliteLedger::open(self.path(), options()).expect_err("it opens")
    }

    /// Another program's connection.
    pub fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    /// Another program's statements.
    pub fn sql(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Every file here with its bytes; the lock files aside.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    }
}

pub fn request(key: &str) -> ClaimRequest {
    ClaimRequest {
        scope: "orders".into(),
        key: Key::new(key).unwrap(),
        fingerprint: None,
        origin: Origin::Fresh,
        copies: 1,
    }
}

pub fn finish_of(key: &str, ticket: &Ticket, ending: Ending) -> Finish {
    Finish {
        scope: "orders".into(),
        key: Key::new(key).unwrap(),
        ticket: ticket.clone(),
        ending,
        copies: 0,
        ran: None,
    }
}

pub fn granted(claim: Claim) -> Ticket {
    match claim {
        Claim::Claimed(ticket) => ticket,
        other => panic!("not claimed: {other:?}"),
    }
}

pub async fn claim_all(
    ledger: &SqliteLedger,
    owner: &Owner,
    keys: &[&str],
) -> Result<Vec<Claim>, LedgerError> {
    ledger.claim(owner, keys.iter().map(|key| request(key)).collect(), unix_millis()).await
}

pub async fn claim(ledger: &SqliteLedger, owner: &Owner, key: &str) -> Result<Claim, LedgerError> {
    Ok(claim_all(ledger, owner, &[key]).await?.remove(0))
}

pub async fn finish(
    ledger: &SqliteLedger,
    owner: &Owner,
    key: &str,
    ticket: &Ticket,
    ending: Ending,
) -> Result<Finished, LedgerError> {
    Ok(ledger.finish(owner, vec![finish_of(key, ticket, ending)], unix_millis()).await?.remove(0))
}

/// Claims and finishes as done.
pub async fn handle(ledger: &SqliteLedger, owner: &Owner, key: &str) {
    let ticket = granted(claim(ledger, owner, key).await.unwrap());
    assert_eq!(finish(ledger, owner, key, &ticket, Ending::Done).await.unwrap(), Finished::Recorded);
}

pub async fn rows(ledger: &impl Inspect) -> Vec<Row> {
    ledger.list(Filter { scope: None, state: None, limit: 1000 }).await.unwrap()
}
