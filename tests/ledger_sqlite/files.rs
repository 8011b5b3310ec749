//! The ledger's files while it is in use: locks, disappearance, room, and the size of the log.

use std::fs;

use ackonce::ledger::{
    Claim, Ending, Filter, Finished, Inspect, Ledger, LedgerError,
    sqlite::{SqliteLedger, SqliteOptions},
};

use crate::setup::{Place, claim, claim_all, finish, granted, handle, options, rows};

/// The POSIX locks that this process holds on the ledger's files. The kernel's list is no snapshot while
/// others lock and unlock: it is right when it says the same three times.
fn locks(place: &Place) -> Vec<String> {
    loop {
        let readings = [(); 3].map(|()| listed_locks(place));
        if readings[0] == readings[1] && readings[1] == readings[2] {
            return readings[0].clone();
        }
    }
}

fn listed_locks(place: &Place) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let pid = std::process::id().to_string();
    let inodes: Vec<_> = ["ackonce.db", "ackonce.db-wal", "ackonce.db-shm"]
        .map(|name| format!(":{}", fs::metadata(place.file(name)).unwrap().ino()))
        .into();
    let mut locks: Vec<_> = fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        // The first word is a running number.
        .filter_map(|line| line.split_once(": ").map(|(_, lock)| lock.to_owned()))
        .filter(|lock| {
            let words: Vec<_> = lock.split_whitespace().collect();
            words[0] == "POSIX" && words[3] == pid && inodes.iter().any(|inode| words[4].ends_with(inode))
        })
        .collect();
    locks.sort();
    locks
}

/// K23: opening and closing one of the files beside SQLite would drop them.
#[tokio::test]
async fn looking_into_the_ledger_leaves_its_locks_alone() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    handle(&ledger, &owner, "a").await;
    let before = locks(&place);
    assert!(before.len() >= 2, "on the file and on the log's index: {before:?}");
    for _ in 0..100 {
        ledger.stats().await.unwrap();
        ledger.list(Filter { scope: None, state: None, limit: 10 }).await.unwrap();
        ledger.show("a", None).await.unwrap();
        ledger.forget("b", None).await.unwrap();
        ledger.rows().await.unwrap();
    }
    drop(SqliteLedger::open(place.path(), options()).unwrap());
    assert_eq!(locks(&place), before);
}

/// Nothing may be acked on a ledger whose file is not there any more.
fn is_gone(error: &LedgerError, what: &str) {
    assert!(error.is_transient(), "{error:?}");
    assert!(error.message.contains(what), "{error}");
}

#[tokio::test]
async fn a_removed_file_fails_every_call_until_it_is_back() {
    for suffix in ["", "-wal", "-shm"] {
        let place = Place::new();
        let ledger = place.open();
        let owner = ledger.enroll().await.unwrap();
        let ticket = granted(claim(&ledger, &owner, "a").await.unwrap());
        let (file, away) = (place.file(&format!("ackonce.db{suffix}")), place.file("away"));
        fs::rename(&file, &away).unwrap();
        is_gone(&claim(&ledger, &owner, "b").await.unwrap_err(), "is gone");
        is_gone(&finish(&ledger, &owner, "a", &ticket, Ending::Done).await.unwrap_err(), "is gone");
        assert!(!file.exists(), "{suffix}: no new one is made");
        fs::rename(&away, &file).unwrap();
        assert_eq!(
            finish(&ledger, &owner, "a", &ticket, Ending::Done).await.unwrap(),
            Finished::Recorded,
            "{suffix}"
        );
        assert_eq!(granted(claim(&ledger, &owner, "b").await.unwrap()).attempt, 1, "{suffix}");
    }
}

#[tokio::test]
async fn a_replaced_file_fails_every_call() {
    let (place, other) = (Place::new(), Place::new());
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    claim(&ledger, &owner, "a").await.unwrap();
    drop(other.open());
    fs::rename(other.path(), place.path()).unwrap();
    is_gone(&claim(&ledger, &owner, "b").await.unwrap_err(), "was replaced");
}

