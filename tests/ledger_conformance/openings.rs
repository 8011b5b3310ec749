//! One ledger, opened more than once: what several processes see of each other, and what is there after a restart.

use std::sync::Arc;

use ackonce::ledger::{Claim, Ending, Finished, Owner, State};
use tokio::{sync::Barrier, task::JoinSet};

use crate::bench::{Bench, START, dead, failed, granted, request};

pub async fn a_claim_made_elsewhere_is_in_flight(bench: &Bench) {
    let elsewhere = bench.open_again();
    let (owner, other) = (bench.owner().await, elsewhere.owner().await);
    assert_ne!(owner.name(), other.name());
    let ticket = granted(bench.claim(&owner, "a").await);
    assert_eq!(elsewhere.claim(&other, "a").await, Claim::InFlight { owner: owner.shared_name() });
    assert!(elsewhere.row("a").await.owner_alive);
    assert_eq!(bench.finish(&owner, "a", &ticket, Ending::Done).await, Finished::Recorded);
    assert_eq!(elsewhere.claim(&other, "a").await, Claim::Duplicate);
    assert_eq!(bench.row("a").await.duplicates, 1);
}

pub async fn an_owner_that_died_elsewhere_is_taken_over(bench: &Bench) {
    let (elsewhere, heir) = (bench.open_again(), bench.owner().await);
    let dying = elsewhere.owner().await;
    granted(elsewhere.claim(&dying, "a").await);
    drop((dying, elsewhere));
    let ticket = granted(bench.claim(&heir, "a").await);
    assert_eq!((ticket.attempt, ticket.interrupted), (2, true));
}

pub async fn a_late_finisher_elsewhere_changes_nothing(bench: &Bench) {
    let (elsewhere, heir) = (bench.open_again(), bench.owner().await);
    let late = elsewhere.owner().await;
    let old = granted(elsewhere.claim(&late, "a").await);
    let name = late.shared_name();
    drop(late);
    let new = granted(bench.claim(&heir, "a").await);
    let before = bench.row("a").await;
    let late = Owner::new(name, ());
    for ending in [Ending::Done, failed("no"), dead("never"), Ending::Released { interrupted: false }] {
        assert_eq!(elsewhere.finish(&late, "a", &old, ending).await, Finished::Lost);
    }
    assert_eq!(bench.row("a").await, before, "nothing was changed");
    assert_eq!(bench.finish(&heir, "a", &new, Ending::Done).await, Finished::Recorded);
}

/// 100 rounds of 32 tasks, half of them at each opening.
pub async fn one_of_32_concurrent_claims_over_two_openings_wins(bench: &Bench) {
    const RIVALS: usize = 32;
    let elsewhere = bench.open_again();
    let mut owners = Vec::new();
    for n in 0..RIVALS {
        let bench = if n % 2 == 0 { bench } else { &elsewhere };
        owners.push((bench.ledger.clone(), bench.owner().await));
    }
    for round in 0..100 {
        let barrier = Arc::new(Barrier::new(RIVALS));
        let mut rivals = JoinSet::new();
        for (ledger, owner) in owners.clone() {
            let (barrier, request) = (barrier.clone(), request(&format!("key {round}")));
            rivals.spawn(async move {
                barrier.wait().await;
                ledger.claim(&owner, vec![request], START).await.unwrap().remove(0)
            });
        }
        let claims = rivals.join_all().await;
        let won = claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count();
        let waiting = claims.iter().filter(|claim| matches!(claim, Claim::InFlight { .. })).count();
        assert_eq!((won, waiting), (1, RIVALS - 1), "round {round}");
    }
}

pub async fn a_ledger_that_is_opened_again_remembers_everything(bench: &Bench) {
    let elsewhere = bench.open_again();
    let owner = elsewhere.owner().await;
    for (key, ending) in [("done", Ending::Done), ("failed", failed("no")), ("dead", dead("never"))] {
        elsewhere.run(&owner, key, ending).await;
    }
    granted(elsewhere.claim(&owner, "interrupted").await);
    let mut before = elsewhere.rows().await;
    drop((owner, elsewhere));

    let again = bench.open_again();
    for row in &mut before {
        row.owner_alive = false;
    }
    assert_eq!(again.rows().await, before);
    let owner = again.owner().await;
    assert_eq!(again.claim(&owner, "done").await, Claim::Duplicate);
    assert_eq!(granted(again.claim(&owner, "failed").await).attempt, 2);
    assert_eq!(granted(again.claim(&owner, "dead").await).attempt, 1);
    assert!(granted(again.claim(&owner, "interrupted").await).interrupted);
    assert_eq!(again.row("done").await.state, State::Done);
}
