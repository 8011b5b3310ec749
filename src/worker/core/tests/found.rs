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
