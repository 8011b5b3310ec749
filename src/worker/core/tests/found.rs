//! What the model (`tests/model`) has found, each as the shortest way there.

use super::*;

fn claim_requests(commands: &[Command]) -> (GroupId, ClaimRequest) {
    match commands {
        [Command::Claim(groups, requests)] => (groups[0], requests[0].clone()),
        other => panic!("{other:?}"),
    }
}

/// A copy that came back from its delay got a new key, and so had its attempts from 1 again, for ever.
#[test]
fn a_key_that_was_made_up_stays_over_a_delay() {
    let mut bench = Bench::new(|policy| {
        policy.on_missing_key = OnMissingKey::Process;
        policy.retry.initial_interval = Duration::from_secs(10);
    });
    let (group, first) = claim_requests(&bench.deliver(&[("", "x")]));
    bench.feed(Event::Claimed(vec![group], Ok(vec![claimed(1)])));
    let commands = bench.feed(Event::Ran(group, retry()));
    let [Command::Publish(_, letter)] = &commands[..] else { panic!("{commands:?}") };
    let (_, copy) = crate::worker::letter::compose(letter, "q");
    let message = Message { properties: copy.properties, body: copy.body.to_vec(), ..Message::default() };
    let delivery = Delivery { message: Arc::new(message), receipt: Receipt::new(SESSION, 2) };
    bench.feed(Event::Published(group, Ok(())));
    bench.feed(recorded(&[group]));
    let (_, second) = claim_requests(&bench.feed(Event::Delivered(vec![delivery])));
    assert_eq!((second.key, second.origin), (first.key, Origin::Sequel(1)));
}

/// Two processes. The reply to a claim is lost, then the session; the redelivered copy comes to the other one,
/// and met a claim of a living owner that had forgotten it: it waited until that process ended.
#[test]
fn a_claim_that_may_be_recorded_is_given_back_when_its_delivery_is_gone() {
    let lost = || Err(LedgerError::transient("the reply was lost"));
    for ends_before_the_reply in [false, true] {
        let mut bench = Bench::new(|_| {});
        let group = claims(&bench.deliver(&[("a", "x")]));
        if ends_before_the_reply {
            bench.feed(Event::SessionEnded);
            bench.feed(Event::Claimed(group.clone(), lost()));
        } else {
            bench.feed(Event::Claimed(group.clone(), lost()));
            bench.feed(Event::SessionEnded);
        }
        assert_eq!(claims(&bench.after(Duration::from_secs(1))), group, "what became of it?");
        let commands = bench.feed(Event::Claimed(group.clone(), Ok(vec![claimed(1)])));
        assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
        assert!(runs(&commands).is_empty());
        bench.feed(recorded(&group));
        assert_eq!(bench.core.in_flight(), 0);
    }
}

/// The same, but its copy is here again before the ledger answers.
#[test]
fn a_claim_that_may_be_recorded_runs_for_the_redelivered_copy() {
    let mut bench = Bench::new(|_| {});
    let group = claims(&bench.deliver(&[("a", "x")]));
    bench.feed(Event::Claimed(group.clone(), Err(LedgerError::transient("the reply was lost"))));
    bench.feed(Event::SessionEnded);
    assert!(claims(&bench.deliver(&[("a", "x")])).is_empty());
    assert_eq!(claims(&bench.after(Duration::from_secs(1))), group);
    assert_eq!(runs(&bench.feed(Event::Claimed(group.clone(), Ok(vec![claimed(1)])))), group);
}

/// The same for a handler inside the ledger: it is asked for without a run.
#[test]
fn an_apply_that_may_be_recorded_is_asked_for_without_a_run() {
    let mut bench = Bench::new(|_| {});
    bench.core = Core::new(bench.core.policy.clone(), 10, 0, bench.now).applying();
    let attempts_max = |commands: &[Command]| match commands {
        [Command::Apply(groups, requests)] => (groups.clone(), requests[0].attempts_max),
        other => panic!("{other:?}"),
    };
    let (group, most) = attempts_max(&bench.deliver(&[("a", "x")]));
    assert_eq!(most, 2);
    bench.feed(Event::Applied(group.clone(), Err(LedgerError::transient("the reply was lost"))));
    bench.feed(Event::SessionEnded);
    assert_eq!(attempts_max(&bench.after(Duration::from_secs(1))), (group.clone(), 0));
    let commands = bench.feed(Event::Applied(group, Ok(vec![Applied::Unrun(claimed(1))])));
    assert_eq!(finishes(&commands), [(Ending::Released { interrupted: false }, 0)]);
}

/// The ledger is away for longer than a delay, so the waiting copy comes back before the row says that it waits. It
/// joined its original, and both were acked.
#[test]
fn a_copy_that_is_back_before_its_finish_is_not_settled_with_its_original() {
    let mut bench = Bench::new(|policy| policy.retry.initial_interval = Duration::from_secs(10));
    let group = bench.run_one("a", 1);
    let commands = bench.feed(Event::Ran(group, retry()));
    let [Command::Publish(_, letter)] = &commands[..] else { panic!("{commands:?}") };
    let (_, copy) = crate::worker::letter::compose(letter, "q");
    let finish = bench.feed(Event::Published(group, Ok(())));
    assert_eq!(finishes(&finish), [(failed(true, 10), 0)]);
    bench.feed(Event::Finished(vec![group], Err(LedgerError::transient("disk full"))));

    let message = Message { properties: copy.properties, body: copy.body.to_vec(), ..Message::default() };
    let delivery = Delivery { message: Arc::new(message), receipt: Receipt::new(SESSION, 2) };
    bench.feed(Event::Delivered(vec![delivery]));
    assert_eq!(finishes(&bench.after(Duration::from_secs(10))), [(failed(true, 10), 0)]);
    let commands = bench.feed(recorded(&[group]));
    assert_eq!(settled(&commands), [(1, Settlement::Ack)], "the original alone");
    assert_eq!(claims(&commands).len(), 1, "the copy is the next attempt");
}
