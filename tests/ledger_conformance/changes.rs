//! What an operator makes of rows: to be run again, or done.

use ackonce::ledger::{Change, Changed, Claim, ClaimRequest, Ending, Finished, Origin, State};

use crate::bench::{Bench, SCOPE, dead, failed, granted, in_scope, parked, request, with_body};

const RETRY: Change = Change::Retry { even_done: false };
const RETRY_ANY: Change = Change::Retry { even_done: true };

const ONE: Changed = Changed { changed: 1, done: 0, in_flight: 0 };

async fn change(bench: &Bench, key: &str, change: Change) -> Changed {
    let changed = bench.ledger.change(vec![key.to_owned()], None, change, bench.now()).await.unwrap();
    assert_eq!(changed.len(), 1);
    changed[0]
}

pub async fn a_row_that_is_to_be_retried_is_claimed_from_attempt_one(bench: &Bench) {
    let owner = bench.owner().await;
    for (key, ending) in [("failed", failed("no")), ("dead", dead("never")), ("parked", parked("no"))] {
        bench.run(&owner, key, failed("no")).await;
        let last = bench.run(&owner, key, ending).await;
        assert_eq!(last.attempt, 2);
        bench.pass(1000);
        assert_eq!(change(bench, key, RETRY).await, ONE, "{key}");
        let row = bench.row(key).await;
        assert_eq!((row.state, row.attempts, row.updated_ms), (State::Failed, 0, bench.now()));
        let ticket = granted(bench.claim(&owner, key).await);
        assert_eq!((ticket.attempt, ticket.interrupted, ticket.row), (1, false, last.row), "{key}");
    }
}

/// Neither the copies of its last life nor its own redelivery are superseded.
pub async fn what_is_retried_takes_any_delivery(bench: &Bench) {
    let owner = bench.owner().await;
    for (key, ending) in [("dead", dead("never")), ("parked", parked("no"))] {
        for origin in [Origin::Redelivered, Origin::Sequel(1), Origin::Fresh] {
            bench.run(&owner, key, parked("no")).await;
            bench.run(&owner, key, ending.clone()).await;
            assert_eq!(change(bench, key, RETRY).await, ONE);
            let ticket = granted(bench.claim_request(&owner, ClaimRequest { origin, ..request(key) }).await);
            assert_eq!(ticket.attempt, 1, "{key} {origin:?}");
            bench.finish(&owner, key, &ticket, ending.clone()).await;
            change(bench, key, RETRY).await;
        }
    }
}

pub async fn a_done_row_stays_done_unless_it_is_meant_as_well(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run_request(&owner, with_body("a", "one"), Ending::Done).await;
    let before = bench.row("a").await;
    bench.pass(1000);
    assert_eq!(change(bench, "a", RETRY).await, Changed { done: 1, ..Changed::default() });
    assert_eq!(bench.row("a").await, before, "nothing was changed");
    assert_eq!(bench.claim_request(&owner, with_body("a", "one")).await, Claim::Duplicate);
    assert_eq!(change(bench, "a", RETRY_ANY).await, ONE);
    // Also under a corrected body.
    assert_eq!(granted(bench.claim_request(&owner, with_body("a", "two")).await).attempt, 1);
}

pub async fn a_row_marked_done_makes_duplicates(bench: &Bench) {
    let owner = bench.owner().await;
    for (key, ending) in [("failed", failed("no")), ("dead", dead("never"))] {
        bench.run(&owner, key, ending).await;
        bench.pass(1000);
        assert_eq!(change(bench, key, Change::MarkDone).await, ONE);
        assert_eq!(change(bench, key, Change::MarkDone).await, Changed { done: 1, ..Changed::default() });
        let row = bench.row(key).await;
        assert_eq!((row.state, row.updated_ms), (State::Done, bench.now()));
        for origin in [Origin::Redelivered, Origin::Sequel(1), Origin::Fresh] {
            let claim = bench.claim_request(&owner, ClaimRequest { origin, ..request(key) }).await;
            assert_eq!(claim, Claim::Duplicate);
        }
    }
}

pub async fn a_live_claim_is_not_changed(bench: &Bench) {
    let owner = bench.owner().await;
    let ticket = granted(bench.claim(&owner, "a").await);
    let before = bench.row("a").await;
    for what in [RETRY, RETRY_ANY, Change::MarkDone] {
        assert_eq!(change(bench, "a", what).await, Changed { in_flight: 1, ..Changed::default() });
    }
    assert_eq!(bench.row("a").await, before, "nothing was changed");
    assert_eq!(bench.finish(&owner, "a", &ticket, Ending::Done).await, Finished::Recorded);
}

pub async fn a_dead_owners_claim_can_be_changed(bench: &Bench) {
    for (key, what) in [("a", RETRY), ("b", Change::MarkDone)] {
        let dying = bench.owner().await;
        bench.claim(&dying, key).await;
        drop(dying);
        assert_eq!(change(bench, key, what).await, ONE);
    }
    let owner = bench.owner().await;
    let ticket = granted(bench.claim(&owner, "a").await);
    assert_eq!((ticket.attempt, ticket.interrupted), (1, false), "a fresh run");
    assert_eq!(bench.claim(&owner, "b").await, Claim::Duplicate);
}

pub async fn a_late_finish_of_a_changed_row_is_lost(bench: &Bench) {
    let owner = bench.owner().await;
    let first = bench.run(&owner, "a", failed("no")).await;
    change(bench, "a", RETRY).await;
    for ending in [Ending::Done, failed("no"), dead("never")] {
        assert_eq!(bench.finish(&owner, "a", &first, ending).await, Finished::Lost);
    }
}

pub async fn a_change_is_bounded_to_its_keys_and_scope(bench: &Bench) {
    let owner = bench.owner().await;
    let long = "x".repeat(5000);
    for key in ["a", "b", &long] {
        bench.run(&owner, key, dead("never")).await;
    }
    bench.run_request(&owner, in_scope("mails", "a"), dead("never")).await;
    let keys = ["a", "nowhere", "", &long].map(str::to_owned).to_vec();
    let changed = bench.ledger.change(keys, Some(SCOPE), RETRY, bench.now()).await.unwrap();
    assert_eq!(changed, [ONE, Changed::default(), Changed::default(), ONE], "in the order of the keys");
    assert_eq!(bench.row("b").await.state, State::Dead);
    assert_eq!(bench.ledger.show("a", Some("mails")).await.unwrap()[0].state, State::Dead);
    assert_eq!(change(bench, "a", RETRY).await.changed, 2, "in all scopes");
    assert_eq!(bench.ledger.change(vec![], None, RETRY, bench.now()).await.unwrap(), []);
}
