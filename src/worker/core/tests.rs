//! The state machine alone: events in, commands out, no I/O and no clock but the one given.

mod apply;
mod found;

use std::sync::Arc;

use super::*;
use crate::{
    handler::Verdict,
    key::{Fingerprint, KeySpec},
    ledger::{Applied, Claim, ClaimRequest, Ending, Finished, Origin, Ticket},
    message::{Delivery, Message, Properties, SessionId},
    worker::decide::Reason,
    worker::policy::{DeadLetter, OnInterrupted, OnMismatch, OnMissingKey, Retry},
};

const SESSION: SessionId = 1;

/// A core with a small hand to feed it and read from it.
struct Bench {
    core: Core,
    now: Instant,
    tag: u64,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy {
            queue: "q".into(),
            scope: "q".into(),
            key: KeySpec::default(),
            on_missing_key: OnMissingKey::default(),
            on_mismatch: OnMismatch::default(),
            on_interrupted: OnInterrupted::default(),
            concurrency: 2,
            prefetch: 10,
            retry: Retry { max_attempts: 2, jitter: 0.0, ..Retry::default() },
            dead_letter: DeadLetter::default(),
        };
        change(&mut policy);
        let now = Instant::now();
        let slots = policy.concurrency;
        let mut core = Core::new(Arc::new(policy), slots, 0, now);
        core.handle(Event::SessionOpened(SESSION), now);
        Self { core, now, tag: 0 }
    }

    fn feed(&mut self, event: Event) -> Vec<Command> {
        self.core.handle(event, self.now);
        self.core.submit()
    }

    fn deliver(&mut self, messages: &[(&str, &str)]) -> Vec<Command> {
        let deliveries = messages
            .iter()
            .map(|(id, body)| {
                self.tag += 1;
                let properties = Properties { message_id: Some((*id).into()), ..Properties::default() };
                let message = Message { properties, body: body.as_bytes().to_vec(), ..Message::default() };
                Delivery { message: Arc::new(message), receipt: Receipt::new(SESSION, self.tag) }
            })
            .collect();
        self.feed(Event::Delivered(deliveries))
    }

    fn after(&mut self, wait: Duration) -> Vec<Command> {
        self.now += wait;
        self.feed(Event::Wake)
    }

    /// Delivers one message and brings it to its run.
    fn run_one(&mut self, id: &str, attempt: u32) -> GroupId {
        let group = claims(&self.deliver(&[(id, "body")]))[0];
        let commands = self.feed(Event::Claimed(vec![group], Ok(vec![claimed(attempt)])));
        assert_eq!(runs(&commands), [group]);
        group
    }
}

fn claimed(attempt: u32) -> Claim {
    Claim::Claimed(Ticket { row: 1, attempt, interrupted: false, first_seen: 0 })
}

fn claims(commands: &[Command]) -> Vec<GroupId> {
    let claims = commands.iter().find_map(|c| if let Command::Claim(ids, _) = c { Some(ids) } else { None });
    claims.cloned().unwrap_or_default()
}

fn runs(commands: &[Command]) -> Vec<GroupId> {
    commands.iter().filter_map(|c| if let Command::Run(id, _) = c { Some(*id) } else { None }).collect()
}

fn finishes(commands: &[Command]) -> Vec<(Ending, u32)> {
    let finishes = commands.iter().find_map(|c| if let Command::Finish(_, f) = c { Some(f) } else { None });
    finishes.into_iter().flatten().map(|finish| (finish.ending.clone(), finish.copies)).collect()
}

fn settled(commands: &[Command]) -> Vec<(u64, Settlement)> {
    let all = commands.iter().find_map(|c| if let Command::Settle(all) = c { Some(all) } else { None });
    all.into_iter().flatten().map(|(receipt, settlement)| (receipt.tag(), *settlement)).collect()
}

fn failed(parked: bool, after_s: u64) -> Ending {
    Ending::Failed { error: "e".into(), parked, next_after: Some(Duration::from_secs(after_s)) }
}

fn retry() -> Verdict {
    Verdict::Retry { error: "e".into(), after: None }
}

fn recorded(groups: &[GroupId]) -> Event {
    Event::Finished(groups.to_vec(), Ok(vec![Finished::Recorded; groups.len()]))
}

