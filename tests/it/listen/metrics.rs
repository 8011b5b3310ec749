//! A scrape shows exactly what happened, in the metrics that docs/metrics.md lists.

use std::{collections::BTreeSet, fs};

use crate::harness::{LIMIT, Node, World, until};

use super::{
    client::{get, port},
    listening,
    scrape::Scrape,
    until_ready,
};

async fn scrape(port: u16) -> Scrape {
    let (status, text) = get(port, "/metrics").await;
    assert_eq!(status, 200, "{text}");
    let scrape = Scrape::parse(&text);
    scrape.check_with_another_reader();
    scrape
}

/// Ten deliveries: two duplicates, one message that failed once, one that gave up.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_shows_what_became_of_ten_deliveries_in_the_metrics_that_are_listed() {
    let world = World::new("metrics").await;
    let handler = world.script(
        r#"case "$ACKONCE_KEY-$ACKONCE_ATTEMPT" in flaky-1) exit 1 ;; bad-*) exit 65 ;; esac; exit 0"#,
    );
    let worker = listening(&world, &["--initial-interval", "100ms", "--exec", &handler]);
    let port = port(&worker).await;
    until_ready(port).await;
    for id in ["a", "b", "c", "d", "e", "f", "flaky", "bad", "a", "a"] {
        world.publish(id, b"secret body").await;
    }
    world.until_state("done", 7).await;
    world.until_state("dead", 1).await;
    let queue = world.queue.as_str();
    let outcome = |scrape: &Scrape, outcome: &str| {
        scrape.value("ackonce_deliveries_total", &[("outcome", outcome), ("queue", queue)])
    };
    let mut seen = scrape(port).await;
    until("all is settled", LIMIT, async || {
        seen = scrape(port).await;
        seen.value("ackonce_in_flight", &[("queue", queue)]) == 0.0
            && ["handled", "duplicate", "dead-lettered"].iter().map(|word| outcome(&seen, word)).sum::<f64>()
                == 10.0
    })
    .await;
    for (word, count) in [
        ("handled", 7.0),
        ("duplicate", 2.0),
        ("retried", 1.0),
        ("dead-lettered", 1.0),
        ("rejected", 0.0),
        ("returned", 0.0),
    ] {
        assert_eq!(outcome(&seen, word), count, "{word}");
    }
    let of_queue = |name: &str| seen.value(name, &[("queue", queue)]);
    for reason in ["missing-key", "mismatch", "max-attempts", "gave-up", "interrupted"] {
        let count = seen.value("ackonce_dead_letters_total", &[("queue", queue), ("reason", reason)]);
        assert_eq!(count, f64::from(u8::from(reason == "gave-up")), "{reason}");
    }
    assert_eq!(of_queue("ackonce_handler_duration_seconds_count"), 9.0, "eight runs, and one again");
    assert!(of_queue("ackonce_claim_duration_seconds_count") >= 2.0);
    assert!(of_queue("ackonce_finish_duration_seconds_count") >= 2.0);
    // At least 9 claims and their finishes; the two duplicates may have joined a run.
    assert!(seen.value("ackonce_ledger_commit_messages_sum", &[]) >= 18.0);
    assert!(seen.value("ackonce_ledger_commit_duration_seconds_sum", &[]) > 0.0);
    assert_eq!((of_queue("ackonce_sessions_total"), of_queue("ackonce_session_open")), (1.0, 1.0));
    assert_eq!(seen.value("ackonce_ledger_rows", &[("state", "done")]), 7.0);
    assert_eq!(seen.value("ackonce_ledger_rows", &[("state", "dead")]), 1.0);
    assert!(seen.value("ackonce_ledger_bytes", &[]) >= 4096.0);
    assert_eq!(seen.value("ackonce_ledger_oldest_processing_seconds", &[]), 0.0);
    assert!(!seen.text.contains("secret") && !seen.text.contains("flaky"), "{}", seen.text);
    assert_eq!(seen.families(), listed(), "left: the scrape; right: docs/metrics.md");
    world.stop_and_find_nothing_left(worker).await;
}

/// Name, type and labels of each metric in the documentation's table.
fn listed() -> BTreeSet<(String, String, String)> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = fs::read_to_string(path).expect("the table");
    let rows = text.lines().filter(|line| line.starts_with("| `ackonce_"));
    rows.map(|row| {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        assert!(cells.len() == 6 && !cells[4].is_empty(), "{row}");
        (cells[1].clone(), cells[2].clone(), cells[3].clone())
    })
    .collect()
}

