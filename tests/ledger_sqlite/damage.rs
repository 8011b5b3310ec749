//! K24: what is not a sound ledger is refused in one sentence, and left byte for byte as it is.

use std::{fs, process::Command};

use ackonce::ledger::{
    Claim, Ledger, LedgerErrorKind,
    sqlite::{SqliteLedger, SqliteOptions, SqliteReader},
};
use rusqlite::Connection;

use crate::setup::{BUSY_TIMEOUT, Place, claim, claim_all, handle};

/// Opens what is there in every way, and finds it unchanged.
fn refuse(place: &Place, expected: &str) {
    let before = place.files();
    let reader = SqliteReader::open(place.path(), BUSY_TIMEOUT).expect_err("it reads");
    let no_create = SqliteOptions { create: false, ..Default::default() };
    let no_create = SqliteLedger::open(place.path(), no_create).expect_err("it opens");
    for error in [place.refused(), reader, no_create] {
        assert_eq!(error.kind, LedgerErrorKind::Fatal, "{error}");
        assert!(error.message.contains(expected) && !error.message.contains('\n'), "{error}");
        assert!(error.message.contains("ackonce.db"), "it names the file: {error}");
    }
    let after = place.files();
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    assert!(after == before, "its bytes changed");
}

/// A closed ledger of a few hundred rows.
async fn a_ledger() -> Place {
    let place = Place::new();
    let ledger = place.open();
    let keys: Vec<String> = (0..500).map(|n| format!("key {n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    claim_all(&ledger, &ledger.enroll().await.unwrap(), &keys).await.unwrap();
    place
}

#[test]
fn an_empty_file_is_refused() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    refuse(&place, "is an empty file");
}

#[test]
fn random_bytes_are_refused() {
    let place = Place::new();
    for len in [1, 99, 100, 101, 511, 512, 4096, 5000, 100_000] {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        fs::write(place.path(), bytes).unwrap();
        refuse(&place, if len < 512 { "is not one" } else { "is not a ledger" });
    }
}

#[tokio::test]
async fn a_truncated_copy_is_refused_wherever_it_ends() {
    let place = a_ledger().await;
    let whole = fs::read(place.path()).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 10);
    let ends = (1..pages).map(|page| page * 4096).chain([1, 50, 100, 101, 4095, 4097, whole.len() - 1]);
    for end in ends {
        fs::write(place.path(), &whole[..end]).unwrap();
        refuse(&place, if end < 512 { "is not one" } else { "is damaged" });
    }
    fs::write(place.path(), &whole).unwrap();
    let ledger = place.open();
    assert!(matches!(
        claim(&ledger, &ledger.enroll().await.unwrap(), "key 499").await.unwrap(),
        Claim::Claimed(_)
    ));
}

#[tokio::test]
async fn a_page_that_was_overwritten_is_refused() {
    let place = a_ledger().await;
    let whole = fs::read(place.path()).unwrap();
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0xa5);
        fs::write(place.path(), damaged).unwrap();
        refuse(&place, "is damaged");
    }
}

#[test]
fn another_programs_database_is_refused() {
    let place = Place::new();
    place.sql("CREATE TABLE customers (id INTEGER PRIMARY KEY)");
    refuse(&place, "not a ledger");
    place.sql("PRAGMA application_id = 12345; PRAGMA user_version = 1");
    refuse(&place, "application_id 12345");
    place.sql("PRAGMA journal_mode = WAL");
    refuse(&place, "not a ledger");
}

/// Neither is the log of a program that has crashed written into its database by us.
#[test]
fn another_programs_log_is_left_alone() {
    let place = Place::new();
    let alive = Connection::open(place.file("other.db")).unwrap();
    alive
        .execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE customers (id); INSERT INTO customers VALUES (1)",
        )
        .unwrap();
    for suffix in ["", "-wal"] {
        copy(&place.file(&format!("other.db{suffix}")), &place.file(&format!("ackonce.db{suffix}")));
    }
    drop(alive);
    refuse(&place, "not a ledger");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let place = a_ledger().await;
    place.sql("PRAGMA user_version = 2");
    refuse(&place, "schema version 2");
}

/// A newer program has moved it up and crashed: the file alone still looks like ours.
#[tokio::test]
async fn a_newer_schema_in_the_log_is_refused_and_left_there() {
    let (place, crashed) = (a_ledger().await, Place::new());
    let alive = place.connect();
    alive.execute_batch("PRAGMA user_version = 2").unwrap();
    for suffix in ["", "-wal"] {
        copy(&place.file(&format!("ackonce.db{suffix}")), &crashed.file(&format!("ackonce.db{suffix}")));
    }
    let before = crashed.files();
    let error = crashed.refused();
    assert!(error.message.contains("schema version 2"), "{error}");
    // The log's index is only a cache.
    let after: Vec<_> = crashed.files().into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect();
    assert!(after == before, "its bytes changed");
}

#[tokio::test]
async fn a_schema_without_a_version_is_refused() {
    let place = a_ledger().await;
    place.sql("PRAGMA user_version = 0");
    refuse(&place, "schema version 0");
}

/// After a crash the log holds what was committed, and a torn end that was not.
#[tokio::test]
async fn a_ledger_left_by_a_crash_is_whole() {
    let place = Place::new();
    let crashed = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    handle(&ledger, &owner, "a").await;
    for suffix in ["", "-wal"] {
        copy(&place.file(&format!("ackonce.db{suffix}")), &crashed.file(&format!("ackonce.db{suffix}")));
    }
    let log = crashed.file("ackonce.db-wal");
    let mut torn = fs::read(&log).unwrap();
    assert!(!torn.is_empty());
    torn.extend([7; 1000]);
    fs::write(&log, torn).unwrap();
    let ledger = crashed.open();
    assert_eq!(claim(&ledger, &ledger.enroll().await.unwrap(), "a").await.unwrap(), Claim::Duplicate);
}

/// By another process: opening and closing a database's file here would drop SQLite's locks on it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