#[test]
fn nothing_is_acked_before_the_finish_is_recorded() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    let commands = bench.feed(Event::Ran(group, Verdict::Done));
    assert_eq!(finishes(&commands), [(Ending::Done, 0)]);
    assert_eq!(settled(&commands), []);
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(1, Settlement::Ack)]);
}

/// So that neither the ledger nor the worker waits for the other, and batches grow by themselves.
#[test]
fn while_claims_are_written_one_more_batch_waits_and_no_third() {
    let mut bench = Bench::new(|policy| policy.concurrency = 10);
    let first = claims(&bench.deliver(&[("a", "")]));
    assert!(bench.core.has_use_for_deliveries());
    assert_eq!(claims(&bench.deliver(&[("b", "")])).len(), 1);
    assert!(!bench.core.has_use_for_deliveries());
    assert_eq!(claims(&bench.deliver(&[("c", ""), ("d", "")])), []);
    let commands = bench.feed(Event::Claimed(first, Ok(vec![claimed(1)])));
    assert_eq!(claims(&commands).len(), 2, "what has piled up is one batch");
}

/// Two batches that meet the same outage are one failure: the pause grows once.
#[test]
fn batches_that_fail_together_are_one_outage() {
    let mut bench = Bench::new(|policy| policy.concurrency = 10);
    let first = claims(&bench.deliver(&[("a", "")]));
    let second = claims(&bench.deliver(&[("b", "")]));
    let away = || Err(LedgerError::transient("away"));
    bench.feed(Event::Claimed(first, away()));
    assert_eq!(claims(&bench.feed(Event::Claimed(second, away()))), []);
    let wake = bench.core.next_wake().expect("a timer");
    assert!(wake.duration_since(bench.now) <= Duration::from_millis(200), "not doubled");
    assert_eq!(claims(&bench.after(wake.duration_since(bench.now))).len(), 2);
    assert_eq!(bench.core.next_wake(), None, "one timer for one outage");
}

/// Also where groups took the places of others that are gone.
#[test]
fn a_drain_returns_messages_in_the_order_of_their_arrival() {
    let mut bench = Bench::new(|policy| policy.concurrency = 1);
    let first = claims(&bench.deliver(&[("a", ""), ("b", ""), ("c", "")]));
    let next = claims(&bench.feed(Event::Claimed(first, Ok(vec![Claim::Duplicate]))));
    bench.feed(Event::Claimed(next, Ok(vec![Claim::Duplicate])));
    bench.deliver(&[("d", ""), ("e", ""), ("f", "")]);
    let returned: Vec<u64> = settled(&bench.feed(Event::Drain)).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(returned, [4, 5, 6]);
}

#[test]
fn only_as_many_are_claimed_as_can_start() {
    let mut bench = Bench::new(|policy| policy.concurrency = 2);
    let first = claims(&bench.deliver(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]));
    assert_eq!(first.len(), 2);
    let commands = bench.feed(Event::Claimed(first.clone(), Ok(vec![claimed(1), claimed(1)])));
    assert_eq!((runs(&commands).len(), claims(&commands).len()), (2, 0), "no slot is free");
    let commands = bench.feed(Event::Ran(first[0], Verdict::Done));
    assert_eq!(claims(&commands).len(), 1, "one slot became free");
}

#[test]
fn copies_share_one_run_and_are_counted_once_each() {
    let mut bench = Bench::new(|_| {});
    let group = claims(&bench.deliver(&[("a", "x"), ("a", "x")]))[0];
    bench.feed(Event::Claimed(vec![group], Ok(vec![claimed(1)])));
    assert!(claims(&bench.deliver(&[("a", "x")])).is_empty(), "a third copy joins the run");
    let commands = bench.feed(Event::Ran(group, Verdict::Done));
    assert_eq!(finishes(&commands), [(Ending::Done, 2)]);
    let late = bench.deliver(&[("a", "x")]);
    assert!(claims(&late).is_empty());
    let commands = bench.feed(recorded(&[group]));
    let acks = [(1, Settlement::Ack), (2, Settlement::Ack), (3, Settlement::Ack)];
    assert_eq!(settled(&commands), acks, "what came after the finish was written is not part of it");
    let late = claims(&commands);
    assert_eq!(late.len(), 1, "it is claimed by itself");
    let commands = bench.feed(Event::Claimed(late, Ok(vec![Claim::Duplicate])));
    assert_eq!(settled(&commands), [(4, Settlement::Ack)]);
    let counts = bench.core.counts();
    assert_eq!((counts.handled, counts.duplicates), (1, 3));
}