/// A session that ends by itself is counted with its reason, and the next one too.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_why_they_ended_are_counted() {
    let world = World::new("ends").await;
    let worker = listening(&world, &["--log"]);
    let port = port(&worker).await;
    until_ready(port).await;
    world.delete(&world.queue).await;
    let queue = world.queue.as_str();
    until("a second session", LIMIT, async || {
        scrape(port).await.value("ackonce_sessions_total", &[("queue", queue)]) == 2.0
    })
    .await;
    let ends = scrape(port).await.sum("ackonce_session_ends_total");
    assert_eq!(ends, 1.0);
    worker.terminate().await.expect_exit(0);
}

/// While an alarm of the broker keeps a dead letter from being published, and only then, the worker shows itself blocked.
#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_of_the_broker_is_shown_own_broker() {
    let node = Node::start_new();
    let world = World::at(&node.url, "blocked").await;
    let handler = world.script("while [ ! -e go ]; do sleep 0.05; done; exit 65");
    let worker = listening(&world, &["--exec", &handler]);
    let port = port(&worker).await;
    until_ready(port).await;
    let blocked = async || scrape(port).await.value("ackonce_blocked", &[("queue", &world.queue)]);
    // Before the alarm: while it lasts, this is blocked as well.
    world.publish("a", b"x").await;
    assert_eq!(blocked().await, 0.0);
    node.ctl(&["set_vm_memory_high_watermark", "0.0001"]);
    world.touch("go");
    until("it is blocked", LIMIT, async || blocked().await == 1.0).await;
    assert_eq!(get(port, "/readyz").await.0, 200, "it goes on consuming");
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    until("it is free again", LIMIT, async || blocked().await == 0.0).await;
    world.until_state("dead", 1).await;
    worker.terminate().await.expect_exit(0);
}

/// Two workers are told apart, and each metric is described once.
#[tokio::test(flavor = "multi_thread")]
async fn several_workers_are_told_apart_by_their_queues() {
    let world = World::new("several").await;
    let other = format!("{}.other", world.queue);
    world.declare(&other, "quorum").await;
    let config = format!(
        "listen = \"0\"\n[broker]\nurl = \"{}\"\n[[worker]]\nqueue = \"{}\"\nlog = true\n\
         [[worker]]\nqueue = \"{other}\"\nsql = \"effects.sql\"\n",
        world.url, world.queue
    );
    fs::write(world.path("ackonce.toml"), config).unwrap();
    fs::write(world.path("effects.sql"), "SELECT :key;").unwrap();
    let mut command = crate::harness::ackonce();
    command.args(["run", "--config", "ackonce.toml"]).current_dir(world.folder.path());
    let worker = crate::harness::Process::start(command, world.folder.path());
    let port = port(&worker).await;
    until_ready(port).await;
    world.publish("a", b"x").await;
    let properties = lapin::BasicProperties::default().with_message_id("b".into());
    crate::harness::publish(&world.channel, "", &other, b"x", properties).await;
    until("each handled one", LIMIT, async || {
        let seen = scrape(port).await;
        [world.queue.as_str(), other.as_str()].iter().all(|queue| {
            seen.value("ackonce_deliveries_total", &[("outcome", "handled"), ("queue", queue)]) == 1.0
        })
    })
    .await;
    let seen = scrape(port).await;
    let runs = |queue: &str| seen.value("ackonce_apply_duration_seconds_count", &[("queue", queue)]);
    assert!((runs(&world.queue), runs(&other) >= 1.0) == (0.0, true), "{}", seen.text);
    worker.terminate().await.expect_exit(0);
}

/// K23: looking into the ledger takes none of the locks that SQLite holds on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_scrapes_leave_the_locks_on_the_ledger_alone() {
    use std::os::unix::fs::MetadataExt;

    let world = World::new("locks").await;
    let worker = listening(&world, &["--exec", &world.handler("", "")]);
    let port = port(&worker).await;
    until_ready(port).await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let inodes = ["ackonce.db", "ackonce.db-wal", "ackonce.db-shm"]
        .map(|file| format!(":{}", fs::metadata(world.path(file)).expect("a file").ino()));
    let locks = || -> BTreeSet<String> {
        let pid = worker.pid().to_string();
        let text = fs::read_to_string("/proc/locks").expect("the table of locks");
        let ours = text.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().skip(1).collect();
            let held = fields.get(3) == Some(&pid.as_str())
                && inodes.iter().any(|inode| fields[4].ends_with(inode.as_str()));
            held.then(|| fields.join(" "))
        });
        ours.collect()
    };
    let before = locks();
    assert!(!before.is_empty(), "SQLite holds a lock on what it has open");
    for _ in 0..100 {
        scrape(port).await;
        get(port, "/healthz").await;
    }
    until("the locks are there", LIMIT, async || locks() == before).await;
    world.publish("b", b"x").await;
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
}
