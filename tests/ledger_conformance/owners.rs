//! Owners: whose claims stand, and whose are taken over.

use ackonce::ledger::{Claim, Ending, State, Ticket};

use crate::bench::{Bench, START, failed, granted, with_body};

/// A claim whose owner dies.
async fn interrupt(bench: &Bench, key: &str) -> Ticket {
    let owner = bench.owner().await;
    granted(bench.claim(&owner, key).await)
}

pub async fn owners_have_different_names(bench: &Bench) {
    let (one, two) = (bench.owner().await, bench.owner().await);
    assert_ne!(one.name(), two.name());
}

pub async fn a_dead_owners_claim_is_taken_over(bench: &Bench) {
    let old = interrupt(bench, "a").await;
    assert!(!bench.row("a").await.owner_alive);
    bench.pass(1);
    let heir = bench.owner().await;
    let new = granted(bench.claim(&heir, "a").await);
    assert_eq!(new, Ticket { row: old.row, attempt: 2, interrupted: true, first_seen: START });
    let row = bench.row("a").await;
    assert_eq!((row.state, row.attempts, row.updated_ms), (State::Processing, 2, START + 1));
    assert_eq!((row.owner.as_deref(), row.owner_alive), (Some(heir.name()), true));
}

/// However old its claim is, and even if it was made in the future.
pub async fn a_live_owner_is_never_robbed(bench: &Bench) {
    let (owner, other) = (bench.owner().await, bench.owner().await);
    bench.claim(&owner, "a").await;
    for now in [START + 1, START + 400 * 86_400_000, i64::MAX, START - 86_400_000, 0] {
        bench.set_now(now);
        assert_eq!(
            bench.claim(&other, "a").await,
            Claim::InFlight { owner: owner.shared_name() },
            "at {now}"
        );
    }
}

pub async fn an_owner_lives_as_long_as_any_clone_of_it(bench: &Bench) {
    let (owner, other) = (bench.owner().await, bench.owner().await);
    bench.claim(&owner, "a").await;
    let clone = owner.clone();
    drop(owner);
    assert_eq!(bench.claim(&other, "a").await, Claim::InFlight { owner: clone.shared_name() });
    drop(clone);
    assert_eq!(granted(bench.claim(&other, "a").await).attempt, 2);
}

pub async fn interrupted_is_about_the_attempt_directly_before(bench: &Bench) {
    interrupt(bench, "a").await;
    let owner = bench.owner().await;
    let second = granted(bench.claim(&owner, "a").await);
    assert!(second.interrupted);
    assert!(granted(bench.claim(&owner, "a").await).interrupted, "also when its reply was lost");
    bench.finish(&owner, "a", &second, failed("no")).await;
    let third = granted(bench.claim(&owner, "a").await);
    assert_eq!((third.attempt, third.interrupted), (3, false), "the second ran to its end");
    drop(owner);
    let fourth = granted(bench.claim(&bench.owner().await, "a").await);
    assert_eq!((fourth.attempt, fourth.interrupted), (4, true));
}

pub async fn a_released_takeover_is_still_interrupted(bench: &Bench) {
    interrupt(bench, "a").await;
    let owner = bench.owner().await;
    for _ in 0..2 {
        let ticket = bench.run(&owner, "a", Ending::Released { interrupted: false }).await;
        assert_eq!((ticket.attempt, ticket.interrupted), (2, true));
    }
    let ticket = bench.run(&owner, "a", Ending::Dead { error: "no".to_owned(), copied: true }).await;
    assert_eq!((ticket.attempt, ticket.interrupted), (2, true));
    let ticket = granted(bench.claim(&owner, "a").await);
    assert_eq!((ticket.attempt, ticket.interrupted), (1, false), "an operator sent it back");
}

pub async fn an_attempt_released_after_it_began_is_interrupted(bench: &Bench) {
    let owner = bench.owner().await;
    let first = bench.run(&owner, "a", Ending::Released { interrupted: true }).await;
    assert_eq!((first.attempt, first.interrupted), (1, false));
    let second = bench.run(&owner, "a", failed("no")).await;
    assert_eq!((second.attempt, second.interrupted), (1, true), "not counted, but told");
    let third = granted(bench.claim(&owner, "a").await);
    assert_eq!((third.attempt, third.interrupted), (2, false));
}

pub async fn a_takeover_takes_the_new_body(bench: &Bench) {
    let dying = bench.owner().await;
    bench.claim_request(&dying, with_body("a", "old")).await;
    drop(dying);
    let owner = bench.owner().await;
    bench.run_request(&owner, with_body("a", "new"), Ending::Done).await;
    assert_eq!(bench.claim_request(&owner, with_body("a", "old")).await, Claim::Mismatch);
    assert_eq!(bench.claim_request(&owner, with_body("a", "new")).await, Claim::Duplicate);
}
