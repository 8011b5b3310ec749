//! The ledger says no, is busy, or is not a ledger: nothing is acked, nothing is lost.

use std::fs;

use rusqlite::Connection;

use crate::harness::{LIMIT, Process, World, ackonce, until};

/// K01: a constraint that is not ours is not a duplicate, and stops nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_ledger_refuses_is_neither_run_nor_acked() {
    let world = World::new("refused").await;
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    let database = Connection::open(world.path("ackonce.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    let trigger = "CREATE TRIGGER no BEFORE INSERT ON messages WHEN NEW.key = 'bad'
                   BEGIN SELECT RAISE(ABORT, 'no such customer'); END";
    database.execute_batch(trigger).unwrap();
    world.publish("bad", b"x").await;
    world.publish("good", b"x").await;
    world.until_state("done", 2).await;
    worker.until_said("no such customer").await;
    assert_eq!(world.effects(), ["first", "good"]);

    database.execute_batch("DROP TRIGGER no").unwrap();
    world.until_state("done", 3).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("duplicates=0");
    assert_eq!(world.effects(), ["first", "good", "bad"]);
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// K24: only a missing file is created. Anything else that is no ledger is left untouched.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_ledger_is_refused_before_anything_is_consumed() {
    let world = World::new("foreign").await;
    let ledger = world.path("ackonce.db");
    let worker = world.worker(&["--log"]);
    worker.until_consuming().await;
    worker.terminate().await.expect_exit(0);
    let whole = fs::read(&ledger).unwrap();
    world.publish("a", b"x").await;

    let foreign = world.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)").unwrap();
    let newer = world.path("newer.db");
    fs::write(&newer, &whole).unwrap();
    Connection::open(&newer)
        .unwrap()
        .execute_batch("PRAGMA user_version = 999; PRAGMA journal_mode = DELETE")
        .unwrap();
    let damaged = [
        ("random", (0..8192u32).map(|n| (n * 7919 % 251) as u8).collect()),
        ("empty", Vec::new()),
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("foreign", fs::read(&foreign).unwrap()),
        ("newer", fs::read(&newer).unwrap()),
    ];
    for (what, bytes) in damaged {
        fs::write(&ledger, &bytes).unwrap();
        for file in ["ackonce.db-wal", "ackonce.db-shm"] {
            let _ = fs::remove_file(world.path(file));
        }
        let ended = world.worker(&["--log"]).ended(LIMIT).await;
        assert_eq!(ended.status.code(), Some(1), "{what}: {}", ended.said);
        let sentence = ended.said.lines().last().unwrap_or_default();
        assert!(sentence.contains("ackonce.db") && !sentence.contains("panicked"), "{what}: {sentence}");
        assert_eq!(fs::read(&ledger).unwrap(), bytes, "{what}: the file was changed");
        assert_eq!(world.ready(&world.queue).await, 1, "{what}: something was consumed");
    }
}

/// K25: the write-ahead log is on disk before the ack is on the wire.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_is_written_after_the_commit_is_synced() {
    let world = World::new("sync").await;
    let trace = world.path("trace");
    let mut command = std::process::Command::new("strace");
    command
        .args(["-f", "-y", "-s", "64", "-e", "trace=fsync,fdatasync,write,sendto,writev"])
        .arg("-o")
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_ackonce"))
        .args(["run", "--url", &world.url, "--queue", &world.queue, "--ledger"])
        .arg(world.path("ackonce.db"))
        .args(["--exec", "true"])
        .env("ACKONCE_LOG_LEVEL", "debug")
        .current_dir(world.folder.path());
    let worker = Process::start(command, world.folder.path());
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", worker.pid())).unwrap();
    let pid: i32 = child.split_whitespace().next().unwrap().parse().unwrap();
    // Class 60, method 80: basic.ack, as strace shows the bytes.
    let ack = r"\0<\0P\0\0\0\0\0\0\0\1";
    until("the ack is written", LIMIT, async || fs::read_to_string(&trace).unwrap_or_default().contains(ack))
        .await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    worker.ended(LIMIT).await.expect_exit(0);
    let trace = fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let ack_at = lines.iter().position(|line| line.contains(ack)).unwrap();
    let synced =
        lines[..ack_at].iter().rposition(|line| line.contains("sync(") && line.contains("ackonce.db-wal"));
    let written =
        lines[..ack_at].iter().rposition(|line| line.contains("ackonce.db-wal") && !line.contains("sync("));
    // SQLite writes the log with pwrite64, which is not traced: between the handler's end and the
    // ack there must be a sync of the log.
    assert!(synced.is_some(), "no sync of the log before the ack:\n{trace}");
    assert!(written <= synced);
    // The cheap kind (.cargo/config.toml): the log's times need not be durable.
    if cfg!(target_os = "linux") {
        let mut syncs = lines.iter().filter(|line| line.contains("sync(") && line.contains("ackonce.db-wal"));
        assert!(syncs.all(|line| line.contains("fdatasync(")), "{trace}");
    }
}

/// A ledger that cannot be written at the start: one sentence, exit status 1, nothing consumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_in_a_missing_folder_is_named() {
    let world = World::new("nofolder").await;
    let missing = world.path("no/such/folder/ackonce.db").display().to_string();
    let mut command = ackonce();
    command.args(["run", "--url", &world.url, "--queue", &world.queue, "--ledger", &missing, "--log"]);
    let ended = Process::start(command, world.folder.path()).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("no/such/folder");
}
