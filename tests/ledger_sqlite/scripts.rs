//! A file of statements as a handler: its parameters, its rules, and what is said where it breaks them.

use std::{sync::Arc, time::Duration};

use ackonce::{
    ledger::{
        Applied, Apply, Effects, Failure, Ledger,
        sqlite::{Script, SqliteLedger},
        unix_millis,
    },
    message::{Message, Properties, Table, Value},
};

use crate::{
    effects::{apply_all, apply_of},
    setup::{Place, request},
};

const MINUTE: Duration = Duration::from_secs(60);

fn with_table(place: &Place) -> Arc<SqliteLedger> {
    let ledger = Arc::new(place.open());
    ledger.set_up("CREATE TABLE IF NOT EXISTS t (a, b, c, d, e, f, g, h, i)").unwrap();
    ledger
}

fn wrong(ledger: &SqliteLedger, text: &str) -> String {
    let error = Script::new(text, ledger).expect_err(text);
    assert!(!error.is_transient(), "{error}");
    error.message
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_message_is_a_parameter() {
    let place = Place::new();
    let ledger = with_table(&place);
    let owner = ledger.enroll().await.unwrap();
    let text = "INSERT INTO t VALUES (:message_id, :key, :body, :routing_key, :exchange, :type, :headers, :attempt, :now_ms)";
    let script = Script::new(text, &ledger).unwrap();
    let effects = ledger.effects(script, MINUTE);
    let headers: Table = [("n".to_owned(), Value::I64(7))].into_iter().collect();
    let properties = Properties {
        message_id: Some("id".into()),
        kind: Some("paid".into()),
        headers: Some(headers),
        ..Properties::default()
    };
    let body = "zwölf\0".as_bytes().to_vec();
    let full =
        Message { exchange: "x".into(), routing_key: "r".into(), redelivered: false, properties, body };
    let all = [
        Apply { claim: request("full"), message: Arc::new(full), attempts_max: 1, reruns: true },
        apply_of("empty", b""),
        apply_of("binary", &[0xff, 0, 1]),
    ];
    let answers = effects.apply(&owner, all.to_vec(), 42).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Applied::Done(_))), "{answers:?}");
    let read = place.connect();
    let quoted = "SELECT concat_ws('|', quote(a), b, hex(c), typeof(c), d, e, quote(f), g, h, i) FROM t ORDER BY rowid";
    let rows: Vec<String> = read
        .prepare(quoted)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let expected = [
        "'id'|full|7A77C3B66C6600|text|r|x|'paid'|{\"n\":7}|1|42",
        "NULL|empty||text|||NULL|{}|1|42",
        "NULL|binary|FF0001|blob|||NULL|{}|1|42",
    ];
    assert_eq!(rows, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_run_in_order_and_rows_they_return_are_ignored() {
    let place = Place::new();
    let ledger = with_table(&place);
    let owner = ledger.enroll().await.unwrap();
    let text =
        "-- what is there before\nSELECT * FROM t;\nINSERT INTO t (a) SELECT count(*) FROM t RETURNING a, b;
                WITH x AS (SELECT 1) INSERT INTO t (a) SELECT count(*) FROM t; -- done";
    let effects = ledger.clone().effects(Script::new(text, &ledger).unwrap(), MINUTE);
    let answers = apply_all(&effects, &owner, &["a", "b"]).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Applied::Done(_))), "{answers:?}");
    assert_eq!(place.number("SELECT sum(a) FROM t"), 1 + 2 + 3);
}

#[test]
fn a_statement_that_is_not_possible_or_not_allowed_is_named_with_its_line() {
    let place = Place::new();
    let ledger = with_table(&place);
    for (text, said) in [
        ("INSERT INTO missing VALUES (1)", "statement 1 (line 1): no such table: missing"),
        ("SELECT 1;\n\n-- here\nUPDATE t SET z = 1", "statement 2 (line 4): no such column: z"),
        ("SELECT :nobody", "statement 1 (line 1): unknown parameter :nobody: there are :message_id, :key, "),
        ("SELECT ?", "unknown parameter ?: "),
        ("SELECT ?1", "unknown parameter ?1: "),
        ("SELECT @key", "unknown parameter @key: "),
        ("SELEKT 1", "statement 1 (line 1): near \"SELEKT\": syntax error"),
        ("BEGIN", "begin or end a transaction"),
        ("COMMIT", "begin or end a transaction"),
        ("END", "begin or end a transaction"),
        ("ROLLBACK", "begin or end a transaction"),
        ("SAVEPOINT a", "begin or end a transaction"),
        ("RELEASE a", "begin or end a transaction"),
        ("ATTACH 'x' AS x", "one file only"),
        ("DETACH x", "one file only"),
        ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode could change"),
        ("vacuum", "VACUUM is not possible inside a transaction"),
        ("UPDATE messages SET state = 'done'", "the table messages is the ledger's own"),
        ("DELETE FROM Owners", "the table owners is the ledger's own"),
        ("INSERT INTO scopes (name) VALUES ('a')", "the table scopes is the ledger's own"),
        ("CREATE TABLE x (x)", "belongs into the schema's file (--sql-schema)"),
        ("DROP TABLE t", "belongs into the schema's file"),
        ("", "there is no statement in it"),
        ("-- nothing", "there is no statement in it"),
    ] {
        let sentence = wrong(&ledger, text);
        assert!(sentence.contains(said), "{text}: {sentence}");
    }
    let both = wrong(&ledger, "SELECT z;\nSELECT :x");
    assert!(
        both.contains("statement 1 (line 1): no such column: z; statement 2 (line 2): unknown"),
        "{both}"
    );
    assert!(Script::new("SELECT state FROM messages", &ledger).is_ok(), "reading is allowed");
}

