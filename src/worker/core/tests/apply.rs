//! Handlers inside the ledger's transaction: claim, run and finish are one step.

use super::*;
use crate::ledger::Failure;

fn bench(change: impl FnOnce(&mut Policy)) -> Bench {
    let mut bench = Bench::new(|policy| {
        policy.concurrency = 10;
        change(policy);
    });
    bench.core.applies = true;
    bench
}

fn applies(commands: &[Command]) -> Vec<GroupId> {
    let applies = commands.iter().find_map(|c| if let Command::Apply(ids, _) = c { Some(ids) } else { None });
    applies.cloned().unwrap_or_default()
}

fn ticket(attempt: u32) -> Ticket {
    Ticket { row: 1, attempt, interrupted: false, first_seen: 0 }
}

fn failed(attempt: u32) -> Applied {
    Applied::Failed { ticket: ticket(attempt), failure: Failure::Retry { error: "e".into() } }
}

fn answer(groups: &[GroupId], answers: Vec<Applied>) -> Event {
    assert_eq!(groups.len(), answers.len());
    Event::Applied(groups.to_vec(), Ok(answers))
}

#[test]
fn a_success_is_acked_without_a_claim_a_run_or_a_finish_of_its_own() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", ""), ("b", "")]));
    let commands = bench.feed(answer(&groups, vec![Applied::Done(ticket(1)), Applied::Done(ticket(1))]));
    assert!(matches!(commands[..], [Command::Settle(_)]), "{commands:?}");
    assert_eq!(settled(&commands), [(1, Settlement::Ack), (2, Settlement::Ack)]);
    assert_eq!((bench.core.counts().handled, bench.core.in_flight()), (2, 0));
}

#[test]
fn the_request_says_which_claims_may_run_and_how_many_copies_there_are() {
    for (on_interrupted, reruns) in [(OnInterrupted::Rerun, true), (OnInterrupted::DeadLetter, false)] {
        let mut bench = bench(|policy| policy.on_interrupted = on_interrupted);
        let commands = bench.deliver(&[("a", "x"), ("a", "x")]);
        let Some(Command::Apply(_, requests)) = commands.first() else { panic!("{commands:?}") };
        let [request] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((request.attempts_max, request.reruns, request.claim.copies), (2, reruns, 2));
        assert_eq!(request.message.body, b"x");
    }
}

#[test]
fn copies_before_the_commit_share_it_and_later_ones_are_asked_about() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "x"), ("a", "x")]));
    assert!(bench.deliver(&[("a", "x")]).is_empty(), "one run of a key at a time");
    let commands = bench.feed(answer(&groups, vec![Applied::Done(ticket(1))]));
    assert_eq!(settled(&commands), [(1, Settlement::Ack), (2, Settlement::Ack)]);
    let late = applies(&commands);
    let commands = bench.feed(answer(&late, vec![Applied::Unrun(Claim::Duplicate)]));
    assert_eq!(settled(&commands), [(3, Settlement::Ack)]);
    let counts = bench.core.counts();
    assert_eq!((counts.handled, counts.duplicates), (1, 2));
}

#[test]
fn a_failure_goes_the_ordinary_way_from_its_row_to_the_next_attempt() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("bad", ""), ("good", "")]));
    let commands = bench.feed(answer(&groups, vec![failed(1), Applied::Done(ticket(1))]));
    assert_eq!(settled(&commands), [(2, Settlement::Ack)]);
    assert_eq!(finishes(&commands), [(super::failed(false, 1), 0)]);
    assert!(settled(&bench.feed(recorded(&groups[..1]))).is_empty());
    assert!(applies(&bench.after(Duration::from_millis(999))).is_empty());
    let again = applies(&bench.after(Duration::from_millis(1)));
    let commands = bench.feed(answer(&again, vec![failed(2)]));
    let Some(Command::Publish(_, letter)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!(letter.purpose, Purpose::Dead(Reason::MaxAttempts));
    let commands = bench.feed(Event::Published(again[0], Ok(())));
    assert_eq!(finishes(&commands), [(Ending::Dead { error: "max-attempts: e".into(), copied: true }, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&again))), [(1, Settlement::Ack)]);
    assert_eq!(bench.core.counts().duplicates, 0);
}

#[test]
fn a_claim_that_was_not_run_is_given_up_by_policy() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "")]));
    let commands = bench.feed(answer(&groups, vec![Applied::Unrun(claimed(3))]));
    let Some(Command::Publish(_, letter)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!(letter.purpose, Purpose::Dead(Reason::MaxAttempts));
}

#[test]
fn what_was_postponed_is_next_in_its_order() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", ""), ("b", ""), ("c", "")]));
    bench.deliver(&[("d", "")]);
    let answers = vec![Applied::Done(ticket(1)), Applied::Postponed, Applied::Postponed];
    let next = applies(&bench.feed(answer(&groups, answers)));
    assert_eq!(next[..2], groups[1..]);
    assert_eq!(next.len(), 3);
}

