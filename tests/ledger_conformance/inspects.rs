//! Looking into the ledger, and forgetting.

use ackonce::ledger::{Claim, Ending, Filter, Forgotten, ScopeStats, State};

use crate::bench::{Bench, SCOPE, START, dead, failed, granted, in_scope};

fn all() -> Filter {
    Filter { scope: None, state: None, limit: 100 }
}

pub async fn stats_count_each_scope(bench: &Bench) {
    let owner = bench.owner().await;
    bench.claim(&owner, "in flight").await;
    bench.pass(1000);
    bench.claim(&owner, "in flight too").await;
    bench.run(&owner, "done", Ending::Done).await;
    bench.claim(&owner, "done").await;
    bench.claim(&owner, "done").await;
    bench.run(&owner, "failed", failed("no")).await;
    bench.run(&owner, "released", Ending::Released { interrupted: false }).await;
    bench.run(&owner, "dead", dead("no")).await;
    bench.run_request(&owner, in_scope("mails", "done"), Ending::Done).await;
    let orders = ScopeStats {
        scope: SCOPE.to_owned(),
        processing: 2,
        done: 1,
        failed: 2,
        dead: 1,
        duplicates: 2,
        oldest_processing_ms: Some(START),
    };
    let mails = ScopeStats { scope: "mails".to_owned(), done: 1, ..Default::default() };
    assert_eq!(bench.ledger.stats().await.unwrap().scopes, [mails, orders]);
}

pub async fn a_list_has_the_newest_change_first(bench: &Bench) {
    let owner = bench.owner().await;
    let first = granted(bench.claim(&owner, "first").await);
    for key in ["second", "third"] {
        bench.pass(1);
        bench.claim(&owner, key).await;
    }
    bench.pass(1);
    bench.finish(&owner, "first", &first, Ending::Done).await;
    let keys: Vec<_> =
        bench.ledger.list(all()).await.unwrap().into_iter().map(|row| row.message_id).collect();
    assert_eq!(keys, ["first", "third", "second"]);
}

pub async fn a_list_is_filtered_and_limited(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "done", Ending::Done).await;
    bench.run(&owner, "failed", failed("no")).await;
    bench.run_request(&owner, in_scope("mails", "done"), Ending::Done).await;
    for (scope, state, limit, expected) in [
        (None, None, 100, 3),
        (None, None, 2, 2),
        (None, None, 0, 0),
        (None, None, u32::MAX, 3),
        (Some(SCOPE), None, 100, 2),
        (None, Some(State::Done), 100, 2),
        (Some(SCOPE), Some(State::Failed), 100, 1),
        (Some("mails"), Some(State::Failed), 100, 0),
        (Some("nowhere"), None, 100, 0),
    ] {
        let filter = Filter { scope: scope.map(str::to_owned), state, limit };
        let rows = bench.ledger.list(filter.clone()).await.unwrap();
        assert_eq!(rows.len(), expected, "{filter:?}");
    }
}

pub async fn show_finds_a_key_in_every_scope(bench: &Bench) {
    let owner = bench.owner().await;
    for scope in ["b", "a"] {
        bench.run_request(&owner, in_scope(scope, "key"), Ending::Done).await;
    }
    bench.run_request(&owner, in_scope("a", "other"), Ending::Done).await;
    let scopes = |rows: Vec<ackonce::ledger::Row>| rows.into_iter().map(|row| row.scope).collect::<Vec<_>>();
    assert_eq!(scopes(bench.ledger.show("key", None).await.unwrap()), ["a", "b"]);
    assert_eq!(scopes(bench.ledger.show("key", Some("b")).await.unwrap()), ["b"]);
    assert!(bench.ledger.show("key", Some("c")).await.unwrap().is_empty());
    assert!(bench.ledger.show("KEY", None).await.unwrap().is_empty());
}

/// A long key is stored as its hash; whoever looks for it has only the text.
pub async fn a_long_key_is_found_by_its_own_text(bench: &Bench) {
    let owner = bench.owner().await;
    let long = "x".repeat(5000);
    bench.run(&owner, &long, Ending::Done).await;
    assert!(bench.row(&long).await.message_id.starts_with("blake3:"));
    assert_eq!(bench.ledger.forget(&long, None).await.unwrap().removed, 1);
}

pub async fn a_forgotten_key_is_new_again(bench: &Bench) {
    let owner = bench.owner().await;
    for scope in ["a", "b"] {
        bench.run_request(&owner, in_scope(scope, "key"), Ending::Done).await;
    }
    bench.run_request(&owner, in_scope("a", "other"), Ending::Done).await;
    assert_eq!(bench.ledger.forget("key", Some("a")).await.unwrap(), Forgotten { removed: 1, in_flight: 0 });
    assert_eq!(granted(bench.claim_request(&owner, in_scope("a", "key")).await).attempt, 1);
    assert_eq!(bench.claim_request(&owner, in_scope("b", "key")).await, Claim::Duplicate);
    assert_eq!(bench.claim_request(&owner, in_scope("a", "other")).await, Claim::Duplicate);
    assert_eq!(bench.ledger.forget("nothing", None).await.unwrap(), Forgotten::default());
}

pub async fn a_key_in_flight_is_not_forgotten(bench: &Bench) {
    let owner = bench.owner().await;
    bench.claim_request(&owner, in_scope("a", "key")).await;
    bench.run_request(&owner, in_scope("b", "key"), Ending::Done).await;
    assert_eq!(bench.ledger.forget("key", None).await.unwrap(), Forgotten { removed: 1, in_flight: 1 });
    assert_eq!(bench.row("key").await.scope, "a");
}

pub async fn a_claim_of_a_dead_owner_can_be_forgotten(bench: &Bench) {
    let dying = bench.owner().await;
    bench.claim(&dying, "a").await;
    drop(dying);
    assert_eq!(bench.ledger.forget("a", None).await.unwrap(), Forgotten { removed: 1, in_flight: 0 });
}
