//! Handlers inside the ledger's transaction: what is undone, what is kept, and what they cannot do.

use std::{sync::Arc, time::Duration};

use ackonce::{
    ledger::{
        Applied, Apply, Claim, Effects, Ending, Failure, Ledger, LedgerError, Owner,
        sqlite::{Attempt, Connection, HandlerError, SqliteEffects, SqliteLedger, TransactionHandler},
        unix_millis,
    },
    message::Message,
};

use crate::setup::{Place, claim, finish, finish_of, granted, request, rows};

pub const MINUTE: Duration = Duration::from_secs(60);

pub fn apply_of(key: &str, body: &[u8]) -> Apply {
    let message = Arc::new(Message { body: body.to_vec(), ..Message::default() });
    Apply { claim: request(key), message, attempts_max: 5, reruns: true }
}

/// Applies them all, and asks again for what a slow machine has postponed.
pub async fn apply_all(
    effects: &SqliteEffects,
    owner: &Owner,
    keys: &[&str],
) -> Result<Vec<Applied>, LedgerError> {
    let mut answers = vec![Applied::Postponed; keys.len()];
    while let Some(start) = answers.iter().position(|answer| *answer == Applied::Postponed) {
        let requests = keys[start..].iter().map(|key| apply_of(key, b"")).collect();
        answers.splice(start.., effects.apply(owner, requests, unix_millis()).await?);
    }
    Ok(answers)
}

/// A ledger with the table `t (key TEXT)`, which only takes keys up to `y`.
pub async fn start(place: &Place) -> (Arc<SqliteLedger>, Owner) {
    let ledger = Arc::new(place.open());
    ledger.set_up("CREATE TABLE t (key TEXT NOT NULL CHECK (key < 'z')) STRICT").unwrap();
    let owner = ledger.enroll().await.unwrap();
    (ledger, owner)
}

