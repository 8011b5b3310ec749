//! What the broker, or its operator, may take away from under a worker.

use lapin::types::{AMQPValue, FieldTable, LongString};

use crate::harness::{World, header};

const DROPS: &str = "the broker drops a message of this quorum queue";

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

async fn quorum_queue(world: &World, more: &[(&str, AMQPValue)]) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    for (name, value) in more {
        arguments.insert((*name).into(), value.clone());
    }
    world.declare_with(&world.queue, arguments).await;
}

/// K40: a queue that somebody else made may have a delivery limit and no way for what exceeds it. The
/// worker says so once, and works.
#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_queue_without_a_dead_letter_route_is_warned_of() {
    let limit = ("x-delivery-limit", AMQPValue::LongInt(3));
    let world = World::without_queue("drops").await;
    quorum_queue(&world, std::slice::from_ref(&limit)).await;
    let worker = world.worker(&["--log"]);
    worker.until_said("it has no dead-letter exchange of its own").await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    assert_eq!(worker.said().matches(DROPS).count(), 1);
    world.stop_and_find_nothing_left(worker).await;

    let world = World::without_queue("dropsto").await;
    let nowhere =
        [limit, ("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("nowhere"))];
    quorum_queue(&world, &nowhere).await;
    let worker = world.worker(&["--log"]);
    worker.until_said("which is not there").await;
    world.stop_and_find_nothing_left(worker).await;
}

/// No warning where none is due: the worker's own queue, a classic one, and where it may not look.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_drops_nothing_is_not_warned_of() {
    let own = World::without_queue("dropsnot").await;
    let classic = World::without_queue("dropsclassic").await;
    classic.declare_with(&classic.queue, FieldTable::default()).await;
    let blind = World::without_queue("dropsblind").await;
    quorum_queue(&blind, &[]).await;
    for (world, more) in [(own, "create"), (classic, "create"), (blind, "none")] {
        let worker = world.worker(&["--log", "--declare", more]);
        worker.until_consuming().await;
        world.publish("a", b"x").await;
        world.until_state("done", 1).await;
        let ended = worker.terminate().await;
        assert!(!ended.said.contains(DROPS), "{}", ended.said);
    }
}

/// K40: each crash counts as a delivery for all that was prefetched. What exceeds the limit, the
/// worker's own queue keeps in its dead-letter queue; and sent back from there, it runs.
#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_delivery_limit_is_kept_in_the_dead_letter_queue() {
    let world = World::without_queue("limit").await;
    let dead = format!("{}.dead", world.queue);
    world.declare_with(&dead, FieldTable::default()).await;
    let route = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead))];
    quorum_queue(&world, &[&route[..], &[("x-delivery-limit", AMQPValue::LongInt(1))]].concat()).await;
    // It takes its worker down with it, and an innocent neighbour has been prefetched each time.
    let killer = world.handler("kill -9 $PPID; exit 1", "");
    world.publish("killer", b"x").await;
    world.publish("innocent", b"x").await;
    let mut crashes = 0;
    while world.ready(&dead).await < 2 {
        crashes += 1;
        assert!(crashes < 10, "they are still not in the dead-letter queue");
        let mut worker = world.worker(&["--concurrency", "1", "--prefetch", "2", "--exec", &killer]);
        crate::harness::until("it crashes, or nothing is left", crate::harness::LIMIT, async || {
            !worker.is_running() || world.ready(&dead).await == 2
        })
        .await;
        worker.kill();
    }
    let kept = world.take_all(&dead).await;
    let mut ids: Vec<_> =
        kept.iter().map(|m| m.properties.message_id().clone().unwrap().to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["innocent", "killer"]);
    assert_eq!(header(&kept[0], "x-first-death-reason"), "delivery_limit");
    assert!(!world.rows().iter().any(|row| row.key == "innocent"), "it was never claimed");

    world.publish("innocent", b"x").await;
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.until_state("done", 1).await;
    assert_eq!(world.effects(), ["innocent"]);
    world.stop_and_find_nothing_left(worker).await;
}

/// A delay queue is deleted with what waits in it. Those messages are lost, and the ledger names them:
/// sent again under their ids, they run as their next attempts.
#[tokio::test(flavor = "multi_thread")]
async fn messages_in_a_deleted_delay_queue_are_named_by_the_ledger() {
    let world = World::new("delaygone").await;
    let handler = world.handler("[ -e fixed ] || exit 1", "");
    let hour = ["--initial-interval", "1h", "--max-interval", "1h", "--jitter", "0", "--exec", &handler];
    let worker = world.worker(&hour);
    world.publish("a", b"x").await;
    world.until_state("failed", 1).await;
    let delay = format!("{}.retry.3600000", world.queue);
    crate::harness::until("it waits", crate::harness::LIMIT, async || world.ready(&delay).await == 1).await;
    world.delete(&delay).await;

    let mut show = crate::harness::ackonce();
    show.args(["ledger", "show", "a", "--ledger"]).arg(world.path("ackonce.db"));
    let shown = String::from_utf8(show.output().unwrap().stdout).unwrap();
    assert!(shown.contains("waits for attempt 2, which is due in 59m"), "{shown}");
    assert!(shown.contains("failures:       attempt 1, "), "{shown}");

    world.touch("fixed");
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    assert_eq!((world.effects(), world.rows()[0].attempts), (vec!["a".to_owned()], 2));
    world.stop_and_find_nothing_left(worker).await;
}
