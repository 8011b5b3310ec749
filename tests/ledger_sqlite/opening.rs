//! Opening: a missing ledger is made, whole and once; everything else is left as it is.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::Barrier,
    thread,
};

use ackonce::ledger::{
    Claim, Inspect, Ledger, LedgerError, LedgerErrorKind,
    sqlite::{SqliteLedger, SqliteOptions, SqliteReader},
};

use crate::setup::{BUSY_TIMEOUT, Place, claim, handle, options, rows};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_ledger_is_for_this_user_only() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    handle(&ledger, &owner, "a").await;
    for name in ["ackonce.db", "ackonce.db-wal", "ackonce.db-shm"] {
        assert_eq!(mode(&place.file(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&place.file("ackonce.db.owners")), 0o700);
    let lock = place.file("ackonce.db.owners").join(owner.name());
    assert_eq!(mode(&lock), 0o600);
    drop(owner);
    assert!(!lock.exists(), "it goes with its owner");
}

#[tokio::test]
async fn a_closed_ledger_is_one_file_and_opens_again() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    handle(&ledger, &owner, "a").await;
    drop(ledger);
    let names: Vec<_> = place.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ackonce.db"]);
    let ledger = place.open();
    assert_eq!(claim(&ledger, &ledger.enroll().await.unwrap(), "a").await.unwrap(), Claim::Duplicate);
}

#[tokio::test]
async fn what_is_queued_when_the_ledger_is_dropped_is_answered() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let claims: Vec<_> =
        (0..50).map(|n| ledger.claim(&owner, vec![crate::setup::request(&format!("key {n}"))], n)).collect();
    drop(ledger);
    for claim in claims {
        assert!(matches!(claim.await.unwrap()[..], [Claim::Claimed(_)]));
    }
    assert_eq!(rows(&place.open()).await.len(), 50);
}

/// Several processes and threads start at once, each finds no file: one makes it, all use it.
#[test]
fn whoever_opens_at_the_same_time_opens_the_same_ledger() {
    const OPENERS: usize = 8;
    for round in 0..20 {
        let place = Place::new();
        let barrier = Barrier::new(OPENERS);
        let claims: Vec<Claim> = thread::scope(|scope| {
            let opener = || {
                barrier.wait();
                let opened = SqliteLedger::open(place.path(), SqliteOptions::default());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let claimed = opened.map(|ledger| {
                    runtime.block_on(async {
                        let owner = ledger.enroll().await?;
                        let claim = claim(&ledger, &owner, "a").await?;
                        Ok::<_, LedgerError>((claim, owner, ledger))
                    })
                });
                // Dead before the others have claimed, it would be taken over. No panic before this: the
                // others would wait for ever.
                barrier.wait();
                claimed.unwrap().unwrap().0
            };
            let openers: Vec<_> = (0..OPENERS).map(|_| scope.spawn(opener)).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        let winners = claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count();
        assert_eq!(winners, 1, "round {round}: {claims:?}");
        let names: Vec<_> = place.files().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| !name.contains(".new")), "round {round}: drafts are left: {names:?}");
    }
}

/// The lock files must be the same for all who share a ledger, whatever path they came by.
#[tokio::test]
async fn a_link_leads_to_the_same_owners() {
    let place = Place::new();
    let direct = place.open();
    symlink(place.path(), place.file("link.db")).unwrap();
    let linked = SqliteLedger::open(place.file("link.db"), options()).unwrap();
    assert_eq!(linked.path(), direct.path());
    let owner = direct.enroll().await.unwrap();
    claim(&direct, &owner, "a").await.unwrap();
    let claim = claim(&linked, &linked.enroll().await.unwrap(), "a").await.unwrap();
    assert_eq!(claim, Claim::InFlight { owner: owner.shared_name() });
}

#[tokio::test]
async fn odd_names_are_only_names() {
    for name in ["a b.db", "a?b.db", "a%20b.db", "a#b.db", "ä.db", "'.db", ":memory:", "file:x", "-"] {
        let place = Place::new();
        for _ in 0..2 {
            let ledger = SqliteLedger::open(place.file(name), options()).unwrap();
            ledger.enroll().await.unwrap();
        }
        let names: Vec<_> = place.files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn impossible_paths_are_one_sentence_each() {
    let place = Place::new();
    fs::create_dir(place.file("dir")).unwrap();
    fs::write(place.file("plain"), "x").unwrap();
    symlink("/nonexistent/x", place.file("dangling")).unwrap();
    for (path, expected) in [
        (place.file("dir"), "is a directory"),
        (place.file("nowhere/ackonce.db"), "create it first"),
        (place.file("plain/ackonce.db"), "Not a directory"),
        (place.file("dangling"), "a link that leads nowhere"),
        ("/dev/null".into(), "not a regular file"),
        ("/".into(), "is a directory"),
        ("".into(), "names no file"),
    ] {
        let error = SqliteLedger::open(&path, options()).unwrap_err();
        assert!(error.message.contains(expected), "{}: {error}", path.display());
        assert!(!error.message.contains('\n') && !error.is_transient(), "{error:?}");
    }
    assert_eq!(place.files().len(), 1, "nothing was made");
}

#[test]
fn looking_never_makes_a_ledger() {
    let place = Place::new();
    let error = SqliteReader::open(place.path(), BUSY_TIMEOUT).unwrap_err();
    assert!(error.message.contains("there is no ledger at"), "{error}");
    let options = SqliteOptions { create: false, ..options() };
    let error = SqliteLedger::open(place.path(), options).unwrap_err();
    assert!(error.message.contains("there is no ledger at"), "{error}");
    assert_eq!(place.files(), vec![]);
}

/// SQLite would replay such a log into the new file.
#[test]
fn a_log_without_its_ledger_is_not_taken_for_nothing() {
    let place = Place::new();
    fs::write(place.file("ackonce.db-wal"), "old pages").unwrap();
    let before = place.files();
    let error = place.refused();
    assert_eq!(error.kind, LedgerErrorKind::Fatal);
    assert!(error.message.contains("ackonce.db-wal is there"), "{error}");
    assert_eq!(place.files(), before);
}

#[tokio::test]
async fn a_reader_leaves_no_files_behind() {
    let place = Place::new();
    let ledger = place.open();
    handle(&ledger, &ledger.enroll().await.unwrap(), "a").await;
    drop(ledger);
    let before = place.files();
    let reader = SqliteReader::open(place.path(), BUSY_TIMEOUT).unwrap();
    assert_eq!(rows(&reader).await.len(), 1);
    assert_eq!(reader.stats().await.unwrap().scopes.len(), 1);
    assert_eq!(place.files(), before);
}