#[test]
fn a_batch_is_bounded_and_one_is_under_way() {
    let mut bench = bench(|policy| (policy.prefetch, policy.concurrency) = (2000, 2000));
    let names: Vec<String> = (0..1200).map(|n| n.to_string()).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let mut sizes = Vec::new();
    let mut groups = applies(&bench.deliver(&messages));
    while !groups.is_empty() {
        sizes.push(groups.len());
        let answers = vec![Applied::Done(ticket(1)); groups.len()];
        groups = applies(&bench.feed(answer(&groups, answers)));
    }
    assert_eq!(sizes, [500, 500, 200]);
}

#[test]
fn a_key_held_elsewhere_is_asked_for_again() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "")]));
    let in_flight = Applied::Unrun(Claim::InFlight { owner: "o".into() });
    assert!(bench.feed(answer(&groups, vec![in_flight])).is_empty());
    assert_eq!(applies(&bench.after(Duration::from_millis(20))), groups);
}

#[test]
fn a_ledger_that_is_away_keeps_the_messages_and_a_broken_one_ends_the_worker() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", ""), ("b", "")]));
    let away = LedgerError::transient("database is locked");
    assert!(bench.feed(Event::Applied(groups.clone(), Err(away))).is_empty());
    assert_eq!(applies(&bench.after(Duration::from_secs(1))), groups);
    let broken = LedgerError::fatal("malformed");
    let commands = bench.feed(Event::Applied(groups, Err(broken)));
    assert!(matches!(commands[..], [Command::Fail(_)]), "{commands:?}");
}

#[test]
fn a_missing_table_pauses_and_uses_no_attempt() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "")]));
    let failure = Failure::CannotStart { error: "no such table".into() };
    let commands = bench.feed(answer(&groups, vec![Applied::Failed { ticket: ticket(1), failure }]));
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
    assert!(applies(&bench.feed(recorded(&groups))).is_empty());
    let commands = bench.after(Duration::from_secs(2));
    assert!(matches!(commands[..], [Command::Probe]), "{commands:?}");
    assert_eq!(applies(&bench.feed(Event::Probed(Ok(())))), groups);
}

#[test]
fn after_a_lost_session_the_copy_shares_the_commit() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "x")]));
    bench.feed(Event::SessionEnded);
    assert!(bench.deliver(&[("a", "x")]).is_empty());
    let commands = bench.feed(answer(&groups, vec![Applied::Done(ticket(1))]));
    assert_eq!(settled(&commands), [(2, Settlement::Ack)]);
    assert_eq!(bench.core.in_flight(), 0);
}

#[test]
fn a_drain_sees_the_commit_and_returns_the_rest() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]));
    assert_eq!(settled(&bench.deliver(&[("e", "")])), []);
    assert_eq!(settled(&bench.feed(Event::Drain)), [(5, Settlement::Return)]);
    assert!(!bench.core.is_drained());
    let stopped = Applied::Failed { ticket: ticket(1), failure: Failure::Stopped };
    let answers = vec![
        Applied::Done(ticket(1)),
        Applied::Postponed,
        stopped,
        Applied::Unrun(Claim::InFlight { owner: "o".into() }),
    ];
    let commands = bench.feed(answer(&groups, answers));
    let mut now = settled(&commands);
    now.sort_by_key(|(tag, _)| *tag);
    assert_eq!(now, [(1, Settlement::Ack), (2, Settlement::Return), (4, Settlement::Return)]);
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&groups[2..3]))), [(3, Settlement::Return)]);
    assert!(bench.core.is_drained());
}

#[test]
fn as_many_are_asked_for_as_there_are_slots_whatever_the_answers() {
    let mut bench = bench(|policy| policy.concurrency = 2);
    let names: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let mut groups = applies(&bench.deliver(&messages));
    for answers in [
        vec![failed(1), failed(1)],
        vec![Applied::Done(ticket(1)), Applied::Unrun(Claim::Duplicate)],
        vec![Applied::Unrun(claimed(3)), failed(1)],
    ] {
        assert_eq!(groups.len(), 2);
        groups = applies(&bench.feed(answer(&groups, answers)));
    }
    assert_eq!(groups.len(), 2);
}

#[test]
fn a_claim_that_could_have_run_is_given_back_and_asked_for_anew() {
    let mut bench = bench(|_| {});
    let groups = applies(&bench.deliver(&[("a", "")]));
    let commands = bench.feed(answer(&groups, vec![Applied::Unrun(claimed(1))]));
    assert!(runs(&commands).is_empty(), "there is no run outside the ledger");
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
    assert_eq!(applies(&bench.feed(recorded(&groups))), groups);
}
