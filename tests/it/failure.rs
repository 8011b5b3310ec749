//! When it fails: attempts, delays in the worker and in the broker, dead letters, and their order.

use std::time::{Duration, Instant};

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable, LongString},
};

use crate::harness::{LIMIT, World, header, until};

/// Records each attempt, and fails until the one named.
fn fails_until(world: &World, attempt: u32) -> String {
    world.script(&format!(
        r#"echo "$ACKONCE_KEY $ACKONCE_ATTEMPT" >> effects; echo "no luck" >&2; [ "$ACKONCE_ATTEMPT" = {attempt} ]"#
    ))
}

fn id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

/// K06, K17: a message that waits in a delay queue is not taken for its own duplicate. The handler
/// sees the same key and a growing attempt, on quorum and classic queues (K43: round after round).
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_in_the_broker_comes_back_as_what_it_was() {
    for kind in ["quorum", "classic"] {
        let world = World::without_queue("parked").await;
        world.declare(&world.queue, kind).await;
        let mut headers = FieldTable::default();
        headers.insert("n".into(), AMQPValue::LongLongInt(7));
        // A broker that found this header on a republished message would route a copy there as well.
        let elsewhere = format!("{}.elsewhere", world.queue);
        world.declare_with(&elsewhere, FieldTable::default()).await;
        let list = FieldArray::from(vec![AMQPValue::LongString(LongString::from(elsewhere.as_str()))]);
        headers.insert("CC".into(), AMQPValue::FieldArray(list));
        world.publish_with(b"b\0dy", id("a").with_headers(headers).with_type("t".into())).await;
        assert_eq!(world.take_all(&elsewhere).await.len(), 1, "the sender's own copy");

        let handler = world.script(
            r#"printf "%s\n" "$ACKONCE_KEY $ACKONCE_ATTEMPT $ACKONCE_ROUTING_KEY $ACKONCE_TYPE $(od -An -c)" >> effects
               echo "$ACKONCE_HEADERS" >> headers; [ "$ACKONCE_ATTEMPT" = 5 ]"#,
        );
        // A prefetch of 1 leaves no room for waiting in the worker.
        let worker = world.worker(&[
            "--prefetch",
            "1",
            "--concurrency",
            "1",
            "--queue-type",
            kind,
            "--initial-interval",
            "50ms",
            "--multiplier",
            "1",
            "--jitter",
            "0",
            "--exec",
            &handler,
        ]);
        world.until_state("done", 1).await;
        assert_eq!(world.ready(&format!("{}.retry.50", world.queue)).await, 0);
        world.stop_and_find_nothing_left(worker).await;
        let queue = &world.queue;
        let expected: Vec<String> = (1..=5).map(|n| format!("a {n} {queue} t    b  \\0   d   y")).collect();
        assert_eq!(world.effects(), expected);
        let headers = world.lines("headers");
        assert_eq!(headers[0], headers[4], "what the handler sees of the headers never changes");
        assert_eq!(world.rows()[0].duplicates, 0);
        assert_eq!(world.ready(&elsewhere).await, 0, "it was routed again");
        assert_eq!(world.ready(&format!("{queue}.dead")).await, 0);
        for name in [elsewhere, format!("{queue}.retry.50"), format!("{queue}.dead"), queue.clone()] {
            world.delete(&name).await;
        }
    }
}

/// K42: a long delay does not hold up a short one.
#[tokio::test(flavor = "multi_thread")]
async fn each_delay_has_a_queue_of_its_own() {
    let world = World::new("delays").await;
    let slow = world.worker(&[
        "--prefetch",
        "1",
        "--concurrency",
        "1",
        "--initial-interval",
        "1h",
        "--max-interval",
        "1h",
        "--jitter",
        "0",
        "--exec",
        &fails_until(&world, 2),
    ]);
    world.publish("slow", b"x").await;
    let hour = format!("{}.retry.3600000", world.queue);
    world.until_state("failed", 1).await;
    slow.terminate().await.expect_exit(0);
    assert_eq!(world.ready(&hour).await, 1);
    let quick = world.worker(&[
        "--prefetch",
        "1",
        "--concurrency",
        "1",
        "--initial-interval",
        "100ms",
        "--jitter",
        "0",
        "--exec",
        &fails_until(&world, 2),
    ]);
    world.publish("quick", b"x").await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(quick).await;
    assert_eq!(world.effects(), ["slow 1", "quick 1", "quick 2"]);
    assert_eq!(world.ready(&hour).await, 1, "it waits on");
}

