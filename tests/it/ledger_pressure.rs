//! The ledger's disk is full, read-only, or gone, or its log grows: the worker says so, acks nothing on
//! it, and goes on when it heals.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    process::{Child, ChildStdin, Command, Stdio},
};

use ackonce::ledger::sqlite::{SqliteLedger, SqliteOptions};
use rusqlite::Connection;

use crate::harness::{LIMIT, Process, SLOW, SmallDisk, World, may_mount, until};

/// Each of these ran once, in whatever order.
#[track_caller]
fn ran_once(world: &World, keys: &[String]) {
    let mut effects = world.effects();
    effects.sort();
    let mut keys = keys.to_vec();
    keys.sort();
    assert_eq!(effects, keys);
}

async fn publish_all(world: &World, keys: &[String]) {
    for key in keys {
        world.publish(key, b"x").await;
    }
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n:02}")).collect()
}

/// A sqlite3 shell in which somebody looks at the ledger, and forgets to end it.
struct Shell {
    child: Child,
    _stdin: ChildStdin,
}

impl Shell {
    fn reading(world: &World) -> Self {
        let mut child = Command::new("sqlite3")
            .arg(world.path("ackonce.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sqlite3");
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "BEGIN; SELECT count(*) FROM messages;").unwrap();
        let mut answer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(answer, "1\n", "it has begun to read");
        Self { child, _stdin: stdin }
    }

    fn close(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// K20: the log cannot be emptied while a program reads; the worker goes on and says so. Most of the
/// growth is another program's, so that the test is quick: the log is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_is_left_open_makes_the_log_grow_and_the_worker_says_so() {
    let world = World::new("longlog").await;
    let log = world.path("ackonce.db-wal");
    let length = || fs::metadata(&log).unwrap().len();
    let worker = world.worker(&["--log"]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    let shell = Shell::reading(&world);
    let before = length();
    publish_all(&world, &keys("m", 60)).await;
    world.until_state("done", 61).await;
    assert!(length() > before, "the log only grows");
    assert!(!worker.said().contains("read transaction"), "too early: {}", worker.said());

    let other = Connection::open(world.path("ackonce.db")).unwrap();
    other.busy_timeout(LIMIT).unwrap();
    other
        .execute_batch("CREATE TABLE ballast (b BLOB); INSERT INTO ballast VALUES (zeroblob(70 << 20))")
        .unwrap();
    drop(other);
    publish_all(&world, &keys("n", 10)).await;
    world.until_state("done", 71).await;
    worker.until_said("some program holds a read transaction").await;
    assert!(length() > 70 << 20);

    shell.close();
    let mut more = 0;
    until("the log is short again", LIMIT, async || {
        more += 1;
        world.publish(&format!("o-{more}"), b"x").await;
        length() <= 64 << 20
    })
    .await;
    worker.until_said("is short again").await;
    assert_eq!(worker.said().matches("some program holds a read transaction").count(), 1);
    world.until_state("done", 71 + more).await;
    world.stop_and_find_nothing_left(worker).await;
}

/// K21: on a real, small disk (see [`may_mount`]). What ran is recorded, and what waits is run, when
/// there is room again; until then nothing is acked or given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_pauses_the_worker_until_there_is_room() {
    if !may_mount("ledger_pressure::a_full_disk_pauses_the_worker_until_there_is_room") {
        return;
    }
    let world = World::new("full").await;
    let disk = SmallDisk::mount(&world.path("disk"), 2048);
    drop(SqliteLedger::open(disk.path("ackonce.db"), SqliteOptions::default()).unwrap());
    symlink(disk.path("ackonce.db"), world.path("ackonce.db")).unwrap();
    let worker = world.worker(&["--exec", &world.handler(SLOW, ""), "--max-attempts", "1"]);
    world.publish("running", b"x").await;
    until("the handler runs", LIMIT, async || !world.lines("started").is_empty()).await;
    disk.fill();
    world.touch("go");
    let waiting = keys("waiting", 10);
    publish_all(&world, &waiting).await;
    worker.until_said("no room for the ledger").await;
    until("the handler is through", LIMIT, async || !world.effects().is_empty()).await;
    assert_eq!(world.effects(), ["running"], "nothing starts without a claim");
    assert_eq!(world.states(), [("running".to_owned(), "processing".to_owned())]);
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 0);
    assert_eq!(worker.said().matches("no room for the ledger").count(), 1, "said once a minute");

