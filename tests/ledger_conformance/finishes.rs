//! Finishing: what each ending leaves, and what the fence keeps out.

use ackonce::ledger::{Claim, ERROR_BYTES_MAX, Ending, Finish, Finished, State, Ticket};

use crate::bench::{Bench, SCOPE, START, dead, failed, granted, key};

fn endings() -> [Ending; 4] {
    [Ending::Done, failed("no"), dead("never"), Ending::Released { interrupted: false }]
}

pub async fn each_ending_leaves_its_state(bench: &Bench) {
    let owner = bench.owner().await;
    for (ending, state, attempts, error) in [
        (Ending::Done, State::Done, 1, None),
        (failed("no"), State::Failed, 1, Some("no")),
        (dead("never"), State::Dead, 1, Some("never")),
        (Ending::Released { interrupted: false }, State::Failed, 0, None),
    ] {
        let text = format!("{ending:?}");
        bench.set_now(START);
        let ticket = granted(bench.claim(&owner, &text).await);
        bench.pass(5);
        assert_eq!(bench.finish(&owner, &text, &ticket, ending).await, Finished::Recorded);
        let row = bench.row(&text).await;
        assert_eq!((row.state, row.attempts, row.last_error.as_deref()), (state, attempts, error), "{text}");
        assert_eq!((row.first_seen_ms, row.updated_ms), (START, START + 5), "{text}");
        assert_eq!((row.owner.as_deref(), row.owner_alive), (Some(owner.name()), false), "{text}");
    }
}

pub async fn a_finish_that_is_repeated_is_recorded_again(bench: &Bench) {
    let owner = bench.owner().await;
    for ending in endings() {
        let text = format!("{ending:?}");
        let ticket = bench.run(&owner, &text, ending.clone()).await;
        let before = bench.row(&text).await;
        bench.pass(1000);
        assert_eq!(bench.finish(&owner, &text, &ticket, ending).await, Finished::Recorded, "{text}");
        assert_eq!(bench.row(&text).await, before, "nothing was changed");
    }
}

/// The reply was lost, but not the commit: what is said to those who ask shows it.
pub async fn a_finish_whose_reply_was_lost_is_recorded_again(bench: &Bench) {
    let owner = bench.owner().await;
    for ending in endings() {
        let text = format!("{ending:?}");
        let ticket = granted(bench.claim(&owner, &text).await);
        let finish = || Finish {
            scope: SCOPE.into(),
            key: key(&text),
            ticket: ticket.clone(),
            ending: ending.clone(),
            copies: 1,
            ran: None,
        };
        drop(bench.ledger.finish(&owner, vec![finish()], bench.now()));
        bench.pass(1000);
        assert_eq!(bench.finish_as(&owner, finish()).await, Finished::Recorded, "{text}");
        let row = bench.row(&text).await;
        assert_ne!(row.state, State::Processing, "{text}");
        assert_eq!(row.duplicates, 1, "{text}: counted once");
        assert_eq!(row.failures.len(), usize::from(row.last_error.is_some()), "{text}: one failure at most");
    }
}

pub async fn a_repeated_finish_counts_its_copies_once(bench: &Bench) {
    let owner = bench.owner().await;
    let ticket = granted(bench.claim(&owner, "a").await);
    let finish =
        Finish { scope: SCOPE.into(), key: key("a"), ticket, ending: Ending::Done, copies: 2, ran: None };
    for _ in 0..2 {
        assert_eq!(bench.finish_as(&owner, finish.clone()).await, Finished::Recorded);
    }
    assert_eq!(bench.row("a").await.duplicates, 2);
}

pub async fn a_finish_with_another_ending_is_lost(bench: &Bench) {
    let owner = bench.owner().await;
    for first in endings() {
        let text = format!("{first:?}");
        let ticket = bench.run(&owner, &text, first.clone()).await;
        let before = bench.row(&text).await;
        for second in endings().into_iter().filter(|second| *second != first) {
            let finished = bench.finish(&owner, &text, &ticket, second.clone()).await;
            assert_eq!(finished, Finished::Lost, "{first:?}, then {second:?}");
        }
        assert_eq!(bench.row(&text).await, before, "nothing was changed");
    }
}

