//! `ackonce ledger prune --compact`: the file becomes smaller, or the command says where room is missing.

use std::{path::Path, process::Output, time::Duration};

use ackonce::ledger::sqlite::{Compactor, SqliteLedger, SqliteOptions};
use rusqlite::Connection;

use crate::harness::{SmallDisk, World, ackonce, may_mount};

/// A ledger with old rows that fill about 8 MiB, all of them in the file and none in its log.
fn fat_ledger(path: &Path) {
    drop(SqliteLedger::open(path, SqliteOptions::default()).unwrap());
    Connection::open(path)
        .unwrap()
        .execute_batch(
            "INSERT INTO scopes (name) VALUES ('old');
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
             INSERT INTO messages (scope_id, key, state, attempts, owner_id, first_seen_ms, updated_ms, last_error)
             SELECT 1, 'old ' || i, 'dead', 1, 0, i, i, hex(zeroblob(450))
               FROM n;
             PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .unwrap();
}

fn prune(world: &World, arguments: &[&str], temp: Option<&Path>) -> Output {
    let mut command = ackonce();
    command.args(["ledger", "prune", "--compact", "--ledger"]).arg(world.path("ackonce.db")).args(arguments);
    if let Some(temp) = temp {
        command.env("SQLITE_TMPDIR", temp);
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn length(world: &World) -> u64 {
    std::fs::metadata(world.path("ackonce.db")).unwrap().len()
}

/// A worker and its rows stay what they are.
#[tokio::test(flavor = "multi_thread")]
async fn compacting_shrinks_the_file_under_a_running_worker() {
    let world = World::new("compact").await;
    fat_ledger(&world.path("ackonce.db"));
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.publish("before", b"x").await;
    world.until_state("done", 1).await;
    let fat = length(&world);
    assert!(fat > 7 << 20, "{fat} bytes");
    let pruned = prune(&world, &[], None);
    assert!(pruned.status.success(), "{}", said(&pruned));
    let printed = String::from_utf8_lossy(&pruned.stdout).into_owned();
    assert!(printed.contains("removed 8000 rows") && printed.contains("compacted: "), "{printed}");
    let slim = length(&world);
    assert!(slim < 200 << 10, "{slim} bytes");

    for id in ["before", "after"] {
        world.publish(id, b"x").await;
    }
    world.until_state("done", 2).await;
    worker.until_said("duplicate").await;
    assert_eq!(world.effects(), ["before", "after"]);
    world.stop_and_find_nothing_left(worker).await;
}

/// K22: the directory is named that has no room, whichever of the two; the ledger is whole, and its worker
/// notices nothing. Needs two small disks, see [`may_mount`].
#[tokio::test(flavor = "multi_thread")]
async fn compacting_names_the_directory_that_is_too_small() {
    if !may_mount("ledger_compact::compacting_names_the_directory_that_is_too_small") {
        return;
    }
    let world = World::new("nocompact").await;
    let temp = SmallDisk::mount(&world.path("temp"), 1024);
    fat_ledger(&world.path("ackonce.db"));
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.publish("before", b"x").await;
    world.until_state("done", 1).await;
    let fat = length(&world);
    // Nothing is old enough to go, so all of it has to be copied.
    let keep = ["--older-than", "36500d"];
    let failed = prune(&world, &keep, Some(&temp.path("")));
    let temp_named = format!("MiB in {} for SQLite's temporary files", temp.path("").display());
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains(temp_named.trim_end_matches('/')), "{}", said(&failed));
    assert_eq!(length(&world), fat);
    let check: String = Connection::open(world.path("ackonce.db"))
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    world.publish("after", b"x").await;
    world.until_state("done", 2).await;
    assert!(!worker.said().contains("paused"), "{}", worker.said());
    world.stop_and_find_nothing_left(worker).await;

    let disk = SmallDisk::mount(&world.path("disk"), 12 << 10);
    std::fs::copy(world.path("ackonce.db"), disk.path("ackonce.db")).unwrap();
    let mut command = ackonce();
    command.args(["ledger", "prune", "--compact", "--ledger"]).arg(disk.path("ackonce.db")).args(keep);
    let failed = command.output().unwrap();
    let named = format!("MiB in {} for the ledger's log", world.path("disk").display());
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains(&named), "{}", said(&failed));
}

/// Somebody else's transaction: said after a while, nothing changed.
#[tokio::test(flavor = "multi_thread")]
async fn compacting_a_busy_ledger_says_that_it_is_busy() {
    let world = World::without_queue("busycompact").await;
    let path = world.path("ackonce.db");
    drop(SqliteLedger::open(&path, SqliteOptions::default()).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = Compactor::open(&path, Duration::from_millis(200)).unwrap().run().unwrap_err();
    assert!(error.is_transient() && error.message.contains("is busy, and is not compacted"), "{error}");
}