/// The tables may change while a worker runs: that pauses it and burns no attempts.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_is_not_the_messages_failure() {
    let place = Place::new();
    let ledger = with_table(&place);
    let owner = ledger.enroll().await.unwrap();
    let script = Script::new("SELECT 1;\nINSERT INTO t (a) VALUES (:key)", &ledger).unwrap();
    let effects = ledger.clone().effects(script, MINUTE);
    apply_all(&effects, &owner, &["a"]).await.unwrap();
    place.sql("ALTER TABLE t RENAME TO elsewhere");
    let answers = apply_all(&effects, &owner, &["b"]).await.unwrap();
    let Applied::Failed { ticket, failure: Failure::CannotStart { error } } = &answers[0] else {
        panic!("{answers:?}")
    };
    assert_eq!(error, "statement 2 (line 2): no such table: t");
    assert_eq!(effects.probe().await, Err(error.clone()));
    let release =
        crate::setup::finish_of("b", ticket, ackonce::ledger::Ending::Released { interrupted: false });
    ledger.finish(&owner, vec![release], unix_millis()).await.unwrap();
    place.sql("ALTER TABLE elsewhere RENAME TO t");
    assert_eq!(effects.probe().await, Ok(()));
    let answers = apply_all(&effects, &owner, &["b"]).await.unwrap();
    assert!(matches!(&answers[0], Applied::Done(ticket) if ticket.attempt == 1), "{answers:?}");
}

#[test]
fn a_schema_is_made_once_whole_or_not_at_all_and_leaves_the_ledger_alone() {
    let place = Place::new();
    let ledger = place.open();
    let schema = "CREATE TABLE IF NOT EXISTS x (id INTEGER PRIMARY KEY AUTOINCREMENT, y TEXT);
        CREATE INDEX IF NOT EXISTS x_y ON x (y);
        CREATE VIEW IF NOT EXISTS v AS SELECT y FROM x;
        CREATE TRIGGER IF NOT EXISTS x_t AFTER INSERT ON x BEGIN SELECT 1; SELECT 2; END;
        INSERT INTO x (y) SELECT 'seed' WHERE NOT EXISTS (SELECT 1 FROM x);";
    for _ in 0..2 {
        ledger.set_up(schema).unwrap();
    }
    assert_eq!(place.number("SELECT count(*) FROM v"), 1);
    for (wrong, said) in [
        ("CREATE TABLE y (y); SELEKT", "statement 2: near \"SELEKT\": syntax error"),
        ("CREATE TABLE y (y); COMMIT", "statement 2: it would begin or end a transaction"),
        ("CREATE TABLE y (y); DROP TABLE messages", "messages is the ledger's own"),
        ("CREATE TABLE y (y); ALTER TABLE owners ADD COLUMN x", "owners is the ledger's own"),
        ("CREATE TABLE y (y); DROP VIEW ledger", "ledger is the ledger's own"),
        ("CREATE TABLE y (y); DROP INDEX messages_key", "is the ledger's own"),
        ("CREATE TRIGGER y AFTER INSERT ON messages BEGIN SELECT 1; END", "messages is the ledger's own"),
        ("CREATE TABLE y (y); DELETE FROM messages", "messages is the ledger's own"),
        ("PRAGMA user_version = 7", "PRAGMA user_version could change"),
        ("CREATE TEMP TABLE y (y)", "temporary"),
    ] {
        let error = ledger.set_up(wrong).expect_err(wrong);
        assert!(error.message.contains(said) && !error.is_transient(), "{wrong}: {error}");
    }
    assert_eq!(place.number("SELECT count(*) FROM sqlite_schema WHERE name = 'y'"), 0);
}