/// K21: a full disk is told apart, loses nothing, and heals. A page limit stands for the disk: SQLite
/// reports both with the same code, and a small file system needs root.
#[tokio::test]
async fn a_full_disk_is_transient_and_loses_nothing() {
    let place = Place::new();
    drop(place.open());
    let pages = u32::try_from(place.number("PRAGMA page_count")).unwrap();
    let ledger = place.open_with(SqliteOptions { pages_max: Some(pages + 20), ..options() });
    let owner = ledger.enroll().await.unwrap();
    let mut claimed = Vec::new();
    let error = loop {
        let key = format!("{:0>500}", claimed.len());
        match claim(&ledger, &owner, &key).await {
            Ok(claim) => claimed.push((key, granted(claim))),
            Err(error) => break error,
        }
    };
    assert!(error.is_transient() && error.message.contains("free some disk space"), "{error:?}");
    assert!(claimed.len() > 20);
    assert_eq!(ledger.rows().await.unwrap(), claimed.len() as u64, "what was refused left no trace");
    for (key, ticket) in &claimed {
        let finished = finish(&ledger, &owner, key, ticket, Ending::Done).await;
        assert_eq!(finished.unwrap(), Finished::Recorded, "changing a row needs no room");
    }
    for (key, _) in &claimed[..10] {
        ledger.forget(key, None).await.unwrap();
    }
    handle(&ledger, &owner, "there is room again").await;
}

/// K20: a reader that never lets go makes the log grow; afterwards it shrinks to the limit.
#[tokio::test]
async fn the_log_shrinks_when_a_long_reader_has_gone() {
    const LIMIT: u32 = 256 * 1024;
    let place = Place::new();
    let ledger = place.open_with(SqliteOptions { log_bytes_max: LIMIT, ..options() });
    let owner = ledger.enroll().await.unwrap();
    let keys: Vec<String> =
        (0..40_000).map(|n| format!("a rather long key, so that pages fill up {n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();

    let reader = place.connect();
    reader.execute_batch("BEGIN; SELECT count(*) FROM messages").unwrap();
    for keys in keys.chunks(250) {
        claim_all(&ledger, &owner, keys).await.unwrap();
    }
    let grown = ledger.stats().await.unwrap().wal_bytes;
    // More than an automatic checkpoint leaves.
    assert!(grown > 6 << 20, "{grown} bytes");
    drop(reader);
    for n in 0..3 {
        handle(&ledger, &owner, &format!("after {n}")).await;
    }
    let shrunk = ledger.stats().await.unwrap().wal_bytes;
    assert!(shrunk <= u64::from(LIMIT), "{shrunk} bytes");
}

/// The lock files of workers that were killed do not pile up.
#[tokio::test]
async fn dead_owners_files_are_swept_and_live_ones_stay() {
    let place = Place::new();
    let ledger = place.open();
    let alive = ledger.enroll().await.unwrap();
    let dir = place.file("ackonce.db.owners");
    for n in 0..10 {
        fs::write(dir.join(format!("host-1-dead{n}")), "").unwrap();
    }
    let new = ledger.enroll().await.unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut expected = [alive.name(), new.name()];
    expected.sort_unstable();
    assert_eq!(names, expected);
}

/// Their rows go when no message names them; the search for such is only made when there are many.
#[tokio::test]
async fn owners_that_no_row_names_are_removed() {
    let place = Place::new();
    let ledger = place.open();
    let (alive, dead) = (ledger.enroll().await.unwrap(), ledger.enroll().await.unwrap());
    handle(&ledger, &alive, "a").await;
    handle(&ledger, &dead, "b").await;
    handle(&ledger, &alive, "c").await;
    ledger.forget("a", None).await.unwrap();
    drop(dead);
    place.sql(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
         INSERT INTO owners (name, since_ms) SELECT 'gone-' || i, 0 FROM n",
    );
    let prune = ackonce::ledger::Prune { retention_ms: i64::MAX, rows_max: 1, after_row: 0 };
    assert!(ledger.prune(prune, 0).await.unwrap().complete);
    assert_eq!(place.number("SELECT count(*) FROM owners"), 2);
    let rows = rows(&ledger).await;
    assert!(rows.iter().all(|row| row.owner.is_some()), "{rows:?}");
    assert_eq!(claim(&ledger, &alive, "b").await.unwrap(), Claim::Duplicate);
}

/// A program that clears old files away must not make a live owner look dead for long.
#[tokio::test]
async fn a_removed_lock_file_is_put_back() {
    let place = Place::new();
    let (ledger, other) = (place.open(), place.open());
    let owner = ledger.enroll().await.unwrap();
    claim(&ledger, &owner, "a").await.unwrap();
    fs::remove_dir_all(place.file("ackonce.db.owners")).unwrap();
    claim(&ledger, &owner, "b").await.unwrap();
    let rival = other.enroll().await.unwrap();
    for key in ["a", "b"] {
        let in_flight = Claim::InFlight { owner: owner.shared_name() };
        assert_eq!(claim(&other, &rival, key).await.unwrap(), in_flight, "{key}");
    }
    drop(owner);
    assert_eq!(granted(claim(&other, &rival, "a").await.unwrap()).attempt, 2, "and it still dies");
}
