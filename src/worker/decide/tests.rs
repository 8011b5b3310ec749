//! The truth table: every answer and verdict, under every policy that changes what follows.

use super::*;
use crate::worker::policy::{DeadLetter, OnMissingKey};

fn policy() -> Policy {
    Policy {
        queue: "q".into(),
        scope: "q".into(),
        key: Default::default(),
        on_missing_key: OnMissingKey::default(),
        on_mismatch: OnMismatch::default(),
        on_interrupted: OnInterrupted::default(),
        concurrency: 1,
        prefetch: 1,
        retry: Retry { max_attempts: 3, ..Retry::default() },
        dead_letter: DeadLetter::default(),
    }
}

fn ticket(attempt: u32, interrupted: bool) -> Ticket {
    Ticket { row: 1, attempt, interrupted, first_seen: 0 }
}

fn reason(after: AfterClaim) -> Option<(Reason, bool)> {
    match after {
        AfterClaim::DeadLetter { reason, ticket, .. } => Some((reason, ticket.is_some())),
        _ => None,
    }
}

#[test]
fn a_claim_runs_unless_its_attempts_are_used_up_or_an_interruption_ends_it() {
    for (attempt, interrupted, on_interrupted, expected) in [
        (1, false, OnInterrupted::Rerun, None),
        (3, false, OnInterrupted::Rerun, None),
        (4, false, OnInterrupted::Rerun, Some(Reason::MaxAttempts)),
        (3, true, OnInterrupted::Rerun, None),
        (4, true, OnInterrupted::Rerun, Some(Reason::MaxAttempts)),
        (1, false, OnInterrupted::DeadLetter, None),
        (2, true, OnInterrupted::DeadLetter, Some(Reason::Interrupted)),
        (4, true, OnInterrupted::DeadLetter, Some(Reason::Interrupted)),
    ] {
        let policy = Policy { on_interrupted, ..policy() };
        let after = after_claim(Claim::Claimed(ticket(attempt, interrupted)), &policy);
        match expected {
            None => assert_eq!(after, AfterClaim::Run(ticket(attempt, interrupted))),
            Some(expected) => assert_eq!(reason(after), Some((expected, true)), "{attempt} {interrupted}"),
        }
    }
}

#[test]
fn every_other_answer_to_a_claim_has_one_consequence() {
    let after = |claim, on_mismatch| after_claim(claim, &Policy { on_mismatch, ..policy() });
    assert_eq!(after(Claim::Duplicate, OnMismatch::DeadLetter), AfterClaim::Duplicate);
    assert_eq!(after(Claim::InFlight { owner: "o".into() }, OnMismatch::DeadLetter), AfterClaim::Wait);
    assert_eq!(after(Claim::Refused("x".into()), OnMismatch::Ack), AfterClaim::Refused("x".into()));
    assert_eq!(reason(after(Claim::Mismatch, OnMismatch::DeadLetter)), Some((Reason::Mismatch, false)));
    assert_eq!(after(Claim::Mismatch, OnMismatch::Ack), AfterClaim::Duplicate);
    assert_eq!(after(Claim::Mismatch, OnMismatch::Process), AfterClaim::Rekey);
}

#[test]
fn every_verdict_has_one_consequence() {
    let retry = Retry { max_attempts: 3, jitter: 0.0, ..Retry::default() };
    let error = || "e".to_owned();
    let after = |verdict, attempt| after_run(verdict, attempt, &retry, 0.5);
    let second = Duration::from_secs;
    assert_eq!(after(Verdict::Done, 9), AfterRun::Done);
    assert_eq!(
        after(Verdict::Retry { error: error(), after: None }, 2),
        AfterRun::Retry { error: error(), delay: second(2) }
    );
    assert_eq!(
        after(Verdict::Retry { error: error(), after: None }, 3),
        AfterRun::DeadLetter { reason: Reason::MaxAttempts, error: error() }
    );
    assert_eq!(
        after(Verdict::GiveUp { error: error() }, 1),
        AfterRun::DeadLetter { reason: Reason::GaveUp, error: error() }
    );
    assert_eq!(after(Verdict::CannotStart { error: error() }, 3), AfterRun::Pause { error: error() });
    assert_eq!(after(Verdict::Stopped, 3), AfterRun::Stopped);
    for (asked, expected) in [(0, 1), (5, 5), (u64::MAX, 60)] {
        let verdict = Verdict::Retry { error: error(), after: Some(second(asked)) };
        assert_eq!(after(verdict, 1), AfterRun::Retry { error: error(), delay: second(expected) });
    }
}

#[test]
fn delays_double_up_to_the_maximum_and_spread_by_the_jitter() {
    let retry = Retry { jitter: 0.1, ..Retry::default() };
    let seconds: Vec<f64> = (1..=8).map(|attempt| delay(&retry, attempt, 0.5).as_secs_f64()).collect();
    assert_eq!(seconds, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
    assert_eq!(delay(&retry, 1, 0.0), Duration::from_millis(900));
    assert!(delay(&retry, 1, 0.999_999) <= Duration::from_millis(1100));
    assert_eq!(delay(&retry, u32::MAX, 0.5), Duration::from_secs(60));
}
