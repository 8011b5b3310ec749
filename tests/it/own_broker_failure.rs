//! Failures beside a broker that is restarted, blocked, impatient, or cut off: each has its own.

use std::{collections::BTreeSet, time::Duration};

use lapin::types::{AMQPValue, FieldTable, LongString};

use crate::harness::{LIMIT, Node, World, ackonce, until};

/// 1,000 messages, a tenth of which fail twice and a tenth always, while broker and worker are
/// restarted in the middle: each ends `done` or in the dead-letter queue, exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_a_thousand_messages_end_done_or_dead_over_restarts() {
    let node = Node::start_new();
    let world = World::at(&node.url, "thousand").await;
    world.declare(&world.queue, "quorum").await;
    let lines: String = (0..1000).map(|n| format!("{n}\n")).collect();
    std::fs::write(world.path("lines"), lines).unwrap();
    let sent = ackonce()
        .args(["publish", "--url", &world.url, "--queue", &world.queue, "--id-prefix", "m", "--lines"])
        .arg(world.path("lines"))
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let handler = world.script(
        r#"read -r n; echo "$n $ACKONCE_ATTEMPT" >> attempts
           case $((n % 10)) in 1) [ "$ACKONCE_ATTEMPT" -gt 2 ] || exit 1 ;; 2) exit 1 ;; esac
           echo "$n" >> effects"#,
    );
    let arguments =
        ["--max-attempts", "4", "--initial-interval", "200ms", "--prefetch", "30", "--exec", &handler];
    let worker = world.worker(&arguments);
    until("a quarter is done", LIMIT, async || world.effects().len() >= 250).await;
    worker.terminate().await.expect_exit(0);
    let worker = world.worker(&arguments);
    until("half is done", LIMIT, async || world.effects().len() >= 500).await;
    node.stop();
    node.start();
    until("more is done", LIMIT * 2, async || world.effects().len() >= 700).await;
    worker.terminate().await.expect_exit(0);
    let worker = world.worker(&arguments);
    until("all is done or dead", LIMIT * 2, async || {
        let rows = world.rows();
        let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
        (count("done"), count("dead")) == (900, 100)
    })
    .await;
    worker.terminate().await.expect_exit(0);

    let again = World::at(&node.url, "probe").await;
    assert_eq!(again.ready(&world.queue).await, 0);
    let dead: Vec<String> = again
        .take_all(&format!("{}.dead", world.queue))
        .await
        .iter()
        .map(|letter| String::from_utf8_lossy(&letter.data).into_owned())
        .collect();
    let distinct: BTreeSet<&String> = dead.iter().collect();
    let expected: BTreeSet<String> = (0..1000).filter(|n| n % 10 == 2).map(|n| n.to_string()).collect();
    assert_eq!(distinct, expected.iter().collect());
    assert_eq!(dead.len(), 100, "a dead letter lies there twice");
    let mut effects = world.effects();
    let runs = effects.len();
    effects.sort();
    effects.dedup();
    assert_eq!((runs, effects.len()), (900, 900), "an effect came twice or not at all");
}

/// K28: the broker closes the channel of a delivery that is not acked in time. The worker says why and
/// what to do, goes on, and the handler is not run twice.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_an_impatient_broker_is_named_and_survived() {
    let node = Node::start_new();
    node.ctl(&["eval", "application:set_env(rabbit, consumer_timeout, 5000)."]);
    let world = World::at(&node.url, "impatient").await;
    let handler = world.handler(crate::harness::SLOW, "");
    let worker = world.worker(&["--timeout", "10m", "--exec", &handler]);
    worker.until_consuming().await;
    world.publish("slow", b"x").await;
    // The broker looks about once a minute.
    until("the broker loses patience", LIMIT * 5, async || worker.said().contains("consumer_timeout")).await;
    until("it consumes again", LIMIT, async || worker.said().matches("consuming from").count() >= 2).await;
    world.publish("quick", b"x").await;
    world.touch("go");
    world.until_state("done", 2).await;
    worker.terminate().await.expect_exit(0);
    assert_eq!(world.lines("started").len(), 2);
    assert_eq!(world.effects().len(), 2);
    let again = World::at(&node.url, "probe").await;
    assert_eq!(again.ready(&world.queue).await, 0);
}

