//! The history of a message's failed attempts.

use std::time::Duration;

use ackonce::ledger::{
    Claim, ERROR_BYTES_MAX, Ending, FailedAttempt, Finish, Finished, Owner, State, Ticket,
    history::FAILURES_MAX,
};

use crate::bench::{Bench, SCOPE, START, dead, failed, granted, key};

async fn run_for(bench: &Bench, owner: &Owner, text: &str, ran: Option<Duration>, ending: Ending) -> Ticket {
    let ticket = granted(bench.claim(owner, text).await);
    let finish = Finish { scope: SCOPE.into(), key: key(text), ticket, ending, copies: 0, ran };
    assert_eq!(bench.finish_as(owner, finish.clone()).await, Finished::Recorded);
    finish.ticket
}

fn attempts(failures: &[FailedAttempt]) -> Vec<u32> {
    failures.iter().map(|failure| failure.attempt).collect()
}

pub async fn each_failed_attempt_is_kept_with_its_time_and_error(bench: &Bench) {
    let owner = bench.owner().await;
    run_for(bench, &owner, "a", Some(Duration::from_millis(1500)), failed("no money")).await;
    bench.pass(1000);
    run_for(bench, &owner, "a", None, dead("gave-up: never")).await;
    let failure = |attempt, ended_ms, ran_ms, error: &str| FailedAttempt {
        attempt,
        ended_ms,
        ran_ms,
        error: error.to_owned(),
    };
    let expected =
        [failure(1, START, Some(1500), "no money"), failure(2, START + 1000, None, "gave-up: never")];
    assert_eq!(bench.row("a").await.failures, expected);
    assert_eq!(bench.rows().await[0].failures, expected, "listed as well");
}

/// What went wrong before is still told when it is done; success and a released attempt add nothing.
pub async fn only_a_failure_adds_to_the_history(bench: &Bench) {
    let owner = bench.owner().await;
    run_for(bench, &owner, "a", Some(Duration::ZERO), failed("no")).await;
    for ending in [Ending::Released { interrupted: false }, Ending::Done] {
        run_for(bench, &owner, "a", Some(Duration::ZERO), ending).await;
        assert_eq!(attempts(&bench.row("a").await.failures), [1]);
    }
    assert_eq!(bench.claim(&owner, "a").await, Claim::Duplicate);
    assert_eq!(attempts(&bench.row("a").await.failures), [1]);
}

pub async fn a_repeated_finish_is_one_failure(bench: &Bench) {
    let owner = bench.owner().await;
    let ticket = bench.run(&owner, "a", failed("no")).await;
    for _ in 0..2 {
        assert_eq!(bench.finish(&owner, "a", &ticket, failed("no")).await, Finished::Recorded);
    }
    let stale = Ticket { attempt: 2, ..ticket };
    assert_eq!(bench.finish(&owner, "a", &stale, failed("no")).await, Finished::Lost);
    assert_eq!(attempts(&bench.row("a").await.failures), [1]);
}

pub async fn the_history_is_bounded(bench: &Bench) {
    let owner = bench.owner().await;
    let error = format!("{}the end", "é".repeat(ERROR_BYTES_MAX));
    bench.run(&owner, "another", failed("no")).await;
    for _ in 0..FAILURES_MAX + 3 {
        bench.run(&owner, "a", failed(&error)).await;
    }
    let failures = bench.row("a").await.failures;
    assert_eq!(attempts(&failures), (4..=FAILURES_MAX + 3).collect::<Vec<_>>());
    assert!(failures.iter().all(|f| f.error.len() <= ERROR_BYTES_MAX && f.error.ends_with("the end")));
    assert_eq!(attempts(&bench.row("another").await.failures), [1], "of each message");
}

/// Attempts count from 1 again, and the history goes on.
pub async fn a_message_that_was_dead_keeps_its_history(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", failed("no")).await;
    bench.run(&owner, "a", dead("never")).await;
    bench.run(&owner, "a", failed("no")).await;
    assert_eq!(attempts(&bench.row("a").await.failures), [1, 2, 1]);
}

/// The id of a row that is gone may be given to another message.
pub async fn a_history_goes_with_its_message(bench: &Bench) {
    let owner = bench.owner().await;
    let old = bench.run(&owner, "a", dead("never")).await;
    assert_eq!(bench.ledger.forget("a", None).await.unwrap().removed, 1);
    let new = granted(bench.claim(&owner, "b").await);
    assert!(bench.is_model() || old.row == new.row, "the id is used again");
    assert!(bench.row("b").await.failures.is_empty());
    bench.finish(&owner, "b", &new, dead("never")).await;

    bench.pass(1000);
    assert_eq!(bench.prune(1000, 100, 0).await.removed, 1);
    let newest = granted(bench.claim(&owner, "c").await);
    assert!(bench.is_model() || newest.row == new.row, "the id is used again");
    assert!(bench.row("c").await.failures.is_empty());
}

pub async fn a_failed_row_says_when_its_next_attempt_is_due(bench: &Bench) {
    let owner = bench.owner().await;
    for parked in [true, false] {
        let error = String::from("no");
        let ending = Ending::Failed { error, parked, next_after: Some(Duration::from_secs(60)) };
        bench.run(&owner, "a", ending).await;
        assert_eq!(bench.row("a").await.next_attempt_ms, Some(bench.now() + 60_000));
    }
    bench.claim(&owner, "a").await;
    assert_eq!(bench.row("a").await.next_attempt_ms, None, "it runs");
    let forever = Ending::Failed { error: "no".into(), parked: false, next_after: Some(Duration::MAX) };
    bench.run(&owner, "a", forever).await;
    for ending in [Ending::Released { interrupted: false }, failed("no"), dead("never"), Ending::Done] {
        let text = format!("{ending:?}");
        bench.run(&owner, "a", ending).await;
        let row = bench.row("a").await;
        assert_eq!(row.next_attempt_ms, None, "{text}");
        assert!(row.state != State::Processing);
    }
}
