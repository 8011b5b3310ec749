//! Other programs in the same file: a shell with a transaction, another worker, a pruning command.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use ackonce::ledger::{
    Claim, Ending, Finished, Inspect, Ledger, Prune,
    sqlite::{SqliteOptions, SqliteReader},
    unix_millis,
};
use tokio::{task::JoinSet, time};

use crate::setup::{BUSY_TIMEOUT, Place, claim, claim_all, finish, finish_of, granted, options, request};

/// K26, K05: the claim fails as transient, the runtime does not stop meanwhile, and it heals.
#[tokio::test(flavor = "current_thread")]
async fn a_locked_ledger_is_transient_and_does_not_stop_the_runtime() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let ticket = granted(claim(&ledger, &owner, "a").await.unwrap());

    let other = place.connect();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let ticks = Arc::new(AtomicU64::new(0));
    let ticker = tokio::spawn({
        let ticks = ticks.clone();
        async move {
            let mut interval = time::interval(Duration::from_millis(5));
            loop {
                interval.tick().await;
                ticks.fetch_add(1, SeqCst);
            }
        }
    });
    let started = Instant::now();
    let claimed = claim(&ledger, &owner, "b");
    let finished = finish(&ledger, &owner, "a", &ticket, Ending::Done);
    let (claimed, finished) = tokio::join!(claimed, finished);
    for error in [claimed.unwrap_err(), finished.unwrap_err()] {
        assert!(error.is_transient() && error.message.contains("locked"), "{error:?}");
    }
    assert!(started.elapsed() >= BUSY_TIMEOUT, "it waited: {:?}", started.elapsed());
    assert!(ticks.load(SeqCst) > 10, "the timer stood still");
    ticker.abort();

    other.execute_batch("COMMIT").unwrap();
    assert_eq!(granted(claim(&ledger, &owner, "b").await.unwrap()).attempt, 1);
    assert_eq!(finish(&ledger, &owner, "a", &ticket, Ending::Done).await.unwrap(), Finished::Recorded);
}

#[tokio::test]
async fn a_lock_that_is_released_in_time_is_only_a_delay() {
    let place = Place::new();
    let ledger = place.open_with(SqliteOptions { busy_timeout: Duration::from_secs(60), ..options() });
    let owner = ledger.enroll().await.unwrap();
    let other = place.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let claim = claim(&ledger, &owner, "a");
    tokio::pin!(claim);
    assert!(futures::poll!(&mut claim).is_pending());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(granted(claim.await.unwrap()).attempt, 1);
}

/// A shell that only reads stops nobody.
#[tokio::test]
async fn a_reader_stops_nobody() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let reader = place.connect();
    reader.execute_batch("BEGIN; SELECT count(*) FROM ledger").unwrap();
    crate::setup::handle(&ledger, &owner, "a").await;
    let seen: i64 = reader.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 0, "it still reads what was there when it began");
}

/// K19: two ledgers on one file, many tasks each, every key asked for by both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_a_ledger() {
    const KEYS: usize = 400;
    let place = Place::new();
    let patient = SqliteOptions { busy_timeout: Duration::from_secs(60), ..options() };
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let ledger = Arc::new(place.open_with(patient));
        let owner = ledger.enroll().await.unwrap();
        for part in 0..8 {
            let (ledger, owner) = (ledger.clone(), owner.clone());
            tasks.spawn(async move {
                let mut handled = 0;
                for n in (part..KEYS).step_by(8) {
                    let key = format!("key {n}");
                    let Claim::Claimed(ticket) = claim(&ledger, &owner, &key).await.unwrap() else {
                        continue;
                    };
                    assert_eq!(ticket.attempt, 1);
                    let finished = finish(&ledger, &owner, &key, &ticket, Ending::Done).await.unwrap();
                    assert_eq!(finished, Finished::Recorded);
                    handled += 1;
                }
                handled
            });
        }
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), KEYS);
    let stats = SqliteReader::open(place.path(), BUSY_TIMEOUT).unwrap().stats().await.unwrap();
    assert_eq!((stats.scopes[0].done, stats.scopes[0].processing), (KEYS as u64, 0));
}

/// K13: rows go in small steps, and no claim fails meanwhile, not even with little patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_from_another_process_fails_no_claim() {
    const OLD: i64 = 20_000;
    let place = Place::new();
    let ledger = Arc::new(place.open());
    place.sql(&format!(
        "INSERT INTO scopes (name) VALUES ('orders');
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {OLD})
         INSERT INTO messages (scope_id, key, state, attempts, owner_id, first_seen_ms, updated_ms)
         SELECT 1, 'old ' || i, 'done', 1, 0, i, i FROM n"
    ));
    let pruner = place.open();
    let pruning = tokio::spawn(async move {
        let (mut removed, mut after_row) = (0, 0);
        loop {
            let prune = Prune { retention_ms: 1000, rows_max: 200, after_row };
            let step = pruner.prune(prune, unix_millis()).await.unwrap();
            assert!(step.removed <= 200);
            removed += step.removed;
            after_row = step.last_row;
            if step.complete {
                return removed;
            }
        }
    });
    let owner = ledger.enroll().await.unwrap();
    let mut claims = 0;
    while !pruning.is_finished() || claims < 10 {
        claims += 1;
        let key = format!("new {claims}");
        let ticket = granted(claim(&ledger, &owner, &key).await.unwrap());
        assert_eq!(finish(&ledger, &owner, &key, &ticket, Ending::Done).await.unwrap(), Finished::Recorded);
    }
    assert_eq!(pruning.await.unwrap(), OLD as u64);
    assert_eq!(ledger.rows().await.unwrap(), claims);
}

/// Claims and finishes that pile up while a transaction runs are written together, and each caller
/// gets its own answers.
#[tokio::test]
async fn what_piles_up_is_written_together() {
    let place = Place::new();
    let ledger = place.open_with(SqliteOptions { busy_timeout: Duration::from_secs(60), ..options() });
    let owner = ledger.enroll().await.unwrap();
    let tickets: Vec<_> =
        claim_all(&ledger, &owner, &["a", "b"]).await.unwrap().into_iter().map(granted).collect();
    place.sql(
        "CREATE TABLE log (n INTEGER);
         CREATE TRIGGER seen AFTER INSERT ON messages BEGIN INSERT INTO log VALUES (1); END",
    );
    let other = place.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let now = unix_millis();
    // The first may be taken alone; the others wait behind it.
    let first = ledger.claim(&owner, vec![request("c")], now);
    let finish_a = ledger.finish(&owner, vec![finish_of("a", &tickets[0], Ending::Done)], now);
    let duplicate_a = ledger.claim(&owner, vec![request("a"), request("d")], now);
    let lost = ledger.finish(&owner, vec![finish_of("x", &tickets[1], Ending::Done)], now);
    let finish_b = ledger.finish(
        &owner,
        vec![finish_of("b", &tickets[1], Ending::Released { interrupted: false })],
        now,
    );
    other.execute_batch("COMMIT").unwrap();
    assert!(matches!(first.await.unwrap()[..], [Claim::Claimed(_)]));
    assert_eq!(finish_a.await.unwrap(), [Finished::Recorded]);
    assert!(matches!(duplicate_a.await.unwrap()[..], [Claim::Duplicate, Claim::Claimed(_)]));
    assert_eq!(lost.await.unwrap(), [Finished::Lost]);
    assert_eq!(finish_b.await.unwrap(), [Finished::Recorded]);
}