/// K54: a memory alarm blocks publishing. A dead letter waits; acks of other messages and a stop do not.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_an_alarm_blocks_dead_letters_and_nothing_else() {
    let node = Node::start_new();
    let world = World::at(&node.url, "alarm").await;
    let handler = world.script(r#"while [ ! -e go ]; do sleep 0.05; done; [ "$ACKONCE_KEY" != bad ] || exit 65; echo "$ACKONCE_KEY" >> effects"#);
    let worker = world.worker(&["--prefetch", "5", "--concurrency", "2", "--exec", &handler]);
    worker.until_consuming().await;
    world.publish("bad", b"x").await;
    for number in 0..20 {
        world.publish(&number.to_string(), b"x").await;
    }
    node.ctl(&["set_vm_memory_high_watermark", "0.0001"]);
    world.touch("go");
    world.until_state("done", 20).await;
    worker.until_said("cannot publish a copy").await;
    let probe = World::at(&node.url, "probe").await;
    assert_eq!(probe.ready(&world.queue).await, 0);
    assert_eq!(world.states().iter().filter(|(_, state)| state == "processing").count(), 1);
    worker.terminate().await.expect_exit(0);
    until("the bad one is back", LIMIT, async || probe.ready(&world.queue).await == 1).await;

    let worker = world.worker(&["--prefetch", "5", "--concurrency", "2", "--exec", &handler]);
    worker.until_consuming().await;
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    world.until_state("dead", 1).await;
    worker.terminate().await.expect_exit(0);
    // The copy that met the alarm may have been taken in all the same, without a confirm.
    let letters = probe.take_all(&format!("{}.dead", world.queue)).await;
    assert!((1..=2).contains(&letters.len()) && letters.iter().all(|letter| letter.data == b"x"));
    assert_eq!(probe.ready(&world.queue).await, 0);
}

/// K46: rejecting needs a way that rejected messages go. It is looked for before anything is consumed.
#[tokio::test(flavor = "multi_thread")]
async fn rejecting_without_a_dead_letter_route_is_refused() {
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let reject = ["--dead-letter", "reject", "--exec", "sh", "-c", "exit 65"];
    let world = World::without_queue("reject").await;
    world.declare_with(&world.queue, FieldTable::default()).await;
    world.publish("a", b"x").await;
    let ended = world.worker(&reject).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("would be dropped").expect_said("dead_letter_exchange");
    assert_eq!(world.ready(&world.queue).await, 1);

    let broken = World::without_queue("broken").await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), text("no.such.exchange"));
    broken.declare_with(&broken.queue, arguments).await;
    broken.publish("a", b"x").await;
    let ended = broken.worker(&reject).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("no.such.exchange");
    assert_eq!(broken.ready(&broken.queue).await, 1);

    let good = World::new("good").await;
    good.publish("a", b"x").await;
    let worker = good.worker(&reject);
    good.until_state("dead", 1).await;
    until("it is rejected", LIMIT, async || good.ready(&format!("{}.dead", good.queue)).await == 1).await;
    good.stop_and_find_nothing_left(worker).await;
}

/// K52: a queue that another consumer holds exclusively is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_a_queue_in_exclusive_use_is_waited_for() {
    let world = World::without_queue("exclusive").await;
    world.declare_with(&world.queue, FieldTable::default()).await;
    let (connection, channel) = crate::harness::connect(&world.url).await;
    let options = lapin::options::BasicConsumeOptions { exclusive: true, ..Default::default() };
    channel
        .basic_consume(world.queue.as_str().into(), "other".into(), options, FieldTable::default())
        .await
        .unwrap();
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    worker.until_said("exclusive").await;
    connection.close(200, "OK".into()).await.unwrap();
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
}

/// A worker that is cut off while its messages wait: nothing is run early, nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_a_lost_session_keeps_delays_and_attempts() {
    let node = Node::start_new();
    let world = World::at(&node.url, "keeps").await;
    let handler = world.script(r#"echo "$ACKONCE_ATTEMPT" >> effects; [ "$ACKONCE_ATTEMPT" = 2 ]"#);
    let worker = world.worker(&["--initial-interval", "4s", "--jitter", "0", "--exec", &handler]);
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    world.until_state("failed", 1).await;
    let failed = std::time::Instant::now();
    node.ctl(&["close_all_connections", "test"]);
    until("it consumes again", LIMIT, async || worker.said().matches("consuming from").count() >= 2).await;
    world.until_state("done", 1).await;
    assert!(failed.elapsed() >= Duration::from_millis(3500), "it ran early: {:?}", failed.elapsed());
    worker.terminate().await.expect_exit(0);
    assert_eq!(world.effects(), ["1", "2"]);
}