/// How long a run took is part of what the ledger hears; without a run, nothing is made up.
#[test]
fn a_finish_says_how_long_the_handler_ran() {
    let mut bench = Bench::new(|policy| policy.retry.max_attempts = 2);
    let ran = |commands: &[Command]| {
        commands.iter().find_map(|c| if let Command::Finish(_, f) = c { Some(f[0].ran) } else { None })
    };
    let group = bench.run_one("a", 1);
    bench.after(Duration::from_millis(1500));
    let commands = bench.feed(Event::Ran(group, Verdict::Stopped));
    assert_eq!(ran(&commands), Some(Some(Duration::from_millis(1500))));
    let again = claims(&bench.feed(recorded(&[group])));
    bench.feed(Event::Claimed(again, Ok(vec![claimed(3)])));
    let commands = bench.feed(Event::Published(group, Ok(())));
    assert_eq!(ran(&commands), Some(None), "given up without a run");
}

#[test]
fn of_failed_copies_one_goes_on_after_the_delay() {
    let mut bench = Bench::new(|_| {});
    let group = claims(&bench.deliver(&[("a", "x"), ("a", "x")]))[0];
    bench.feed(Event::Claimed(vec![group], Ok(vec![claimed(1)])));
    let commands = bench.feed(Event::Ran(group, retry()));
    assert_eq!(finishes(&commands), [(failed(false, 1), 1)]);
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(2, Settlement::Ack)]);
    assert!(claims(&bench.after(Duration::from_millis(999))).is_empty());
    assert_eq!(claims(&bench.after(Duration::from_millis(1))).len(), 1);
}

#[test]
fn the_last_attempt_is_dead_lettered_before_the_row_and_the_row_before_the_ack() {
    let mut bench = Bench::new(|policy| policy.retry.max_attempts = 2);
    let group = bench.run_one("a", 2);
    let commands = bench.feed(Event::Ran(group, retry()));
    let Some(Command::Publish(_, letter)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!((letter.attempt, letter.error.as_str()), (2, "e"));
    assert_eq!(letter.purpose, Purpose::Dead(Reason::MaxAttempts));
    assert!(finishes(&commands).is_empty() && settled(&commands).is_empty());

    let commands = bench.feed(Event::Published(group, Err("blocked".into())));
    assert!(finishes(&commands).is_empty() && settled(&commands).is_empty(), "not confirmed: kept");
    let commands = bench.after(Duration::from_secs(1));
    assert!(matches!(commands[..], [Command::Publish(..)]), "tried again: {commands:?}");

    let commands = bench.feed(Event::Published(group, Ok(())));
    assert_eq!(finishes(&commands), [(Ending::Dead { error: "max-attempts: e".into(), copied: true }, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(1, Settlement::Ack)]);
}

#[test]
fn a_message_without_a_key_is_dead_lettered_and_stops_nobody() {
    let mut bench = Bench::new(|_| {});
    let commands = bench.deliver(&[("", "x"), (" ", "y"), ("b", "z")]);
    let letters: Vec<_> = commands
        .iter()
        .filter_map(|c| if let Command::Publish(id, _) = c { Some(*id) } else { None })
        .collect();
    assert_eq!((letters.len(), claims(&commands).len()), (2, 1));
    let commands = bench.feed(Event::Published(letters[0], Ok(())));
    assert_eq!(settled(&commands), [(1, Settlement::Ack)]);
    assert_eq!(bench.core.counts().missing_key, 2);
}

#[test]
fn messages_without_a_key_can_run_each_by_itself_or_by_their_body() {
    for (on_missing_key, expected) in [(OnMissingKey::Process, 2), (OnMissingKey::HashBody, 1)] {
        let mut bench = Bench::new(|policy| policy.on_missing_key = on_missing_key);
        assert_eq!(claims(&bench.deliver(&[("", "x"), ("", "x")])).len(), expected, "{on_missing_key:?}");
    }
}

#[test]
fn another_body_waits_for_the_first_ones_fate() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    assert!(claims(&bench.deliver(&[("a", "other")])).is_empty(), "never two runs of one key");
    bench.feed(Event::Ran(group, Verdict::Done));
    let commands = bench.feed(recorded(&[group]));
    assert_eq!(settled(&commands), [(1, Settlement::Ack)]);
    let rival = claims(&commands);
    let commands = bench.feed(Event::Claimed(rival, Ok(vec![Claim::Mismatch])));
    let Some(Command::Publish(id, letter)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!(letter.purpose, Purpose::Dead(Reason::Mismatch));
    assert_eq!(settled(&bench.feed(Event::Published(*id, Ok(())))), [(2, Settlement::Ack)]);
}

#[test]
fn after_a_failure_a_corrected_body_runs_at_once_and_the_old_one_meets_its_result() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, retry()));
    bench.feed(recorded(&[group]));
    let corrected = claims(&bench.deliver(&[("a", "corrected")]));
    assert_eq!(corrected.len(), 1);
    bench.feed(Event::Claimed(corrected.clone(), Ok(vec![claimed(2)])));
    assert!(claims(&bench.after(Duration::from_secs(2))).is_empty(), "the old one waits for it");
    bench.feed(Event::Ran(corrected[0], Verdict::Done));
    let commands = bench.feed(recorded(&corrected));
    assert_eq!(settled(&commands), [(2, Settlement::Ack)]);
    assert_eq!(claims(&commands).len(), 1, "now the old one learns that its key is done");
}