pub fn insert(transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError> {
    transaction.execute("INSERT INTO t VALUES (?1)", [attempt.key.as_str()])?;
    Ok(())
}

fn is_done(answer: &Applied) -> bool {
    matches!(answer, Applied::Done(ticket) if ticket.attempt == 1)
}

/// The error of a failed run.
#[track_caller]
pub fn error(answer: &Applied) -> &str {
    match answer {
        Applied::Failed { failure: Failure::Retry { error }, .. } => error,
        other => panic!("not a failure to retry: {other:?}"),
    }
}

/// After the answers: the first and the last message had their effect, the middle one had none, and is ours.
pub async fn only_the_middle_one_failed(place: &Place, ledger: &SqliteLedger, answers: &[Applied]) {
    assert!(is_done(&answers[0]) && is_done(&answers[2]), "{answers:?}");
    assert_eq!(place.number("SELECT count(*) FROM t WHERE key IN ('a', 'c')"), 2);
    assert_eq!(place.number("SELECT count(*) FROM t"), 2);
    let states: Vec<_> = rows(ledger).await.iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states.iter().filter(|state| **state == "done").count(), 2, "{states:?}");
    assert_eq!(states.iter().filter(|state| **state == "processing").count(), 1, "{states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_and_row_are_one_commit() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let effects = ledger.clone().effects(insert, MINUTE);
    let mut many = apply_of("a", b"");
    many.claim.copies = 3;
    let answers = effects.apply(&owner, vec![many], unix_millis()).await.unwrap();
    assert!(is_done(&answers[0]), "{answers:?}");
    assert_eq!(place.number("SELECT count(*) FROM t JOIN ledger ON message_id = key AND state = 'done'"), 1);
    assert_eq!(rows(&*ledger).await[0].duplicates, 2, "the copies that share the run");
    let again = apply_all(&effects, &owner, &["a"]).await.unwrap();
    assert_eq!(again, [Applied::Unrun(Claim::Duplicate)]);
    assert_eq!(place.number("SELECT count(*) FROM t"), 1);
    assert_eq!(rows(&*ledger).await[0].duplicates, 3);
}

/// K01: a constraint of the handler's own is its failure, whatever its kind.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_run_is_undone_alone_and_is_no_duplicate() {
    for refusal in [
        "INSERT INTO t VALUES (NULL)",
        "INSERT INTO t VALUES ('zz')",
        "INSERT INTO t VALUES (x'00')",
        "INSERT OR ROLLBACK INTO t VALUES ('zz')",
        "INSERT OR FAIL INTO t VALUES ('zz')",
        "INSERT INTO aborts VALUES (1)",
        "INSERT INTO rolls_back VALUES (1)",
        "INSERT INTO child VALUES (7)",
        "SELECT json('{')",
        "SELECT abs(-9223372036854775808)",
    ] {
        let place = Place::new();
        let (ledger, owner) = start(&place).await;
        let schema = "CREATE TABLE aborts (x); CREATE TABLE rolls_back (x);
            CREATE TRIGGER aborts_never BEFORE INSERT ON aborts BEGIN SELECT RAISE(ABORT, 'never'); END;
            CREATE TRIGGER rolls_back_never BEFORE INSERT ON rolls_back BEGIN SELECT RAISE(ROLLBACK, 'never'); END;
            CREATE TABLE parent (id INTEGER PRIMARY KEY);
            CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);";
        ledger.set_up(schema).unwrap();
        let run = move |transaction: &Connection, attempt: &Attempt<'_>| {
            insert(transaction, attempt)?;
            if attempt.key.as_str() == "b" {
                transaction.query_row(refusal, [], |_| Ok(())).or_else(|error| match error {
                    ackonce::ledger::sqlite::rusqlite::Error::QueryReturnedNoRows => Ok(()),
                    error => Err(error),
                })?;
            }
            Ok(())
        };
        let effects = ledger.clone().effects(run, MINUTE);
        let answers = apply_all(&effects, &owner, &["a", "b", "c"]).await.unwrap();
        assert!(!error(&answers[1]).is_empty(), "{refusal}");
        only_the_middle_one_failed(&place, &ledger, &answers).await;

        // Finished as failed, it comes again as its second attempt.
        let Applied::Failed { ticket, .. } = &answers[1] else { panic!("{answers:?}") };
        let failed = Ending::Failed { error: "e".into(), parked: false, next_after: None };
        finish(&ledger, &owner, "b", ticket, failed).await.unwrap();
        let answers = apply_all(&effects, &owner, &["b"]).await.unwrap();
        assert!(matches!(&answers[0], Applied::Failed { ticket, .. } if ticket.attempt == 2), "{answers:?}");
        assert_eq!(place.number("SELECT sum(duplicates) FROM messages"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_can_give_up_pause_and_panic() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let run = |transaction: &Connection, attempt: &Attempt<'_>| {
        insert(transaction, attempt)?;
        match attempt.key.as_str() {
            "give-up" => Err(HandlerError::GiveUp("no".into())),
            "pause" => Err(HandlerError::CannotStart("gone".into())),
            "panic" => panic!("as asked"),
            _ => Ok(()),
        }
    };
    let effects = ledger.clone().effects(run, MINUTE);
    let answers = apply_all(&effects, &owner, &["give-up", "pause", "panic", "fine"]).await.unwrap();
    let failures: Vec<_> = answers
        .iter()
        .map(|answer| if let Applied::Failed { failure, .. } = answer { Some(failure.clone()) } else { None })
        .collect();
    let expected = [
        Some(Failure::GiveUp { error: "no".into() }),
        Some(Failure::CannotStart { error: "gone".into() }),
        Some(Failure::Retry { error: "the handler panicked".into() }),
        None,
    ];
    assert_eq!(failures, expected);
    assert_eq!(place.number("SELECT count(*) FROM t"), 1);
}

