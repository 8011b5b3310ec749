//! What a run inside the ledger's transaction may not do, and what ends it early.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use ackonce::ledger::{
    Applied, Effects, Failure,
    sqlite::{Attempt, Connection, HandlerError},
    unix_millis,
};

use crate::{
    effects::{MINUTE, apply_all, apply_of, error, insert, only_the_middle_one_failed, start},
    setup::Place,
};

/// Whatever a run tries: nothing is committed but by the ledger, and the ledger's rows are its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_cannot_leave_its_transaction_or_touch_the_ledger() {
    let place = Place::new();
    let attached = place.file("other.db").display().to_string();
    let (ledger, owner) = start(&place).await;
    for sql in [
        "COMMIT",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT x",
        "RELEASE effect",
        "ROLLBACK TO effect",
        &format!("ATTACH '{attached}' AS other"),
        "PRAGMA synchronous = OFF",
        "VACUUM",
        "DELETE FROM messages",
        "UPDATE MESSAGES SET state = 'done'",
        "INSERT INTO scopes (name) VALUES ('x')",
        "DELETE FROM owners",
        "DELETE FROM sqlite_sequence",
        "DROP TABLE messages",
        "CREATE TABLE x (x)",
        "CREATE TEMP TABLE x (x)",
        "CREATE TRIGGER x AFTER UPDATE ON messages BEGIN SELECT 1; END",
    ] {
        let text = sql.to_owned();
        // As a prepared statement too: the ledger has prepared some of these for itself.
        let run = move |transaction: &Connection, attempt: &Attempt<'_>| {
            insert(transaction, attempt)?;
            if attempt.key.as_str() == "b" {
                transaction.prepare_cached(&text)?.execute([])?;
            }
            Ok(())
        };
        let effects = ledger.clone().effects(run, MINUTE);
        let answers = apply_all(&effects, &owner, &["a", "b", "c"]).await.unwrap();
        assert!(!error(&answers[1]).is_empty(), "{sql}");
        only_the_middle_one_failed(&place, &ledger, &answers).await;
        place.sql("DELETE FROM messages; DELETE FROM t");
    }
    assert!(!std::path::Path::new(&attached).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ignores_its_own_rollback_has_no_effect() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let run = |transaction: &Connection, attempt: &Attempt<'_>| {
        if attempt.key.as_str() == "b" {
            let _ = transaction.execute("INSERT OR ROLLBACK INTO t VALUES ('zz')", []);
        }
        insert(transaction, attempt)
            .or_else(|error| if attempt.key.as_str() == "b" { Ok(()) } else { Err(error) })
    };
    let effects = ledger.clone().effects(run, MINUTE);
    let answers = apply_all(&effects, &owner, &["a", "b", "c"]).await.unwrap();
    assert!(error(&answers[1]).contains("rolled its transaction back"), "{answers:?}");
    only_the_middle_one_failed(&place, &ledger, &answers).await;
}

const FOREVER: &str =
    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO t SELECT 'f' FROM n";

fn forever_for_b(transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError> {
    if attempt.key.as_str() == "b" {
        transaction.execute(FOREVER, [])?;
    }
    insert(transaction, attempt)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_interrupted_and_the_rest_has_its_turn() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let effects = ledger.clone().effects(forever_for_b, Duration::from_millis(300));
    let start = Instant::now();
    let requests = ["a", "b", "c"].map(|key| apply_of(key, b"")).to_vec();
    let answers = effects.apply(&owner, requests, unix_millis()).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(error(&answers[1]), "it took longer than 300ms");
    assert_eq!(answers[2], Applied::Postponed, "others may write in between");
    let rest = apply_all(&effects, &owner, &["c"]).await.unwrap();
    let answers = [answers[0].clone(), answers[1].clone(), rest[0].clone()];
    only_the_middle_one_failed(&place, &ledger, &answers).await;
}

/// At the drain deadline, and when the ledger is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_and_does_not_keep_its_ledger_open() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let (started, has_started) = mpsc::channel();
    let run = move |transaction: &Connection, attempt: &Attempt<'_>| {
        let _ = started.send(());
        forever_for_b(transaction, attempt)
    };
    let effects = ledger.clone().effects(run, MINUTE * 60);
    let running = effects.apply(&owner, vec![apply_of("b", b"")], unix_millis());
    has_started.recv().unwrap();
    effects.stop();
    let answers = running.await.unwrap();
    assert!(matches!(&answers[0], Applied::Failed { failure: Failure::Stopped, .. }), "{answers:?}");
    drop(effects);

    let (started, has_started) = mpsc::channel();
    let run = move |transaction: &Connection, attempt: &Attempt<'_>| {
        let _ = started.send(());
        forever_for_b(transaction, attempt)
    };
    let effects = ledger.effects(run, MINUTE * 60);
    let running = effects.apply(&owner, vec![apply_of("b", b"")], unix_millis());
    has_started.recv().unwrap();
    drop(effects);
    assert!(running.await.unwrap_err().is_transient());
    assert_eq!(place.number("SELECT count(*) FROM t"), 0);
}