/// K38: a failing message follows its backoff, and neighbours pass it.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_message_neither_spins_nor_holds_up_others() {
    let world = World::new("spin").await;
    world.publish("bad", b"x").await;
    for number in 0..10 {
        world.publish(&number.to_string(), b"x").await;
    }
    let handler = world.script(r#"echo "$ACKONCE_KEY" >> effects; [ "$ACKONCE_KEY" != bad ]"#);
    let start = Instant::now();
    let worker = world.worker(&[
        "--concurrency",
        "1",
        "--max-attempts",
        "3",
        "--initial-interval",
        "300ms",
        "--jitter",
        "0",
        "--exec",
        &handler,
    ]);
    world.until_state("dead", 1).await;
    assert!(start.elapsed() >= Duration::from_millis(900), "300 ms and 600 ms: {:?}", start.elapsed());
    world.until_state("done", 10).await;
    world.stop_and_find_nothing_left(worker).await;
    let effects = world.effects();
    assert_eq!(effects.iter().filter(|key| *key == "bad").count(), 3);
    assert_ne!(effects.last().map(String::as_str), Some("9"), "the bad one came last: {effects:?}");
}

/// K41: what a sender writes into the broker's own headers decides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_death_decides_nothing() {
    let world = World::new("forged").await;
    let mut death = FieldTable::default();
    death.insert("count".into(), AMQPValue::LongLongInt(99));
    death.insert("queue".into(), AMQPValue::LongString(LongString::from(world.queue.as_str())));
    let deaths = FieldArray::from(vec![AMQPValue::FieldTable(death)]);
    for (key, value) in [
        ("table", AMQPValue::FieldArray(deaths)),
        ("text", AMQPValue::LongString(LongString::from("x"))),
        ("number", AMQPValue::LongLongInt(-1)),
    ] {
        let mut headers = FieldTable::default();
        headers.insert("x-death".into(), value.clone());
        headers.insert("x-ackonce-retry".into(), value);
        world.publish_with(b"x", id(key).with_headers(headers)).await;
    }
    let worker = world.worker(&["--initial-interval", "10ms", "--exec", &fails_until(&world, 2)]);
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects().len(), 6, "each failed once: {:?}", world.effects());
}

/// K44: the sender's expiration deletes nothing that waits or lies.
#[tokio::test(flavor = "multi_thread")]
async fn an_expiration_ends_with_the_first_delivery() {
    let world = World::new("expires").await;
    let worker = world.worker(&[
        "--prefetch",
        "1",
        "--concurrency",
        "1",
        "--max-attempts",
        "2",
        "--initial-interval",
        "900ms",
        "--jitter",
        "0",
        "--exec",
        &fails_until(&world, 9),
    ]);
    // It is delivered long before it expires.
    worker.until_said("consuming from").await;
    world.publish_with(b"x", id("a").with_expiration("400".into())).await;
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let dead = format!("{}.dead", world.queue);
    // Longer than it would have lived.
    tokio::time::sleep(Duration::from_millis(900)).await;
    let letters = world.take_all(&dead).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(header(&letters[0], "x-ackonce-expiration"), "400");
    assert_eq!(world.effects(), ["a 1", "a 2"]);
}