#[test]
fn another_body_can_run_under_a_key_of_its_own() {
    let mut bench = Bench::new(|policy| policy.on_mismatch = OnMismatch::Process);
    let group = claims(&bench.deliver(&[("a", "other")]));
    let commands = bench.feed(Event::Claimed(group, Ok(vec![Claim::Mismatch])));
    let Some(Command::Claim(_, requests)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!(requests[0].key.as_str(), format!("a+{}", Fingerprint::of(b"other")));
}

#[test]
fn a_claim_held_elsewhere_is_asked_for_again_and_again() {
    let mut bench = Bench::new(|_| {});
    let mut group = claims(&bench.deliver(&[("a", "")]));
    let mut waited = Duration::ZERO;
    for _ in 0..20 {
        bench.feed(Event::Claimed(group, Ok(vec![Claim::InFlight { owner: "o".into() }])));
        let wake = bench.core.next_wake().expect("a timer");
        waited = wake.duration_since(bench.now);
        group = claims(&bench.after(waited));
        assert_eq!(group.len(), 1);
    }
    assert!(waited <= Duration::from_millis(500), "a dead owner is noticed within a second: {waited:?}");
}

#[test]
fn a_lost_claim_settles_nothing_and_asks_again() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, Verdict::Done));
    let commands = bench.feed(Event::Finished(vec![group], Ok(vec![Finished::Lost])));
    assert_eq!(settled(&commands), []);
    assert_eq!(claims(&commands), [group]);
    assert_eq!(bench.core.counts().lost_claims, 1);
}

#[test]
fn an_ended_session_settles_nothing_and_redelivered_copies_join_what_runs() {
    let mut bench = Bench::new(|policy| policy.concurrency = 1);
    let running = bench.run_one("a", 1);
    bench.deliver(&[("waiting", "")]);
    bench.feed(Event::SessionEnded);
    assert_eq!(bench.core.in_flight(), 1, "what had not started is the broker's again");
    bench.deliver(&[("a", "body")]);
    let commands = bench.feed(Event::Ran(running, Verdict::Done));
    assert_eq!(finishes(&commands), [(Ending::Done, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&[running]))), [(3, Settlement::Ack)]);
}

#[test]
fn a_failed_message_keeps_its_delay_over_a_lost_session() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, retry()));
    bench.feed(recorded(&[group]));
    bench.feed(Event::SessionEnded);
    assert!(claims(&bench.deliver(&[("a", "body")])).is_empty(), "it does not run early");
    assert_eq!(claims(&bench.after(Duration::from_secs(1))).len(), 1);
}

