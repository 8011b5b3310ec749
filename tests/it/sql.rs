//! The sql handler: effect and `done` are one commit.

use std::fs;

use lapin::BasicProperties;

use crate::harness::{LIMIT, Process, World, ackonce, header, until};

/// An account that a message moves, and a journal that takes each message once.
pub const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0)) STRICT;
    INSERT INTO account VALUES ('alice', 0) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS journal (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;";

/// Looks first, as most programs do (K19).
pub const MOVE: &str = "
    SELECT cents FROM account WHERE name = 'alice';
    INSERT INTO journal (id, cents) VALUES (:key, :body);
    UPDATE account SET cents = cents + :body WHERE name = 'alice';";

pub fn write(world: &World, schema: &str, statements: &str) {
    fs::write(world.path("schema.sql"), schema).expect("a file");
    fs::write(world.path("effects.sql"), statements).expect("a file");
}

pub const SQL: [&str; 4] = ["--sql-schema", "schema.sql", "--sql", "effects.sql"];

pub fn open(world: &World) -> rusqlite::Connection {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(world.path("ackonce.db"), flags).expect("a ledger");
    database.busy_timeout(LIMIT).expect("a timeout");
    database
}

pub fn number(world: &World, sql: &str) -> i64 {
    open(world).query_row(sql, [], |row| row.get(0)).expect(sql)
}

pub fn texts(world: &World, sql: &str) -> Vec<String> {
    let database = open(world);
    let mut statement = database.prepare(sql).expect(sql);
    statement.query_map([], |row| row.get(0)).expect(sql).collect::<Result<_, _>>().expect(sql)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_moves_once_whatever_comes_twice() {
    let world = World::new("balance").await;
    write(&world, SCHEMA, MOVE);
    for copy in 0..3 {
        for id in 0..100 {
            world.publish(&id.to_string(), format!("{}", id + 1).as_bytes()).await;
        }
        if copy == 0 {
            world.publish("0", b"1").await;
        }
    }
    let worker = world.worker(&SQL);
    worker.until_said("exactly once: ").await;
    until("all is settled", LIMIT, async || {
        world.rows().iter().filter(|row| row.state == "done").map(|row| 1 + row.duplicates).sum::<i64>()
            == 301
    })
    .await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("handled=100 duplicates=201");
    assert!(!ended.said.contains("ERROR") && !ended.said.contains("WARN"), "{}", ended.said);
    assert_eq!(number(&world, "SELECT cents FROM account"), 5050);
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// One commit for a message, and one for a batch: the claim has none of its own.
#[tokio::test(flavor = "multi_thread")]
async fn one_failing_message_of_a_hundred_is_undone_alone_and_dead_lettered() {
    let world = World::new("hundred").await;
    write(&world, SCHEMA, MOVE);
    for id in 0..100 {
        world.publish(&id.to_string(), if id == 50 { b"-100000" } else { b"1" }).await;
    }
    let arguments = ["--prefetch", "200", "--max-attempts", "2", "--initial-interval", "50ms"];
    let worker = world.worker(&[&SQL[..], &arguments[..]].concat());
    world.until_state("done", 99).await;
    world.until_state("dead", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("handled=99 duplicates=0 retried=1 dead_lettered=1");
    assert_eq!(number(&world, "SELECT cents FROM account"), 99);
    assert_eq!(number(&world, "SELECT count(*) FROM journal WHERE id = '50'"), 0);
    let dead = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0], "x-ackonce-reason"), "max-attempts");
    let error = header(&dead[0], "x-ackonce-error");
    assert_eq!(error, "statement 3 (line 4): CHECK constraint failed: cents >= 0");
    let row = world.rows().into_iter().find(|row| row.key == "50").expect("its row");
    assert_eq!((row.attempts, row.duplicates), (2, 0));
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// K01: the user's own UNIQUE index, a trigger and a foreign key say no. None of it is a duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_of_the_users_is_a_failure_and_never_a_duplicate() {
    let world = World::new("constraint").await;
    let schema = "CREATE TABLE IF NOT EXISTS a (x UNIQUE); INSERT OR IGNORE INTO a VALUES ('taken');
        CREATE TRIGGER IF NOT EXISTS a_no BEFORE INSERT ON a WHEN new.x = 'banned'
        BEGIN SELECT RAISE(ABORT, 'banned by the shop'); END;
        CREATE TRIGGER IF NOT EXISTS a_all BEFORE INSERT ON a WHEN new.x = 'worse'
        BEGIN SELECT RAISE(ROLLBACK, 'rolled back by the shop'); END;
        CREATE TABLE IF NOT EXISTS b (x REFERENCES a (x) DEFERRABLE INITIALLY DEFERRED);";
    write(
        &world,
        schema,
        "INSERT INTO a SELECT :body WHERE :body <> 'child'; INSERT INTO b SELECT :body WHERE :body = 'child'",
    );
    for body in ["taken", "banned", "worse", "child", "fine"] {
        world.publish(body, body.as_bytes()).await;
    }
    let arguments = ["--max-attempts", "2", "--initial-interval", "50ms"];
    let worker = world.worker(&[&SQL[..], &arguments[..]].concat());
    world.until_state("dead", 4).await;
    world.until_state("done", 1).await;
    worker.terminate().await.expect_exit(0).expect_said("handled=1 duplicates=0");
    let said = texts(&world, "SELECT last_error FROM ledger WHERE state = 'dead' ORDER BY last_error");
    for words in
        ["banned by the shop", "rolled back by the shop", "FOREIGN KEY", "UNIQUE constraint failed: a.x"]
    {
        assert!(said.iter().any(|error| error.contains(words)), "{words}: {said:?}");
    }
    assert_eq!(number(&world, "SELECT count(*) FROM a WHERE x = 'fine'"), 1);
    assert_eq!(number(&world, "SELECT count(*) FROM b"), 0);
    assert_eq!(world.take_all(&format!("{}.dead", world.queue)).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_said_at_the_start_and_nothing_is_consumed() {
    let world = World::new("wrong").await;
    world.publish("a", b"1").await;
    for (statements, said) in [
        (
            "SELECT 1;\nINSERT INTO nowhere VALUES (1)",
            "effects.sql: statement 2 (line 2): no such table: nowhere",
        ),
        ("UPDATE account SET euros = 1", "effects.sql: statement 1 (line 1): no such column: euros"),
        ("SELECT :id", "effects.sql: statement 1 (line 1): unknown parameter :id"),
        ("SELECT 1; COMMIT", "statement 2 (line 1): it would begin or end a transaction"),
        ("ATTACH ':memory:' AS m", "ATTACH and DETACH are not allowed"),
        ("UPDATE messages SET state = 'done'", "the table messages is the ledger's own"),
        (" -- nothing", "there is no statement in it"),
    ] {
        write(&world, SCHEMA, statements);
        let ended = world.worker(&SQL).ended(LIMIT).await;
        ended.expect_exit(2).expect_said(said);
    }
    write(&world, "CREATE TABLE x (", "SELECT 1");
    world
        .worker(&SQL)
        .ended(LIMIT)
        .await
        .expect_exit(2)
        .expect_said("schema.sql: statement 1: incomplete input");
    let missing = world.worker(&["--sql", "missing.sql"]).ended(LIMIT).await;
    missing.expect_exit(2).expect_said("cannot read the SQL in missing.sql");
    assert_eq!(world.rows(), []);
    assert_eq!(world.ready(&world.queue).await, 1);
}

/// Also that the file's keys work, and that the properties arrive.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_properties_arrive_unchanged() {
    let world = World::new("bodies").await;
    write(
        &world,
        "CREATE TABLE IF NOT EXISTS seen (id, type, body, route, kind)",
        "INSERT INTO seen VALUES (:message_id, typeof(:body), :body, :routing_key, :type)",
    );
    let large: Vec<u8> = (0..16_777_216_u32).map(|n| (n % 256) as u8).collect();
    for (id, body) in [("empty", &b""[..]), ("text", "zw\u{f6}lf".as_bytes()), ("large", &large)] {
        let properties = BasicProperties::default().with_message_id(id.into()).with_type("t".into());
        world.publish_with(body, properties).await;
    }
    let file = format!(
        "[ledger]\nurl = \"ackonce.db\"\n[[worker]]\nqueue = \"{}\"\nsql = \"effects.sql\"\nsql_schema = \"schema.sql\"\n",
        world.queue
    );
    fs::write(world.path("ackonce.toml"), file).expect("a file");
    let mut command = ackonce();
    command.args(["run", "--config", "ackonce.toml", "--url", &world.url]).current_dir(world.folder.path());
    let worker = Process::start(command, world.folder.path());
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let rows =
        texts(&world, "SELECT id || ' ' || type || ' ' || length(body) || ' ' || kind FROM seen ORDER BY id");
    assert_eq!(rows, ["empty text 0 t", "large blob 16777216 t", "text text 5 t"]);
    let stored: Vec<u8> =
        open(&world).query_row("SELECT body FROM seen WHERE id = 'large'", [], |row| row.get(0)).unwrap();
    assert!(stored == large);
    assert_eq!(texts(&world, "SELECT DISTINCT route FROM seen"), [world.queue.as_str()]);
}

/// A loop without end fails alone; and it does not outlive the drain's deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_end_is_interrupted() {
    let world = World::new("endless").await;
    let endless = "WITH RECURSIVE n (x) AS (SELECT 1 WHERE :body = 'endless' UNION ALL SELECT x + 1 FROM n)
        INSERT INTO t SELECT count(*) FROM n; INSERT INTO t VALUES (:key)";
    write(&world, "CREATE TABLE IF NOT EXISTS t (x)", endless);
    for (id, body) in [("a", "x"), ("b", "endless"), ("c", "x")] {
        world.publish(id, body.as_bytes()).await;
    }
    let worker = world.worker(&[&SQL[..], &["--timeout", "500ms", "--max-attempts", "1"]].concat());
    world.until_state("dead", 1).await;
    world.until_state("done", 2).await;
    worker.terminate().await.expect_exit(0).expect_said("it took longer than 500ms");
    assert_eq!(texts(&world, "SELECT x FROM t WHERE x IN ('a', 'b', 'c') ORDER BY x"), ["a", "c"]);

    world.publish("d", b"endless").await;
    let worker = world.worker(&[&SQL[..], &["--drain-timeout", "200ms", "--timeout", "1h"]].concat());
    worker.until_consuming().await;
    until("it is taken", LIMIT, async || world.ready(&world.queue).await == 0).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert_eq!(world.ready(&world.queue).await, 1, "{}", ended.said);
    assert!(!world.rows().iter().any(|row| row.state == "processing"), "{}", ended.said);
}

/// The table goes away under a running worker: it pauses, and no attempt is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_table_pauses_the_worker_until_it_is_back() {
    let world = World::new("dropped").await;
    write(&world, SCHEMA, MOVE);
    let worker = world.worker(&SQL);
    world.publish("a", b"1").await;
    world.until_state("done", 1).await;
    let other = rusqlite::Connection::open(world.path("ackonce.db")).expect("a ledger");
    other.busy_timeout(LIMIT).expect("a timeout");
    other.execute_batch("ALTER TABLE journal RENAME TO away").expect("renamed");
    world.publish("b", b"1").await;
    worker.until_said("paused, no attempt is used: statement 2 (line 3): no such table: journal").await;
    other.execute_batch("ALTER TABLE away RENAME TO journal").expect("renamed");
    world.until_state("done", 2).await;
    worker.until_said("the handler can start again").await;
    assert_eq!(world.rows()[1].attempts, 1);
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(number(&world, "SELECT cents FROM account"), 2);
}