/// K45: while the dead-letter queue takes nothing, the original is kept; after that, exactly one
/// copy lies there.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_refused_is_kept_and_tried_again() {
    let world = World::without_queue("refuses").await;
    let dead = format!("{}.dead", world.queue);
    world.declare_with(&world.queue, FieldTable::default()).await;
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(0));
    full.insert("x-overflow".into(), AMQPValue::LongString(LongString::from("reject-publish")));
    world.declare_with(&dead, full).await;
    world.publish("a", b"x").await;
    world.publish("b", b"x").await;
    let handler = world.script(r#"[ "$ACKONCE_KEY" = b ] || exit 65"#);
    let worker = world.worker(&["--exec", &handler]);
    worker.until_said("cannot publish a copy").await;
    world.until_state("done", 1).await;
    assert_eq!(world.states()[0], ("a".into(), "processing".into()), "not dead before it is confirmed");
    world.delete(&dead).await;
    world.until_state("dead", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("copies can be published again");
    assert_eq!(world.ready(&world.queue).await, 0);
    assert_eq!(world.take_all(&dead).await.len(), 1);
}

/// K47: neither a long error text nor the sender's own headers keep a message out of the dead-letter queue.
#[tokio::test(flavor = "multi_thread")]
async fn long_texts_and_large_headers_fit_into_a_dead_letter() {
    let world = World::new("large").await;
    world.publish("long", b"x").await;
    for (key, size) in [("large", 120 * 1024), ("larger", 130_600)] {
        let mut headers = FieldTable::default();
        headers.insert("big".into(), AMQPValue::LongString(LongString::from("h".repeat(size).as_str())));
        world.publish_with(b"x", id(key).with_headers(headers)).await;
    }
    let handler = world.script("head -c 1000000 /dev/zero | tr '\\0' e >&2; echo 'the end' >&2; exit 65");
    let worker = world.worker(&["--exec", &handler]);
    world.until_state("dead", 3).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert_eq!(ended.said.matches("consuming from").count(), 1, "the connection held: {}", ended.said);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(letters.len(), 3);
    for letter in letters {
        assert_eq!(header(&letter, "x-ackonce-reason"), "gave-up");
        assert!(header(&letter, "x-ackonce-error").len() <= 1024);
    }
}

/// K39: a message that kills its worker each time is given up after its attempts; the others run.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_the_worker_ends_in_the_dead_letter_queue() {
    let world = World::new("killer").await;
    world.publish("killer", b"x").await;
    for number in 0..5 {
        world.publish(&number.to_string(), b"x").await;
    }
    let handler =
        world.script(r#"echo "$ACKONCE_KEY" >> effects; [ "$ACKONCE_KEY" != killer ] || kill -9 $PPID"#);
    let arguments = ["--concurrency", "1", "--max-attempts", "3", "--exec", &handler];
    for _ in 0..3 {
        let ended = world.worker(&arguments).ended(LIMIT).await;
        assert_eq!(ended.status.code(), None, "killed: {}", ended.said);
    }
    let worker = world.worker(&arguments);
    world.until_state("dead", 1).await;
    world.until_state("done", 5).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects().iter().filter(|key| *key == "killer").count(), 3);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(header(&letters[0], "x-ackonce-reason"), "max-attempts");
}

/// At most once, for those who want that.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_message_can_be_given_up_instead_of_run_again() {
    let world = World::new("atmost").await;
    world.publish("a", b"x").await;
    let arguments = ["--on-interrupted", "dead-letter", "--exec"];
    let killer = world.script(r#"echo >> effects; kill -9 $PPID"#);
    world.worker(&[arguments.as_slice(), &[&killer]].concat()).ended(LIMIT).await;
    let worker = world.worker(&[arguments.as_slice(), &["true"]].concat());
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects().len(), 1);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(header(&letters[0], "x-ackonce-reason"), "interrupted");
}

/// A burst of failing messages neither starves good ones nor stays in the worker.
#[tokio::test(flavor = "multi_thread")]
async fn good_messages_pass_a_burst_of_failing_ones() {
    let world = World::new("burst").await;
    let lines: String = (0..1000).map(|n| format!("bad {n}\n")).collect();
    std::fs::write(world.path("burst"), lines).unwrap();
    let sent = crate::harness::ackonce()
        .args(["publish", "--url", &world.url, "--queue", &world.queue, "--lines"])
        .arg(world.path("burst"))
        .output()
        .unwrap();
    assert!(sent.status.success());
    world.publish("good", b"good").await;
    let handler = world.script(r#"read -r word rest; [ "$word" = good ] && echo done >> effects"#);
    let worker = world.worker(&[
        "--initial-interval",
        "30m",
        "--max-interval",
        "30m",
        "--jitter",
        "0",
        "--prefetch",
        "20",
        "--exec",
        &handler,
    ]);
    until("the good one is handled", LIMIT, async || world.effects() == ["done"]).await;
    world.until_state("failed", 1000).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.ready(&format!("{}.retry.1800000", world.queue)).await, 1000);
}

/// K75: a command that is gone pauses its worker, uses no attempt, and is found again when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_command_pauses_the_worker_and_burns_nothing() {
    let world = World::new("missing").await;
    let handler = world.handler(r#"echo "$ACKONCE_ATTEMPT" >> attempts"#, "");
    let worker = world.worker(&["--exec", &handler]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;
    let away = format!("{handler}.away");
    std::fs::rename(&handler, &away).unwrap();
    for number in 0..100 {
        world.publish(&number.to_string(), b"x").await;
    }
    worker.until_said("paused, no attempt is used").await;
    std::fs::rename(&away, &handler).unwrap();
    world.until_state("done", 101).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("the handler can start again");
    assert_eq!(ended.said.matches("paused").count(), 1, "{}", ended.said);
    assert!(world.lines("attempts").iter().all(|attempt| attempt == "1"));
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 0);

    let ended = world.worker(&["--exec", "/no/such/command"]).ended(LIMIT).await;
    ended.expect_exit(2).expect_said("/no/such/command");
}