#[test]
fn a_ledger_that_is_away_pauses_everything_and_loses_nothing() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, Verdict::Done));
    let away = || LedgerError::transient("database is locked");
    let commands = bench.feed(Event::Finished(vec![group], Err(away())));
    assert!(commands.is_empty(), "{commands:?}");
    assert!(claims(&bench.deliver(&[("b", "")])).is_empty());
    let commands = bench.after(Duration::from_secs(1));
    assert_eq!((finishes(&commands).len(), claims(&commands).len()), (1, 1));
    let again = claims(&commands);
    bench.feed(Event::Claimed(again.clone(), Err(away())));
    let commands = bench.after(Duration::from_secs(1));
    assert_eq!(claims(&commands), again, "the same message, in its place");
    let commands = bench.feed(recorded(&[group]));
    assert_eq!(settled(&commands), [(1, Settlement::Ack)]);
}

#[test]
fn a_broken_ledger_ends_the_worker_and_acks_nothing() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, Verdict::Done));
    let commands = bench.feed(Event::Finished(vec![group], Err(LedgerError::fatal("malformed"))));
    assert!(matches!(commands[..], [Command::Fail(_)]), "{commands:?}");
}

#[test]
fn a_row_that_the_ledger_refuses_is_kept_and_its_neighbours_run() {
    let mut bench = Bench::new(|_| {});
    let groups = claims(&bench.deliver(&[("bad", ""), ("good", "")]));
    let answers = vec![Claim::Refused("CHECK constraint failed".into()), claimed(1)];
    let commands = bench.feed(Event::Claimed(groups.clone(), Ok(answers)));
    assert_eq!(runs(&commands), [groups[1]]);
    assert_eq!(settled(&commands), []);
    assert_eq!(claims(&bench.after(Duration::from_secs(1))).len(), 1, "it is tried again");
    assert_eq!(bench.core.counts().duplicates, 0);
}

#[test]
fn a_handler_that_cannot_start_uses_no_attempt_and_pauses_until_it_can() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    let commands = bench.feed(Event::Ran(group, Verdict::CannotStart { error: "gone".into() }));
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
    assert!(claims(&bench.feed(recorded(&[group]))).is_empty());
    let commands = bench.after(Duration::from_secs(2));
    assert!(matches!(commands[..], [Command::Probe]), "{commands:?}");
    bench.feed(Event::Probed(Err("still gone".into())));
    let commands = bench.after(Duration::from_secs(5));
    assert!(matches!(commands[..], [Command::Probe]), "{commands:?}");
    assert_eq!(claims(&bench.feed(Event::Probed(Ok(())))), [group]);
}

#[test]
fn a_drain_returns_what_has_not_started_and_ends_when_the_rest_has() {
    let mut bench = Bench::new(|policy| policy.concurrency = 1);
    let running = bench.run_one("a", 1);
    bench.deliver(&[("b", ""), ("c", "")]);
    let mut returned = settled(&bench.feed(Event::Drain));
    returned.sort_by_key(|(tag, _)| *tag);
    assert_eq!(returned, [(2, Settlement::Return), (3, Settlement::Return)]);
    assert_eq!(settled(&bench.deliver(&[("d", "")])), [(4, Settlement::Return)]);
    assert!(!bench.core.is_drained());
    let commands = bench.feed(Event::Ran(running, Verdict::Done));
    assert!(claims(&commands).is_empty());
    assert_eq!(settled(&bench.feed(recorded(&[running]))), [(1, Settlement::Ack)]);
    assert!(bench.core.is_drained());
}

#[test]
fn a_run_stopped_by_the_drain_deadline_gives_its_attempt_back() {
    let mut bench = Bench::new(|_| {});
    let group = bench.run_one("a", 1);
    bench.feed(Event::Drain);
    assert_eq!(
        finishes(&bench.feed(Event::Ran(group, Verdict::Stopped))),
        [(Ending::Released { interrupted: true }, 0)]
    );
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(1, Settlement::Return)]);
    assert!(bench.core.is_drained());
}

#[test]
fn a_claim_that_arrives_during_a_drain_is_given_back_unrun() {
    let mut bench = Bench::new(|_| {});
    let group = claims(&bench.deliver(&[("a", "")]));
    bench.feed(Event::Drain);
    assert!(!bench.core.is_drained());
    let commands = bench.feed(Event::Claimed(group.clone(), Ok(vec![claimed(1)])));
    assert!(runs(&commands).is_empty());
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&group))), [(1, Settlement::Return)]);
}