pub async fn a_finish_needs_the_right_ticket(bench: &Bench) {
    let (owner, other) = (bench.owner().await, bench.owner().await);
    bench.run(&owner, "a", failed("no")).await;
    let ticket = granted(bench.claim(&owner, "a").await);
    let elsewhere = granted(bench.claim(&owner, "b").await);
    // The ledger knows the other one too.
    granted(bench.claim(&other, "c").await);
    let before = bench.row("a").await;
    let wrong = [
        Ticket { attempt: 1, ..ticket.clone() },
        Ticket { attempt: 3, ..ticket.clone() },
        Ticket { row: elsewhere.row, ..ticket.clone() },
        Ticket { row: 99, ..ticket.clone() },
    ];
    for ending in endings() {
        for wrong in &wrong {
            let finished = bench.finish(&owner, "a", wrong, ending.clone()).await;
            assert_eq!(finished, Finished::Lost, "{wrong:?}");
        }
        let finished = bench.finish(&other, "a", &ticket, ending.clone()).await;
        assert_eq!(finished, Finished::Lost, "another owner");
        let finished = bench.finish(&owner, "b", &ticket, ending.clone()).await;
        assert_eq!(finished, Finished::Lost, "another key");
        let ticket = ticket.clone();
        let finish = Finish { scope: "x".into(), key: key("a"), ticket, ending, copies: 0, ran: None };
        assert_eq!(bench.finish_as(&owner, finish).await, Finished::Lost, "another scope");
    }
    assert_eq!(bench.row("a").await, before, "nothing was changed");
}

pub async fn a_late_finisher_changes_nothing(bench: &Bench) {
    let late = bench.owner().await;
    let old = granted(bench.claim(&late, "a").await);
    let name = late.shared_name();
    drop(late);
    let heir = bench.owner().await;
    let new = granted(bench.claim(&heir, "a").await);
    let late = ackonce::ledger::Owner::new(name, ());
    for ending in endings() {
        assert_eq!(bench.finish(&late, "a", &old, ending).await, Finished::Lost);
    }
    assert_eq!(bench.finish(&heir, "a", &new, Ending::Done).await, Finished::Recorded);
    for ending in endings() {
        assert_eq!(bench.finish(&late, "a", &old, ending).await, Finished::Lost);
    }
    let row = bench.row("a").await;
    assert_eq!((row.state, row.attempts, row.owner.as_deref()), (State::Done, 2, Some(heir.name())));
}

pub async fn a_released_attempt_is_not_counted(bench: &Bench) {
    let owner = bench.owner().await;
    bench.run(&owner, "a", failed("no")).await;
    for _ in 0..3 {
        assert_eq!(bench.run(&owner, "a", Ending::Released { interrupted: false }).await.attempt, 2);
        assert_eq!(bench.row("a").await.last_error.as_deref(), Some("no"), "of the attempt before");
    }
    assert_eq!(bench.run(&owner, "a", Ending::Done).await.attempt, 2);
    assert_eq!(bench.claim(&owner, "a").await, Claim::Duplicate);
}

pub async fn copies_that_shared_a_run_are_duplicates(bench: &Bench) {
    let owner = bench.owner().await;
    let ticket = granted(bench.claim(&owner, "a").await);
    bench.pass(1000);
    let finish =
        Finish { scope: SCOPE.into(), key: key("a"), ticket, ending: Ending::Done, copies: 2, ran: None };
    assert_eq!(bench.finish_as(&owner, finish).await, Finished::Recorded);
    let row = bench.row("a").await;
    assert_eq!((row.duplicates, row.last_duplicate_ms), (2, Some(START + 1000)));
    bench.run(&owner, "alone", Ending::Done).await;
    let row = bench.row("alone").await;
    assert_eq!((row.duplicates, row.last_duplicate_ms), (0, None));
}

pub async fn an_error_text_keeps_its_tail(bench: &Bench) {
    let owner = bench.owner().await;
    let error = format!("{}the end", "é".repeat(ERROR_BYTES_MAX));
    bench.run(&owner, "a", failed(&error)).await;
    let kept = bench.row("a").await.last_error.unwrap();
    assert!(kept.len() <= ERROR_BYTES_MAX && kept.len() > ERROR_BYTES_MAX - 4, "{} bytes", kept.len());
    assert!(kept.ends_with("éthe end"), "{kept}");
}

/// The id of a removed row may be given to another: a ticket for the first must not open the second.
pub async fn a_finish_after_pruning_is_lost(bench: &Bench) {
    let late = bench.owner().await;
    let old = granted(bench.claim(&late, "a").await);
    let forgotten = bench.ledger.forget("a", None).await.unwrap();
    assert_eq!(forgotten.removed, 0, "it is in flight");
    bench.finish(&late, "a", &old, failed("no")).await;
    assert_eq!(bench.ledger.forget("a", None).await.unwrap().removed, 1);
    let new = granted(bench.claim(&late, "b").await);
    let same_row = Ticket { row: new.row, ..old };
    assert_eq!(bench.finish(&late, "a", &same_row, Ending::Done).await, Finished::Lost);
    assert_eq!(bench.row("b").await.state, State::Processing);
    assert_eq!(bench.finish(&late, "b", &new, Ending::Done).await, Finished::Recorded);
}
