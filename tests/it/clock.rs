//! The wall clock jumps, as after a restored machine or a bad time server: nothing is forgotten, nothing
//! waits longer. The clock is that of the real binary, replaced by libfaketime; the monotonic one goes on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::harness::{LIMIT, SLOW, World, until};

/// Where distributions put it.
fn library() -> PathBuf {
    let mut folders: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from).to_vec();
    folders.extend(fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path()));
    let library =
        folders.iter().map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    library.expect("libfaketime is needed: the package is called faketime or libfaketime")
}

/// A wall clock of the test's own.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(world: &World, offset: &str) -> Self {
        let clock = Self { file: world.path("clock") };
        clock.set(offset);
        clock
    }

    /// Such as `-1h` or `+400d`. Read anew whenever somebody asks for the time.
    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, offset).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

fn updated_ms(ledger: &Path, key: &str) -> i64 {
    let database = rusqlite::Connection::open(ledger).unwrap();
    database.query_row("SELECT updated_ms FROM messages WHERE key = ?1", [key], |row| row.get(0)).unwrap()
}

const DAY_MS: i64 = 86_400_000;

/// K14. With a retention of 1000 s a pass comes each second, and may remove 0.4 % of the rows: of a dozen, none
/// within 20 s. The warning comes with the sixth pass.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_does_not_empty_the_ledger() {
    let world = World::new("clockahead").await;
    let handler = world.handler("", "");
    let arguments = ["--retention", "1000s", "--exec", &handler];
    let keys: Vec<_> = (0..12).map(|n| format!("m{n:02}")).collect();
    let worker = world.worker(&arguments);
    for key in &keys {
        world.publish(key, b"x").await;
    }
    world.until_state("done", keys.len()).await;
    worker.terminate().await.expect_exit(0);
    let ledger = world.path("ackonce.db");
    let stamped = updated_ms(&ledger, "m00");
    rusqlite::Connection::open(&ledger)
        .unwrap()
        .execute(
            "UPDATE messages SET first_seen_ms = ?1, updated_ms = ?1 WHERE key = 'm05'",
            [stamped + 4000 * DAY_MS],
        )
        .unwrap();

    let clock = Clock::new(&world, "+400d");
    let worker = world.worker_with(|command| clock.give_to(command), &arguments);
    worker.until_said("is the clock right?").await;
    for key in keys.iter().map(String::as_str).chain(["new"]) {
        world.publish(key, b"x").await;
    }
    world.until_state("done", keys.len() + 1).await;
    until("all copies are counted", LIMIT, async || {
        world.rows().iter().map(|row| row.duplicates).sum::<i64>() == keys.len() as i64
    })
    .await;
    assert_eq!(world.effects().len(), keys.len() + 1, "each once");
    let jumped = updated_ms(&ledger, "new") - stamped;
    assert!(jumped > 399 * DAY_MS, "the worker's clock was not ahead: {jumped} ms");
    world.stop_and_find_nothing_left(worker).await;
}

/// K15: a wait is no difference of wall clocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_back_delays_no_retry() {
    let world = World::new("clockback").await;
    let handler = world.handler(r#"[ "$ACKONCE_ATTEMPT" -ge 2 ] || exit 1"#, "");
    let clock = Clock::new(&world, "+0");
    let retry = ["--initial-interval", "2s", "--exec", &handler];
    let worker = world.worker_with(|command| clock.give_to(command), &retry);
    world.publish("a", b"x").await;
    world.until_state("failed", 1).await;
    let failed = updated_ms(&world.path("ackonce.db"), "a");
    clock.set("-1h");
    until("the retry comes in spite of the clock", Duration::from_secs(10), async || {
        world.states() == [("a".to_owned(), "done".to_owned())]
    })
    .await;
    let stepped = updated_ms(&world.path("ackonce.db"), "a") - failed;
    assert!(stepped < -3_000_000, "the worker's clock did not step back: {stepped} ms");
    assert_eq!(world.effects(), ["a"]);
    world.stop_and_find_nothing_left(worker).await;
}

/// K15: a claim of a dead worker, stamped an hour ahead, is not honoured for that hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_from_the_future_is_taken_over_at_once() {
    let world = World::new("clockclaim").await;
    let handler = world.handler(SLOW, "");
    let clock = Clock::new(&world, "+1h");
    let worker = world.worker_with(|command| clock.give_to(command), &["--exec", &handler]);
    world.publish("a", b"x").await;
    until("it runs", LIMIT, async || world.lines("started") == ["1 0"]).await;
    worker.kill();
    let worker = world.worker(&["--exec", &handler]);
    until("it is taken over", Duration::from_secs(10), async || world.lines("started") == ["1 0", "2 1"])
        .await;
    world.touch("go");
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
}
