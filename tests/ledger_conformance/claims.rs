//! Claiming: every state that a claim can meet.

use std::sync::Arc;

use ackonce::ledger::{Claim, ClaimRequest, Ending, Finished, State, Ticket};
use tokio::{sync::Barrier, task::JoinSet};

use crate::bench::{Bench, START, dead, failed, granted, request, with_body};

pub async fn a_new_key_is_claimed(bench: &Bench) {
    let owner = bench.owner().await;
    let ticket = granted(bench.claim(&owner, "a").await);
    assert_eq!(ticket, Ticket { row: ticket.row, attempt: 1, interrupted: false, first_seen: START });
    let row = bench.row("a").await;
    assert_eq!((row.state, row.attempts, row.duplicates), (State::Processing, 1, 0));
    assert_eq!((row.first_seen_ms, row.updated_ms, row.last_duplicate_ms), (START, START, None));
    assert_eq!((row.owner.as_deref(), row.owner_alive, row.last_error), (Some(owner.name()), true, None));
}

pub async fn a_done_key_is_a_duplicate_and_its_copies_are_counted(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", Ending::Done).await;
    bench.pass(1000);
    assert_eq!(bench.claim(&owner, "a").await, Claim::Duplicate);
    bench.pass(1000);
    let several = ClaimRequest { copies: 3, ..request("a") };
    assert_eq!(bench.claim_request(&bench.owner().await, several).await, Claim::Duplicate);
    let row = bench.row("a").await;
    assert_eq!((row.duplicates, row.last_duplicate_ms), (4, Some(START + 2000)));
}

pub async fn a_duplicate_changes_nothing_but_its_count(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", Ending::Done).await;
    let mut before = bench.row("a").await;
    bench.pass(1000);
    assert_eq!(bench.claim(&bench.owner().await, "a").await, Claim::Duplicate);
    (before.duplicates, before.last_duplicate_ms) = (1, Some(START + 1000));
    assert_eq!(bench.row("a").await, before);
}

pub async fn a_failed_key_is_claimed_as_the_next_attempt(bench: &Bench) {
    let (first, second) = (bench.owner().await, bench.owner().await);
    let one = bench.run(&first, "a", failed("no")).await;
    bench.pass(1000);
    let two = granted(bench.claim(&second, "a").await);
    assert_eq!(two, Ticket { row: one.row, attempt: 2, interrupted: false, first_seen: START });
    let row = bench.row("a").await;
    assert_eq!((row.state, row.attempts, row.updated_ms), (State::Processing, 2, START + 1000));
    assert_eq!(row.owner.as_deref(), Some(second.name()));
    assert_eq!(row.last_error.as_deref(), Some("no"), "still the latest error");
}

pub async fn a_dead_key_is_claimed_from_attempt_one(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", failed("no")).await;
    let last = bench.run(&owner, "a", dead("never")).await;
    assert_eq!(last.attempt, 2);
    let again = granted(bench.claim(&owner, "a").await);
    assert_eq!(again, Ticket { row: last.row, attempt: 1, interrupted: false, first_seen: START });
    assert_eq!(bench.row("a").await.state, State::Processing);
}

pub async fn a_claim_whose_reply_was_lost_is_given_again(bench: &Bench) {
    let owner = bench.owner().await;
    let request = with_body("a", "body");
    drop(bench.ledger.claim(&owner, vec![request.clone()], bench.now()));
    bench.pass(1000);
    let ticket = granted(bench.claim_request(&owner, request.clone()).await);
    assert_eq!((ticket.attempt, ticket.interrupted), (1, false));
    assert_eq!(granted(bench.claim_request(&owner, request).await), ticket);
    assert_eq!(bench.finish(&owner, "a", &ticket, Ending::Done).await, Finished::Recorded);
}

/// Found by the model: what ran was taken for the body of the claim before, and that one's message was lost.
pub async fn a_lost_claim_is_given_to_another_body_of_its_owner(bench: &Bench) {
    let owner = bench.owner().await;
    drop(bench.ledger.claim(&owner, vec![with_body("a", "first")], bench.now()));
    let ticket = granted(bench.claim_request(&owner, with_body("a", "second")).await);
    assert_eq!((ticket.attempt, ticket.interrupted), (1, false));
    assert_eq!(bench.finish(&owner, "a", &ticket, Ending::Done).await, Finished::Recorded);
    assert_eq!(bench.claim_request(&owner, with_body("a", "first")).await, Claim::Mismatch);
    assert_eq!(bench.claim_request(&owner, with_body("a", "second")).await, Claim::Duplicate);
}

/// 100 rounds of 32 tasks, each an owner of its own, all let go at the same moment.
pub async fn one_of_32_concurrent_claims_wins(bench: &Bench) {
    const RIVALS: usize = 32;
    let mut owners = Vec::new();
    for _ in 0..RIVALS {
        owners.push(bench.owner().await);
    }
    for round in 0..100 {
        let barrier = Arc::new(Barrier::new(RIVALS));
        let mut rivals = JoinSet::new();
        for owner in owners.clone() {
            let (ledger, barrier) = (bench.ledger.clone(), barrier.clone());
            let request = request(&format!("key {round}"));
            rivals.spawn(async move {
                barrier.wait().await;
                let claim = ledger.claim(&owner, vec![request], START).await.unwrap().remove(0);
                (owner.shared_name(), claim)
            });
        }
        let (winners, losers): (Vec<_>, Vec<_>) =
            rivals.join_all().await.into_iter().partition(|(_, claim)| matches!(claim, Claim::Claimed(_)));
        assert_eq!(winners.len(), 1, "round {round}");
        let in_flight = Claim::InFlight { owner: winners[0].0.clone() };
        assert!(losers.iter().all(|(_, claim)| *claim == in_flight), "round {round}: {losers:?}");
    }
}