/// Long delays, and short ones beyond half of the prefetch, are waited for in the broker: a copy is
/// confirmed, then the row says so, then the original is acked.
#[test]
fn a_long_delay_is_a_confirmed_copy_before_the_row_and_the_row_before_the_ack() {
    let mut bench = Bench::new(|policy| policy.retry.initial_interval = Duration::from_secs(60));
    let group = bench.run_one("a", 1);
    let commands = bench.feed(Event::Ran(group, retry()));
    let Some(Command::Publish(_, letter)) = commands.first() else { panic!("{commands:?}") };
    assert_eq!((letter.attempt, letter.purpose), (1, Purpose::Delay(Duration::from_secs(60))));
    assert!(finishes(&commands).is_empty() && settled(&commands).is_empty());
    let commands = bench.feed(Event::Published(group, Ok(())));
    assert_eq!(finishes(&commands), [(failed(true, 60), 0)]);
    assert!(settled(&commands).is_empty());
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(1, Settlement::Ack)]);
    assert_eq!(bench.core.in_flight(), 0);
}

/// A new queue may refuse its first messages, and a broker that is away may be back at any time.
#[test]
fn a_copy_that_is_refused_is_tried_again_while_its_delay_lasts_and_then_waits_here() {
    let mut bench = Bench::new(|policy| policy.retry.initial_interval = Duration::from_secs(10));
    let group = bench.run_one("a", 1);
    bench.feed(Event::Ran(group, retry()));
    let start = bench.now;
    loop {
        let commands = bench.feed(Event::Published(group, Err("nacked".into())));
        assert!(settled(&commands).is_empty());
        if let [(Ending::Failed { parked, .. }, _)] = &finishes(&commands)[..] {
            assert!(!parked);
            break;
        }
        let wake = bench.core.next_wake().expect("a timer");
        let commands = bench.after(wake.duration_since(bench.now));
        assert!(matches!(commands[..], [Command::Publish(..)]), "{commands:?}");
    }
    bench.feed(recorded(&[group]));
    let wake = bench.core.next_wake().expect("a timer");
    assert_eq!(wake.duration_since(start), Duration::from_secs(10), "its attempt comes when it was due");
    assert_eq!(claims(&bench.after(wake.duration_since(bench.now))).len(), 1);
}

#[test]
fn of_many_failing_messages_only_half_of_the_prefetch_waits_here() {
    let mut bench = Bench::new(|policy| (policy.prefetch, policy.concurrency) = (10, 10));
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let groups = claims(&bench.deliver(&messages));
    bench.feed(Event::Claimed(groups.clone(), Ok(vec![claimed(1); 10])));
    let mut published = 0;
    for group in groups {
        let commands = bench.feed(Event::Ran(group, retry()));
        published += commands.iter().filter(|c| matches!(c, Command::Publish(..))).count();
        if !finishes(&commands).is_empty() {
            bench.feed(recorded(&[group]));
        }
    }
    assert_eq!(published, 5);
}

#[test]
fn the_freshest_of_several_copies_speaks_for_them() {
    assert!(Origin::Redelivered < Origin::Sequel(1) && Origin::Sequel(1) < Origin::Sequel(2));
    assert!(Origin::Sequel(u32::MAX) < Origin::Fresh);
}

#[test]
fn a_superseded_delivery_is_acked() {
    let mut bench = Bench::new(|_| {});
    let group = claims(&bench.deliver(&[("a", "")]));
    let commands = bench.feed(Event::Claimed(group, Ok(vec![Claim::Superseded])));
    assert_eq!(settled(&commands), [(1, Settlement::Ack)]);
}

/// Nothing lies in a dead-letter queue yet when the row is written, and the ledger is not told so.
#[test]
fn a_rejected_message_is_dead_without_a_copy() {
    let mut bench = Bench::new(|policy| policy.dead_letter = DeadLetter::Reject);
    let group = bench.run_one("a", 1);
    let commands = bench.feed(Event::Ran(group, Verdict::GiveUp { error: "e".into() }));
    assert_eq!(finishes(&commands), [(Ending::Dead { error: "gave-up: e".into(), copied: false }, 0)]);
    assert_eq!(settled(&bench.feed(recorded(&[group]))), [(1, Settlement::Reject)]);
}