    disk.free();
    world.until_state("done", 11).await;
    worker.until_said("the ledger answers again").await;
    ran_once(&world, &[waiting, vec!["running".to_owned()]].concat());
    assert!(world.rows().iter().all(|row| (row.attempts, row.duplicates) == (1, 0)), "{:?}", world.rows());
    world.stop_and_find_nothing_left(worker).await;
}

/// The file system turns read-only under a running worker, as one does that has met an error: each
/// write fails with EROFS. `strace` says so to the worker, because a file system with files that are
/// open for writing cannot be remounted; it needs root, or a kernel that lets one trace one's own processes.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_turns_read_only_pauses_the_worker_until_it_is_writable() {
    let world = World::new("readonly").await;
    let worker = world.worker(&["--exec", &world.handler("", ""), "--max-attempts", "1"]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &worker.pid().to_string(), "-o", "/dev/null"]).args([
        "-e",
        "trace=pwrite64",
        "-e",
        "inject=pwrite64:error=EROFS",
    ]);
    let strace = Process::start(strace, world.folder.path());
    strace.until_said("attached").await;
    let waiting = keys("waiting", 5);
    publish_all(&world, &waiting).await;
    worker.until_said("cannot read or write the ledger").await;
    assert_eq!((world.effects().len(), world.rows().len()), (1, 1));

    strace.terminate().await;
    world.until_state("done", 6).await;
    worker.until_said("the ledger answers again").await;
    ran_once(&world, &[waiting, vec!["first".to_owned()]].concat());
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 0);
    world.stop_and_find_nothing_left(worker).await;
}

/// A commit that only this process could see would be lost with it: nothing is acked on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_moved_away_pauses_the_worker_until_it_is_back() {
    let world = World::new("moved").await;
    let worker = world.worker(&["--exec", &world.handler(SLOW, ""), "--max-attempts", "1"]);
    world.publish("running", b"x").await;
    until("the handler runs", LIMIT, async || !world.lines("started").is_empty()).await;
    fs::rename(world.path("ackonce.db"), world.path("away.db")).unwrap();
    world.touch("go");
    let waiting = keys("waiting", 5);
    publish_all(&world, &waiting).await;
    worker.until_said("is gone while in use: put it back").await;
    assert!(!world.path("ackonce.db").exists(), "no new one is made");
    until("the handler is through", LIMIT, async || !world.effects().is_empty()).await;
    assert_eq!(world.effects(), ["running"]);

    fs::rename(world.path("away.db"), world.path("ackonce.db")).unwrap();
    world.until_state("done", 6).await;
    ran_once(&world, &[waiting, vec!["running".to_owned()]].concat());
    world.stop_and_find_nothing_left(worker).await;
}

/// A deleted file does not come back: the worker waits, and stops when asked. What it had not handled is
/// still with the broker, and a worker that is started then begins with an empty ledger.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_deleted_acks_nothing_and_loses_no_message() {
    let world = World::new("deleted").await;
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    for file in ["ackonce.db", "ackonce.db-wal", "ackonce.db-shm"] {
        fs::remove_file(world.path(file)).unwrap();
    }
    let waiting = keys("waiting", 5);
    publish_all(&world, &waiting).await;
    worker.until_said("is gone while in use: put it back, or start again").await;
    worker.terminate().await.expect_exit(0);
    assert_eq!(world.effects(), ["first"]);
    until("all are back", LIMIT, async || world.ready(&world.queue).await == 5).await;

    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.until_state("done", 5).await;
    ran_once(&world, &[waiting, vec!["first".to_owned()]].concat());
    world.stop_and_find_nothing_left(worker).await;
}
