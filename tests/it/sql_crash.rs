//! The sql handler where others have a window: killed at any moment, and two at a time.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::{
    harness::{LIMIT, World, ackonce, until},
    sql::{MOVE, SCHEMA, SQL, number, write},
};

/// What must hold at every moment: the balance, the journal and the done rows say the same.
const DIFFERENCE: &str = "
    SELECT abs((SELECT cents FROM account) - (SELECT ifnull(sum(cents), 0) FROM journal))
         + abs((SELECT count(*) FROM journal) - (SELECT count(*) FROM messages WHERE state = 'done'))
         + (SELECT count(*) FROM messages WHERE state <> 'done')";

const LANES: usize = 4;
const KILLS: usize = 125;

/// K18: 500 kills while ids flow, each sent twice. Named so that it runs alone: it needs both cores.
#[tokio::test(flavor = "multi_thread")]
async fn after_500_kills_the_balance_is_the_sum_of_the_messages_own_broker() {
    let world = World::new("kills").await;
    write(&world, SCHEMA, MOVE);
    let (sent, meaningful) = (AtomicU64::new(0), AtomicU64::new(0));
    let quiet = |command: &mut std::process::Command| {
        command.env("ACKONCE_LOG_LEVEL", "info");
    };
    let first = world.worker_with(quiet, &SQL);
    first.until_consuming().await;
    first.terminate().await.expect_exit(0);
    let lane = async || {
        for _ in 0..KILLS {
            let before = number(&world, "SELECT count(*) FROM messages");
            let worker = world.worker_with(quiet, &[&SQL[..], &["--prefetch", "7"]].concat());
            for _ in 0..3 {
                let id = sent.fetch_add(1, Relaxed) + 1;
                world.publish(&id.to_string(), id.to_string().as_bytes()).await;
                world.publish(&id.to_string(), id.to_string().as_bytes()).await;
            }
            // The moment is what is tested: some before it consumes, most while it works.
            if fastrand::u8(..) < 200 {
                worker.until_consuming().await;
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(3..40))).await;
            worker.kill();
            let after = number(&world, "SELECT count(*) FROM messages");
            meaningful.fetch_add(u64::from(after > before), Relaxed);
            assert_eq!(number(&world, DIFFERENCE), 0);
        }
    };
    futures::future::join_all((0..LANES).map(|_| lane())).await;

    let sent = sent.load(Relaxed);
    let worker = world.worker_with(quiet, &SQL);
    worker.until_consuming().await;
    until("every message is done", LIMIT * 2, async || {
        number(&world, "SELECT count(*) FROM messages").unsigned_abs() == sent
    })
    .await;
    until("the queue is empty", LIMIT, async || world.ready(&world.queue).await == 0).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(number(&world, DIFFERENCE), 0);
    assert_eq!(number(&world, "SELECT cents FROM account").unsigned_abs(), sent * (sent + 1) / 2);
    assert_eq!(
        number(&world, "SELECT count(*) FROM messages WHERE attempts <> 1"),
        0,
        "none was interrupted"
    );
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 0);
    assert!(meaningful.load(Relaxed) > 100, "most workers had done something: {meaningful:?}");
}

/// K19: both look first and then write; no lock error reaches anybody.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_on_one_ledger_that_select_first_meet_no_error() {
    let world = World::new("two").await;
    write(&world, SCHEMA, MOVE);
    let sent = ackonce()
        .args(["publish", "--url", &world.url, "--queue", &world.queue, "5"])
        .args(["--count", "2000", "--repeat", "2", "--shuffle"])
        .output()
        .expect("publish runs");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let arguments = [&SQL[..], &["--prefetch", "50", "--concurrency", "8"]].concat();
    let (one, two) = (world.worker(&arguments), world.worker(&arguments));
    until("4,000 deliveries are settled", LIMIT * 2, async || {
        let rows = world.rows();
        rows.iter().filter(|row| row.state == "done").count() == 2000
            && rows.iter().map(|row| row.duplicates).sum::<i64>() == 2000
    })
    .await;
    for ended in [one.terminate().await, two.terminate().await] {
        ended.expect_exit(0);
        assert!(!ended.said.contains("ERROR") && !ended.said.contains("WARN"), "{}", ended.said);
        assert!(!ended.said.contains("handled=0"), "both take part: {}", ended.said);
    }
    assert_eq!(number(&world, "SELECT cents FROM account"), 10_000);
    assert_eq!(number(&world, DIFFERENCE), 0);
    assert_eq!(world.ready(&world.queue).await, 0);
}
