//! Two deliveries of one message: which of them goes on. An ack may be lost after a copy of the
//! message was confirmed, so the broker hands the original over again beside the copy.

use ackonce::ledger::{Claim, ClaimRequest, Ending, Origin};

use crate::bench::{Bench, dead, failed, granted, parked, request, with_body};

fn from(origin: Origin) -> ClaimRequest {
    ClaimRequest { origin, ..request("a") }
}

pub async fn a_copy_that_waited_is_claimed_as_the_next_attempt(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    let ticket = granted(bench.claim_request(&bench.owner().await, from(Origin::Sequel(1))).await);
    assert_eq!(ticket.attempt, 2);
}

pub async fn the_original_of_a_waiting_copy_is_superseded_when_it_comes_back(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    let before = bench.row("a").await;
    for owner in [owner, bench.owner().await] {
        assert_eq!(bench.claim_request(&owner, from(Origin::Redelivered)).await, Claim::Superseded);
    }
    assert_eq!(bench.row("a").await, before, "nothing was changed");
}

pub async fn a_fresh_delivery_is_never_swallowed(bench: &Bench) {
    let owner = bench.owner().await;
    for (ending, attempt) in [(failed("no"), 2), (parked("no"), 3), (dead("never"), 1)] {
        bench.run(&owner, "a", ending).await;
        assert_eq!(granted(bench.claim_request(&owner, from(Origin::Fresh)).await).attempt, attempt);
    }
}

pub async fn a_copy_of_an_earlier_attempt_than_the_waiting_one_is_superseded(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    // A fresh delivery went on meanwhile, and waits as a copy of its own.
    bench.run(&owner, "a", parked("no")).await;
    assert_eq!(bench.claim_request(&owner, from(Origin::Sequel(1))).await, Claim::Superseded);
    assert_eq!(granted(bench.claim_request(&owner, from(Origin::Sequel(2))).await).attempt, 3);
}

pub async fn a_copy_that_crashed_before_its_successor_is_claimed_again(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    granted(bench.claim_request(&owner, from(Origin::Sequel(1))).await);
    drop(owner);
    let next = bench.owner().await;
    let ticket = granted(bench.claim_request(&next, from(Origin::Sequel(1))).await);
    assert_eq!((ticket.attempt, ticket.interrupted), (3, true));
    // The same if its attempt failed, and the crash came before anything was published.
    bench.finish(&next, "a", &ticket, failed("no")).await;
    assert_eq!(granted(bench.claim_request(&next, from(Origin::Sequel(1))).await).attempt, 4);
}

pub async fn what_a_dead_row_left_behind_is_superseded(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", dead("never")).await;
    assert_eq!(bench.claim_request(&owner, from(Origin::Redelivered)).await, Claim::Superseded);
    let other = bench.owner().await;
    assert_eq!(bench.claim_request(&other, from(Origin::Sequel(1))).await, Claim::Superseded);
    // Of another process's dead letter nothing proves that this delivery is the original.
    granted(bench.claim_request(&other, from(Origin::Redelivered)).await);
}

/// Without a copy, the delivery that comes back is the only one there is: its reject was lost.
pub async fn what_was_dead_without_a_copy_is_never_superseded(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    for origin in [Origin::Redelivered, Origin::Sequel(1)] {
        bench.run(&owner, "a", Ending::Dead { error: "never".to_owned(), copied: false }).await;
        let ticket = granted(bench.claim_request(&owner, from(origin)).await);
        assert_eq!(ticket.attempt, 1, "{origin:?}");
        bench.finish(&owner, "a", &ticket, failed("no")).await;
    }
}

pub async fn a_new_life_forgets_the_copies_of_the_last_one(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", parked("no")).await;
    bench.run(&owner, "a", dead("never")).await;
    bench.run(&owner, "a", failed("again")).await;
    assert_eq!(granted(bench.claim_request(&owner, from(Origin::Redelivered)).await).attempt, 2);
}

pub async fn another_body_is_never_superseded(bench: &Bench) {
    let owner = bench.owner().await;
    let first = granted(bench.claim_request(&owner, with_body("a", "first")).await);
    bench.finish(&owner, "a", &first, parked("no")).await;
    let corrected = ClaimRequest { origin: Origin::Redelivered, ..with_body("a", "second") };
    let ticket = granted(bench.claim_request(&owner, corrected).await);
    bench.finish(&owner, "a", &ticket, Ending::Done).await;
}

/// Found by the model: the waiting copy is of the first body. The second one, redelivered after its attempt was
/// taken back, is the only one there is, and was lost.
pub async fn a_copy_of_another_body_supersedes_nothing(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run_request(&owner, with_body("a", "first"), parked("no")).await;
    bench.run_request(&owner, with_body("a", "second"), Ending::Released { interrupted: false }).await;
    let again = ClaimRequest { origin: Origin::Redelivered, ..with_body("a", "second") };
    granted(bench.claim_request(&owner, again).await);
}