pub async fn results_come_in_request_order(bench: &Bench) {
    let (owner, other) = (bench.owner().await, bench.owner().await);
    bench.run(&owner, "done", Ending::Done).await;
    bench.run(&owner, "failed", failed("no")).await;
    bench.run(&owner, "dead", dead("no")).await;
    bench.claim(&other, "in flight").await;
    let keys = ["new", "done", "in flight", "failed", "newer", "dead"];
    let claims = bench.claim_all(&owner, keys.map(request).into()).await;
    assert_eq!(granted(claims[0].clone()).attempt, 1);
    assert_eq!(claims[1], Claim::Duplicate);
    assert_eq!(claims[2], Claim::InFlight { owner: other.shared_name() });
    assert_eq!(granted(claims[3].clone()).attempt, 2);
    assert_eq!(granted(claims[4].clone()).attempt, 1);
    assert_eq!(granted(claims[5].clone()).attempt, 1);
    for (claim, key) in claims.iter().zip(keys).filter(|(claim, _)| matches!(claim, Claim::Claimed(_))) {
        let ticket = granted(claim.clone());
        assert_eq!(bench.finish(&owner, key, &ticket, Ending::Done).await, Finished::Recorded, "{key}");
    }
}

pub async fn a_large_batch_is_one_call(bench: &Bench) {
    const ROWS: usize = 10_000;
    let owner = bench.owner().await;
    // The model searches its rows one by one; it is as right with fewer.
    let rows = if bench.is_model() { ROWS / 10 } else { ROWS };
    let requests: Vec<_> = (0..rows).map(|n| request(&format!("key {n}"))).collect();
    let tickets: Vec<_> = bench.claim_all(&owner, requests.clone()).await.into_iter().map(granted).collect();
    let finishes = bench.finishes(&requests, &tickets, Ending::Done);
    let finished = bench.ledger.finish(&owner, finishes, bench.now()).await.unwrap();
    assert_eq!(finished, vec![Finished::Recorded; rows]);
    assert_eq!(bench.claim_all(&owner, requests).await, vec![Claim::Duplicate; rows]);
    assert_eq!(bench.ledger.rows().await.unwrap(), rows as u64);
}

pub async fn an_empty_batch_is_answered(bench: &Bench) {
    let owner = bench.owner().await;
    assert_eq!(bench.claim_all(&owner, vec![]).await, vec![]);
    assert_eq!(bench.ledger.finish(&owner, vec![], START).await.unwrap(), vec![]);
}

pub async fn another_body_under_a_done_key_is_a_mismatch(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run_request(&owner, with_body("a", "one"), Ending::Done).await;
    let before = bench.row("a").await;
    assert_eq!(bench.claim_request(&owner, with_body("a", "two")).await, Claim::Mismatch);
    assert_eq!(bench.row("a").await, before, "nothing was changed");
    assert_eq!(bench.claim_request(&owner, with_body("a", "one")).await, Claim::Duplicate);
}

pub async fn an_unknown_body_matches_any(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run_request(&owner, with_body("known", "one"), Ending::Done).await;
    assert_eq!(bench.claim(&owner, "known").await, Claim::Duplicate);
    bench.run(&owner, "unknown", Ending::Done).await;
    assert_eq!(bench.claim_request(&owner, with_body("unknown", "one")).await, Claim::Duplicate);
}

pub async fn a_corrected_body_is_taken_where_nothing_has_succeeded(bench: &Bench) {
    let owner = bench.owner().await;
    for (key, ending) in [
        ("failed", failed("no")),
        ("dead", dead("no")),
        ("released", Ending::Released { interrupted: false }),
    ] {
        bench.run_request(&owner, with_body(key, "wrong"), ending).await;
        bench.run_request(&owner, with_body(key, "right"), Ending::Done).await;
        assert_eq!(bench.claim_request(&owner, with_body(key, "wrong")).await, Claim::Mismatch, "{key}");
        assert_eq!(bench.claim_request(&owner, with_body(key, "right")).await, Claim::Duplicate, "{key}");
    }
}

pub async fn a_key_in_flight_is_in_flight_whatever_its_body(bench: &Bench) {
    let (owner, other) = (bench.owner().await, bench.owner().await);
    bench.claim_request(&owner, with_body("a", "one")).await;
    let before = bench.row("a").await;
    let in_flight = Claim::InFlight { owner: owner.shared_name() };
    for request in [with_body("a", "one"), with_body("a", "two"), request("a")] {
        assert_eq!(bench.claim_request(&other, request).await, in_flight);
    }
    assert_eq!(bench.row("a").await, before, "nothing was changed");
}
