//! Pruning: what goes, what stays, and how fast at most.

use std::time::Duration;

use ackonce::ledger::{
    Claim, Ending, OVERDUE, Pruned,
    prune::{Pass, Pruner},
};

use crate::bench::{Bench, START, dead, failed, granted};

const DAY: i64 = 86_400_000;

pub async fn finished_rows_go_by_their_last_change(bench: &Bench) {
    let owner = bench.owner().await;
    for (key, ending) in [("done", Ending::Done), ("dead", dead("no"))] {
        let ticket = granted(bench.claim(&owner, key).await);
        bench.set_now(START + DAY);
        bench.finish(&owner, key, &ticket, ending).await;
        bench.set_now(START);
    }
    bench.set_now(START + 2 * DAY - 1);
    assert_eq!(bench.prune(DAY, 100, 0).await.removed, 0, "a day since it was finished is not over");
    bench.pass(1);
    let pruned = bench.prune(DAY, 100, 0).await;
    assert_eq!((pruned.removed, pruned.complete), (2, true));
    assert!(bench.rows().await.is_empty());
}

pub async fn unfinished_rows_go_only_when_long_overdue(bench: &Bench) {
    let dying = bench.owner().await;
    bench.claim(&dying, "interrupted").await;
    drop(dying);
    bench.run(&bench.owner().await, "failed", failed("no")).await;
    bench.set_now(START + OVERDUE * DAY - 1);
    assert_eq!(bench.prune(DAY, 100, 0).await.removed, 0);
    bench.pass(1);
    assert_eq!(bench.prune(DAY, 100, 0).await.removed, 2);
}

pub async fn a_live_claim_is_never_removed(bench: &Bench) {
    let owner = bench.owner().await;
    bench.claim(&owner, "a").await;
    for now in [START + 1000 * DAY, i64::MAX] {
        bench.set_now(now);
        assert_eq!(bench.prune(DAY, 100, 0).await.removed, 0);
    }
    assert_eq!(bench.keys().await, ["a"]);
}

pub async fn a_step_is_bounded_and_the_next_goes_on(bench: &Bench) {
    let owner = bench.owner().await;
    bench.claim(&owner, "in flight").await;
    for n in 0..5 {
        bench.run(&owner, &format!("old {n}"), Ending::Done).await;
    }
    bench.pass(DAY);
    bench.run(&owner, "young", Ending::Done).await;
    let first = bench.prune(DAY, 2, 0).await;
    assert_eq!((first.removed, first.complete), (2, false));
    let second = bench.prune(DAY, 2, first.last_row).await;
    assert_eq!((second.removed, second.complete), (2, false));
    let third = bench.prune(DAY, 2, second.last_row).await;
    assert_eq!((third.removed, third.complete), (1, true));
    assert_eq!(bench.keys().await, ["in flight", "young"]);
}

pub async fn a_look_removes_nothing(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", Ending::Done).await;
    assert!(bench.prune(DAY, 0, 0).await.complete, "nothing to remove yet");
    bench.pass(DAY);
    assert_eq!(bench.prune(DAY, 0, 0).await, Pruned { removed: 0, complete: false, last_row: 0 });
    assert_eq!(bench.keys().await, ["a"]);
}

pub async fn rows_from_the_future_stop_nothing(bench: &Bench) {
    let owner = bench.owner().await;
    bench.set_now(START + 1000 * DAY);
    bench.run(&owner, "future", Ending::Done).await;
    bench.set_now(START);
    bench.run(&owner, "old", Ending::Done).await;
    bench.pass(DAY);
    let pruned = bench.prune(DAY, 100, 0).await;
    assert_eq!((pruned.removed, pruned.complete), (1, true));
    assert_eq!(bench.keys().await, ["future"]);
    assert_eq!(bench.claim(&owner, "future").await, Claim::Duplicate);
}

pub async fn extreme_times_do_no_harm(bench: &Bench) {
    let owner = bench.owner().await;
    for now in [i64::MAX, i64::MIN, 0, -1, START] {
        bench.set_now(now);
        bench.run(&owner, &format!("at {now}"), Ending::Done).await;
    }
    bench.set_now(START);
    for retention in [i64::MAX, i64::MAX / 2] {
        let pruned = bench.prune(retention, 100, 0).await;
        assert!(pruned.complete && pruned.removed <= 1, "{retention}: {pruned:?}");
    }
    assert!(bench.prune(DAY, 100, 0).await.complete);
    assert_eq!(bench.keys().await, [&format!("at {START}"), &format!("at {}", i64::MAX)].map(String::as_str));
    assert_eq!(bench.prune(-5, 100, 0).await.removed, 1, "no retention at all: what is finished goes");
}

pub async fn a_pruned_key_is_new_again(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", failed("no")).await;
    bench.pass(OVERDUE * DAY);
    bench.prune(DAY, 100, 0).await;
    let ticket = granted(bench.claim(&owner, "a").await);
    assert_eq!((ticket.attempt, ticket.first_seen), (1, bench.now()));
}

/// K14: a clock that jumps ahead makes every row look old.
pub async fn a_clock_jump_does_not_empty_the_ledger(bench: &Bench) {
    let owner = bench.owner().await;
    let rows = 100;
    for n in 0..rows {
        bench.run(&owner, &format!("key {n:03}"), Ending::Done).await;
    }
    let retention = Duration::from_secs(7 * 86_400);
    let mut pruner = Pruner::new(bench.ledger.clone(), retention);
    bench.pass(400 * DAY);
    let passes = (retention / 4).as_secs() / pruner.interval().as_secs();
    let mut capped = 0;
    for _ in 0..passes - 1 {
        capped += u64::from(pruner.pass(bench.now()).await.unwrap().capped);
    }
    assert_eq!(capped, passes - 1, "every pass is held back");
    assert!(!bench.keys().await.is_empty(), "a quarter of the retention is not over, and all is gone");
    assert_eq!(bench.claim(&owner, "key 099").await, Claim::Duplicate);
}

pub async fn a_clock_jump_spares_a_single_row(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", Ending::Done).await;
    let mut pruner = Pruner::new(bench.ledger.clone(), Duration::from_secs(7 * 86_400));
    bench.pass(400 * DAY);
    for _ in 0..200 {
        assert_eq!(pruner.pass(bench.now()).await.unwrap(), Pass { removed: 0, capped: true });
    }
    assert_eq!(bench.claim(&owner, "a").await, Claim::Duplicate);
}

/// Three retentions of a steady stream: there are never much more rows than one retention brings.
pub async fn steady_pruning_keeps_up(bench: &Bench) {
    let owner = bench.owner().await;
    let retention = Duration::from_secs(1000);
    let mut pruner = Pruner::new(bench.ledger.clone(), retention);
    assert_eq!(pruner.interval(), Duration::from_secs(1));
    let mut most = 0;
    for second in 0..3000 {
        bench.pass(1000);
        if second % 10 == 0 {
            bench.run(&owner, &format!("key {second}"), Ending::Done).await;
        }
        pruner.pass(bench.now()).await.unwrap();
        most = most.max(bench.ledger.rows().await.unwrap());
    }
    assert!((100..=105).contains(&most), "at most {most} rows, where a retention brings 100");
}
