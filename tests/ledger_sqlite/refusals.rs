//! K01: a row that SQLite refuses is refused by name; it is no duplicate, and harms no neighbour.

use ackonce::ledger::{Claim, Ending, Finished, Inspect, Ledger, State, unix_millis};

use crate::setup::{Place, claim, claim_all, finish, finish_of, granted, handle, rows};

/// A trigger that objects to the key `bad` in its own way.
fn before_insert(reaction: &str) -> String {
    format!(
        "CREATE TRIGGER no_bad BEFORE INSERT ON messages WHEN NEW.key LIKE 'bad%' BEGIN SELECT {reaction}; END"
    )
}

fn refused(claim: &Claim) -> &str {
    match claim {
        Claim::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// Claims some good and two bad keys in one batch, before and after the objection is lifted.
async fn one_bad_row(objection: &str, expected: &str) {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    handle(&ledger, &owner, "done").await;
    place.sql(objection);

    let keys = ["one", "bad", "done", "bad too", "two"];
    let claims = claim_all(&ledger, &owner, &keys).await.unwrap();
    for bad in [&claims[1], &claims[3]] {
        assert!(refused(bad).contains(expected), "{objection}: {bad:?}");
    }
    assert_eq!(claims[2], Claim::Duplicate, "{objection}");
    for (key, index) in [("one", 0), ("two", 4)] {
        let ticket = granted(claims[index].clone());
        assert_eq!(ticket.attempt, 1, "{objection}");
        assert_eq!(
            finish(&ledger, &owner, key, &ticket, Ending::Done).await.unwrap(),
            Finished::Recorded,
            "{objection}"
        );
    }
    let rows = rows(&ledger).await;
    assert!(rows.iter().all(|row| !row.message_id.starts_with("bad")), "{objection}: {rows:?}");
    let duplicates: Vec<_> =
        rows.iter().filter(|row| row.duplicates > 0).map(|row| (&*row.message_id, row.duplicates)).collect();
    assert_eq!(duplicates, [("done", 1)], "{objection}: counted once, however often the batch was tried");
    assert_eq!(place.number("SELECT count(*) FROM messages"), 3, "{objection}");

    place.sql("DROP TRIGGER IF EXISTS no_bad; DROP INDEX IF EXISTS no_bad");
    assert_eq!(
        granted(claim(&ledger, &owner, "bad").await.unwrap()).attempt,
        1,
        "{objection}: it was never seen"
    );
}

#[tokio::test]
async fn a_row_that_a_trigger_aborts_is_refused() {
    one_bad_row(&before_insert("RAISE(ABORT, 'no bad orders')"), "no bad orders").await;
}

#[tokio::test]
async fn a_row_that_a_trigger_rolls_back_is_refused() {
    one_bad_row(&before_insert("RAISE(ROLLBACK, 'no bad orders')"), "no bad orders").await;
}

#[tokio::test]
async fn a_row_that_a_trigger_ignores_is_refused() {
    one_bad_row(&before_insert("RAISE(IGNORE)"), "ignored").await;
}

/// `RAISE(FAIL)` ends a statement and leaves what it has done.
#[tokio::test]
async fn a_row_that_a_trigger_fails_leaves_no_trace() {
    let after = before_insert("RAISE(FAIL, 'no bad orders')").replace("BEFORE", "AFTER");
    one_bad_row(&after, "no bad orders").await;
}

#[tokio::test]
async fn a_trigger_that_rolls_back_after_the_insert_leaves_no_trace() {
    let after = before_insert("RAISE(ROLLBACK, 'no bad orders')").replace("BEFORE", "AFTER");
    one_bad_row(&after, "no bad orders").await;
}

/// A trigger's own statements may break any constraint of any table.
#[tokio::test]
async fn constraints_of_other_tables_are_named() {
    for (tables, value, expected) in [
        ("CREATE TABLE audit (x TEXT NOT NULL)", "NULL", "NOT NULL"),
        ("CREATE TABLE audit (x TEXT CHECK (x > 'z'))", "'a'", "CHECK"),
        ("CREATE TABLE audit (x TEXT UNIQUE); INSERT INTO audit VALUES ('a')", "'a'", "UNIQUE"),
        ("CREATE TABLE audit (x INTEGER) STRICT", "'a'", "cannot store TEXT value"),
        (
            "CREATE TABLE known (x TEXT PRIMARY KEY); CREATE TABLE audit (x TEXT REFERENCES known (x))",
            "'a'",
            "FOREIGN KEY",
        ),
    ] {
        let trigger = format!(
            "CREATE TRIGGER no_bad AFTER INSERT ON messages WHEN NEW.key LIKE 'bad%'
             BEGIN INSERT INTO audit VALUES ({value}); END"
        );
        one_bad_row(&format!("{tables}; {trigger}"), expected).await;
    }
}

/// Such a constraint is checked by COMMIT only, when it is too late for a savepoint.
#[tokio::test]
async fn a_constraint_that_is_checked_at_commit_is_named() {
    one_bad_row(
        "CREATE TABLE known (y TEXT PRIMARY KEY);
         CREATE TABLE audit (y TEXT REFERENCES known (y) DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER no_bad AFTER INSERT ON messages WHEN NEW.key LIKE 'bad%'
         BEGIN INSERT INTO audit VALUES ('a'); END",
        "FOREIGN KEY",
    )
    .await;
}

/// A UNIQUE index that is not ours is not what makes a duplicate.
#[tokio::test]
async fn a_conflict_with_another_index_is_not_a_duplicate() {
    let objection = "CREATE UNIQUE INDEX no_bad ON messages (substr(key, 1, 3)) WHERE key LIKE 'bad%'";
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    place.sql(objection);
    handle(&ledger, &owner, "bad").await;
    let claims = claim_all(&ledger, &owner, &["bad", "bad too", "good"]).await.unwrap();
    assert_eq!(claims[0], Claim::Duplicate);
    assert!(refused(&claims[1]).contains("UNIQUE"), "{:?}", claims[1]);
    assert_eq!(granted(claims[2].clone()).attempt, 1);
}

#[tokio::test]
async fn a_refused_finish_changes_nothing_and_harms_no_neighbour() {
    for reaction in ["RAISE(ABORT, 'not done')", "RAISE(ROLLBACK, 'not done')", "RAISE(FAIL, 'not done')"] {
        let place = Place::new();
        let ledger = place.open();
        let owner = ledger.enroll().await.unwrap();
        let keys = ["one", "bad", "two"];
        let tickets: Vec<_> =
            claim_all(&ledger, &owner, &keys).await.unwrap().into_iter().map(granted).collect();
        place.sql(&format!(
            "CREATE TRIGGER no_bad AFTER UPDATE ON messages WHEN NEW.key = 'bad' BEGIN SELECT {reaction}; END"
        ));
        let finishes =
            keys.iter().zip(&tickets).map(|(key, ticket)| finish_of(key, ticket, Ending::Done)).collect();
        let finished = ledger.finish(&owner, finishes, unix_millis()).await.unwrap();
        assert_eq!((&finished[0], &finished[2]), (&Finished::Recorded, &Finished::Recorded), "{reaction}");
        let Finished::Refused(why) = &finished[1] else { panic!("{reaction}: {:?}", finished[1]) };
        assert!(why.contains("not done"), "{reaction}: {why}");
        for row in rows(&ledger).await {
            let expected = if row.message_id == "bad" { State::Processing } else { State::Done };
            assert_eq!(row.state, expected, "{reaction}: {row:?}");
        }
        place.sql("DROP TRIGGER no_bad");
        assert_eq!(
            finish(&ledger, &owner, "bad", &tickets[1], Ending::Done).await.unwrap(),
            Finished::Recorded,
            "{reaction}"
        );
    }
}

#[tokio::test]
async fn a_scope_that_is_first_seen_in_a_refused_row_can_still_be_made() {
    for reaction in ["RAISE(ABORT, 'no')", "RAISE(ROLLBACK, 'no')"] {
        let place = Place::new();
        let ledger = place.open();
        let owner = ledger.enroll().await.unwrap();
        place.sql(&before_insert(reaction));
        let claims = claim_all(&ledger, &owner, &["bad", "good"]).await.unwrap();
        refused(&claims[0]);
        granted(claims[1].clone());
        let rows = rows(&ledger).await;
        assert_eq!((rows[0].scope.as_str(), rows[0].owner.as_deref()), ("orders", Some(owner.name())));
    }
}

/// It costs them no commit each: the log would show it.
#[tokio::test]
async fn the_neighbours_of_a_refused_row_share_one_commit() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    place.sql(&before_insert("RAISE(ABORT, 'no')"));
    let keys: Vec<String> = (0..200).map(|n| format!("key {n}")).chain(["bad".to_owned()]).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let claims = claim_all(&ledger, &owner, &keys).await.unwrap();
    refused(&claims[200]);
    let written = ledger.stats().await.unwrap().wal_bytes;
    assert!(written < 100 * 4096, "{written} bytes");
}

/// A schema that no statement fits is nobody's row: the worker pauses, and nothing is dead-lettered.
#[tokio::test]
async fn a_broken_trigger_fails_the_batch_not_its_rows() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    place.sql("CREATE TRIGGER broken AFTER INSERT ON messages BEGIN INSERT INTO audit VALUES (NEW.key); END");
    let error = claim(&ledger, &owner, "a").await.unwrap_err();
    assert!(error.is_transient() && error.message.contains("audit"), "{error:?}");
    place.sql("DROP TRIGGER broken");
    handle(&ledger, &owner, "a").await;
}