/// A row that the ledger itself refuses is not the handler's failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_ledger_refuses_is_refused_and_leaves_no_effect() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    place.sql("CREATE TRIGGER no BEFORE INSERT ON messages WHEN new.key = 'b' BEGIN SELECT RAISE(ABORT, 'not b'); END");
    let effects = ledger.clone().effects(insert, MINUTE);
    let answers = apply_all(&effects, &owner, &["a", "b", "c"]).await.unwrap();
    assert!(is_done(&answers[0]) && is_done(&answers[2]), "{answers:?}");
    assert!(
        matches!(&answers[1], Applied::Unrun(Claim::Refused(why)) if why.contains("not b")),
        "{answers:?}"
    );
    assert_eq!(place.number("SELECT count(*) FROM t"), 2);

    place.sql("DROP TRIGGER no; CREATE TRIGGER no BEFORE UPDATE ON messages WHEN new.state = 'done' AND new.key = 'd'
               BEGIN SELECT RAISE(ABORT, 'never done'); END");
    let answers = apply_all(&effects, &owner, &["d", "e"]).await.unwrap();
    assert!(matches!(&answers[0], Applied::Unrun(Claim::Refused(_))), "{answers:?}");
    assert!(is_done(&answers[1]), "{answers:?}");
    assert_eq!(place.number("SELECT count(*) FROM t WHERE key = 'd'"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_beyond_the_policy_is_made_and_not_run() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    let effects = ledger.clone().effects(insert, MINUTE);
    let crashed = ledger.enroll().await.unwrap();
    granted(claim(&ledger, &crashed, "a").await.unwrap());
    drop(crashed);
    let mut asked = apply_of("a", b"");
    asked.reruns = false;
    let answers = effects.apply(&owner, vec![asked.clone()], unix_millis()).await.unwrap();
    let Applied::Unrun(Claim::Claimed(ticket)) = &answers[0] else { panic!("{answers:?}") };
    assert!((ticket.attempt, ticket.interrupted) == (2, true));
    let released =
        vec![finish_of("a", ticket, Ending::Failed { error: "e".into(), parked: false, next_after: None })];
    ledger.finish(&owner, released, unix_millis()).await.unwrap();
    asked.attempts_max = 2;
    let answers = effects.apply(&owner, vec![asked], unix_millis()).await.unwrap();
    assert!(
        matches!(&answers[0], Applied::Unrun(Claim::Claimed(ticket)) if ticket.attempt == 3),
        "{answers:?}"
    );
    assert_eq!(place.number("SELECT count(*) FROM t"), 0);
}

/// A lock or a full disk is none of the message's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_cannot_be_written_fails_the_batch_and_nothing_is_recorded() {
    let place = Place::new();
    let (ledger, owner) = start(&place).await;
    drop(ledger);
    let pages_max = Some(u32::try_from(place.number("PRAGMA page_count")).unwrap() + 4);
    let ledger = Arc::new(
        place.open_with(ackonce::ledger::sqlite::SqliteOptions { pages_max, ..crate::setup::options() }),
    );
    let large = |transaction: &Connection, attempt: &Attempt<'_>| {
        transaction.execute(
            "INSERT INTO t VALUES (printf('%.*c', ?1, 'a'))",
            [i64::try_from(attempt.message.body.len()).unwrap()],
        )?;
        Ok(())
    };
    let effects = ledger.clone().effects(large, MINUTE);
    let requests = vec![apply_of("a", b""), apply_of("b", &[b'a'; 100_000])];
    let full = effects.apply(&owner, requests, unix_millis()).await.unwrap_err();
    assert!(full.is_transient() && full.message.contains("no room"), "{full}");
    assert_eq!(place.number("SELECT count(*) FROM messages") + place.number("SELECT count(*) FROM t"), 0);
    let answers = effects.apply(&owner, vec![apply_of("a", b"")], unix_millis()).await.unwrap();
    assert!(is_done(&answers[0]), "{answers:?}");
}

/// The contract of `probe`.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_asks_the_handler() {
    struct Never;
    impl TransactionHandler for Never {
        fn handle(&self, _: &Connection, _: &Attempt<'_>) -> Result<(), HandlerError> {
            Ok(())
        }
        fn check(&self, database: &Connection) -> Result<(), String> {
            database.query_row("SELECT x FROM missing", [], |_| Ok(())).map_err(|error| error.to_string())
        }
    }
    let place = Place::new();
    let (ledger, _owner) = start(&place).await;
    assert!(ledger.clone().effects(Never, MINUTE).probe().await.unwrap_err().contains("missing"));
    assert_eq!(ledger.effects(insert, MINUTE).probe().await, Ok(()));
}
