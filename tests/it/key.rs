//! What identifies a message on the wire, and what becomes of one that nothing identifies.

use lapin::{
    BasicProperties,
    types::{AMQPValue, ByteArray, FieldTable, LongString},
};

use crate::harness::{LIMIT, World, header, until};

fn with_id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

fn with_header(name: &str, value: AMQPValue) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert(name.into(), value);
    BasicProperties::default().with_headers(headers)
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// K09, K10: empty, blank and absent ids are six missing keys, never duplicates; neighbours run.
#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_key_are_dead_lettered_and_stop_nobody() {
    let world = World::new("nokey").await;
    for body in ["1", "2"] {
        world.publish_with(body.as_bytes(), with_id("")).await;
        world.publish_with(body.as_bytes(), BasicProperties::default()).await;
        world.publish_with(body.as_bytes(), with_id(" ")).await;
    }
    world.publish("b", b"x").await;
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.until_state("done", 1).await;
    let dead = format!("{}.dead", world.queue);
    until("six dead letters", LIMIT, async || world.ready(&dead).await == 6).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("message-id is absent").expect_said("duplicates=0");
    assert_eq!(world.effects(), ["b"]);
    assert_eq!(world.ready(&world.queue).await, 0);
    for letter in world.take_all(&dead).await {
        assert_eq!(header(&letter, "x-ackonce-reason"), "missing-key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_key_can_run_each_time_or_by_their_body() {
    for (policy, effects) in [("process", 3), ("hash-body", 2)] {
        let world = World::new("nokey").await;
        for body in ["1", "1", "2"] {
            world.publish_with(body.as_bytes(), BasicProperties::default()).await;
        }
        let worker = world.worker(&["--on-missing-key", policy, "--exec", &world.handler("", "")]);
        until("all are settled", LIMIT, async || {
            let rows = world.rows();
            rows.len() == effects
                && rows.iter().map(|row| 1 + row.duplicates).sum::<i64>() == 3
                && rows.iter().all(|row| row.state == "done")
        })
        .await;
        world.stop_and_find_nothing_left(worker).await;
        assert_eq!(world.effects().len(), effects, "{policy}");
    }
}

/// K11: a header as the key, in every form that senders give it.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_is_a_key_whatever_its_type() {
    let world = World::new("header").await;
    for value in [
        text("42"),
        AMQPValue::LongLongInt(42),
        AMQPValue::ByteArray(ByteArray::from(b"42".as_slice())),
        text("43"),
    ] {
        world.publish_with(b"x", with_header("x-message-id", value)).await;
    }
    let worker = world.worker(&["--key", "header:x-message-id", "--exec", &world.handler("", "")]);
    until("all are settled", LIMIT, async || {
        world.rows().iter().map(|row| 1 + row.duplicates).sum::<i64>() == 4
    })
    .await;
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut effects = world.effects();
    effects.sort();
    assert_eq!(effects, ["42", "43"]);
}

/// The unique pair of a business key and a type.
#[tokio::test(flavor = "multi_thread")]
async fn a_composite_key_is_the_pair() {
    let world = World::new("pair").await;
    for (order, kind) in [("7", "created"), ("7", "paid"), ("7", "paid"), ("8", "paid")] {
        world.publish_with(b"x", with_header("biz_key", text(order)).with_type(kind.into())).await;
    }
    let worker = world.worker(&[
        "--key",
        "header:biz_key",
        "--key",
        "property:type",
        "--exec",
        &world.handler("", ""),
    ]);
    until("all are settled", LIMIT, async || {
        world.rows().iter().map(|row| 1 + row.duplicates).sum::<i64>() == 4
    })
    .await;
    world.until_state("done", 3).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut effects = world.effects();
    effects.sort();
    assert_eq!(effects, [r#"["7","created"]"#, r#"["7","paid"]"#, r#"["8","paid"]"#]);
}

/// The same key with another body is not a duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_a_done_key_follows_the_policy() {
    for (policy, effects, dead) in [("dead-letter", 1, 1), ("ack", 1, 0), ("process", 2, 0)] {
        let world = World::new("mismatch").await;
        let worker = world.worker(&["--on-mismatch", policy, "--exec", &world.handler("", "")]);
        world.publish("a", b"first").await;
        world.until_state("done", 1).await;
        for _ in 0..2 {
            world.publish("a", b"second").await;
        }
        world.publish("last", b"x").await;
        world.until_state("done", effects + 1).await;
        let dead_queue = format!("{}.dead", world.queue);
        // Two copies that are here together are one dead letter; one after the other, two.
        until("dead letters", LIMIT, async || (dead..=2 * dead).contains(&world.ready(&dead_queue).await))
            .await;
        world.stop_and_find_nothing_left(worker).await;
        assert_eq!(world.effects().iter().filter(|key| key.starts_with('a')).count(), effects, "{policy}");
        for letter in world.take_all(&dead_queue).await {
            assert_eq!(letter.data, b"second");
            assert_eq!(header(&letter, "x-ackonce-reason"), "mismatch");
        }
    }
}
