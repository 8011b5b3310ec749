//! The main job: each message handled once, whatever comes twice, and acked after that is durable.

use std::fs;

use lapin::{
    BasicProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions},
    types::FieldTable,
};

use crate::harness::{LIMIT, Process, Row, World, ackonce, header, publish, until};

/// 10,000 messages, each sent three times, in random order, over two processes on one ledger.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_thousand_copies_over_two_workers_have_ten_thousand_effects() {
    let world = World::new("thirty").await;
    let handler = world.script(r#"echo "$ACKONCE_KEY" >> effects"#);
    let sent = ackonce()
        .args(["publish", "--url", &world.url, "--queue", &world.queue, "x"])
        .args(["--count", "10000", "--repeat", "3", "--shuffle"])
        .output()
        .expect("publish runs");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));

    let quiet = |command: &mut std::process::Command| {
        command.env("ACKONCE_LOG_LEVEL", "info");
    };
    let arguments = ["--prefetch", "200", "--concurrency", "8", "--exec", &handler];
    let one = world.worker_with(quiet, &arguments);
    let two = world.worker_with(quiet, &arguments);
    until("30,000 deliveries are settled", LIMIT * 10, async || {
        let rows = world.rows();
        rows.iter().filter(|row| row.state == "done").count() == 10_000
            && rows.iter().map(|row| row.duplicates).sum::<i64>() == 20_000
    })
    .await;
    let one = one.terminate().await;
    let two = two.terminate().await;
    for ended in [one, two] {
        ended.expect_exit(0);
        assert!(!ended.said.contains("ERROR"), "{}", ended.said);
        assert!(!ended.said.contains("handled=0"), "both take part: {}", ended.said);
    }
    let mut effects = world.effects();
    assert_eq!(effects.len(), 10_000);
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 10_000, "an effect came twice");
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// K16: what comes twice is normal, and said at `debug` only.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_copies_are_one_effect_and_no_error() {
    let world = World::new("hundred").await;
    for _ in 0..100 {
        world.publish("a", b"x").await;
    }
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    until("99 duplicates", LIMIT, async || world.rows().first().is_some_and(|row| row.duplicates == 99))
        .await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("handled=1 duplicates=99");
    assert!(!ended.said.contains("ERROR") && !ended.said.contains("WARN"), "{}", ended.said);
    assert_eq!(world.effects(), ["a"]);
    let row = Row { key: "a".into(), state: "done".into(), attempts: 1, duplicates: 99 };
    assert_eq!(world.rows(), [row]);
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// K08: one message in two queues is two keys, on one ledger and in one process.
#[tokio::test(flavor = "multi_thread")]
async fn one_message_in_two_queues_runs_both_handlers_once() {
    let world = World::new("fanout").await;
    let other = format!("{}.other", world.queue);
    let exchange = format!("{}.x", world.queue);
    world.declare(&other, "classic").await;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let exchange_name = || exchange.as_str().into();
    world
        .channel
        .exchange_declare(exchange_name(), ExchangeKind::Fanout, options, FieldTable::default())
        .await
        .unwrap();
    for queue in [&world.queue, &other] {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        world
            .channel
            .queue_bind(queue.as_str().into(), exchange_name(), "".into(), options, none)
            .await
            .unwrap();
    }
    let file = world.path("ackonce.toml");
    let text = format!(
        r#"
        [broker]
        url = "{}"
        [ledger]
        url = "sqlite:{}"
        [[worker]]
        queue = "{}"
        exec = ["{}"]
        [[worker]]
        queue = "{other}"
        exec = ["{}"]
        prefetch = 5
        concurrency = 1
        "#,
        world.url,
        world.path("ackonce.db").display(),
        world.queue,
        world.script("echo one >> effects"),
        world.script("echo two >> effects"),
    );
    fs::write(&file, text).expect("a file");
    let mut command = ackonce();
    command.args(["run", "--config"]).arg(&file);
    let worker = Process::start(command, world.folder.path());
    for copies in [0, 1] {
        publish(&world.channel, &exchange, "", b"x", BasicProperties::default().with_message_id("a".into()))
            .await;
        until("both have it", LIMIT, async || {
            let rows = world.rows();
            rows.len() == 2 && rows.iter().all(|row| row.state == "done" && row.duplicates == copies)
        })
        .await;
    }
    world.stop_and_find_nothing_left(worker).await;
    let mut effects = world.effects();
    effects.sort();
    assert_eq!(effects, ["one", "two"]);
    world.delete(&other).await;
    world.channel.exchange_delete(exchange_name(), ExchangeDeleteOptions::default()).await.unwrap();
}

/// K37, and what the handler is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_handler_gets_the_body_and_the_documented_variables_and_nothing_of_ours() {
    let world = World::new("told").await;
    world.publish("empty", b"").await;
    let mut headers = FieldTable::default();
    headers.insert("n".into(), lapin::types::AMQPValue::LongLongInt(7));
    let properties = BasicProperties::default()
        .with_message_id("full".into())
        .with_type("paid".into())
        .with_content_type("text/plain".into())
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_timestamp(u64::MAX)
        .with_headers(headers);
    world.publish_with("b\0dy\n".as_bytes(), properties).await;
    let handler = world.script(
        r#"cat > "body-$ACKONCE_KEY"; env | grep -E '^(ACKONCE_|AMQP_)' | sort > "env-$ACKONCE_KEY""#,
    );
    let secret = |command: &mut std::process::Command| {
        command.env("AMQP_URL", "amqp://nobody:secret@127.0.0.1:1").env("ACKONCE_RETENTION", "8d");
    };
    let worker = world.worker_with(secret, &["--exec", &handler]);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(fs::read(world.path("body-empty")).unwrap(), b"");
    assert_eq!(fs::read(world.path("body-full")).unwrap(), b"b\0dy\n");
    let queue = &world.queue;
    let expected = [
        "ACKONCE_ATTEMPT=1".to_owned(),
        "ACKONCE_CONTENT_TYPE=text/plain".into(),
        "ACKONCE_CORRELATION_ID=c".into(),
        "ACKONCE_EXCHANGE=".into(),
        r#"ACKONCE_HEADERS={"n":7}"#.into(),
        "ACKONCE_INTERRUPTED=0".into(),
        "ACKONCE_KEY=full".into(),
        "ACKONCE_MESSAGE_ID=full".into(),
        format!("ACKONCE_QUEUE={queue}"),
        "ACKONCE_REDELIVERED=0".into(),
        "ACKONCE_REPLY_TO=r".into(),
        format!("ACKONCE_ROUTING_KEY={queue}"),
        format!("ACKONCE_SCOPE={queue}"),
        "ACKONCE_TIMESTAMP=18446744073709551615".into(),
        "ACKONCE_TYPE=paid".into(),
    ];
    assert_eq!(world.lines("env-full"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_prints_each_message_as_one_line() {
    let world = World::new("log").await;
    world.publish("a", b"one\ntwo").await;
    world.publish("b", "zw\u{f6}lf".as_bytes()).await;
    world.publish("a", b"one\ntwo").await;
    let worker = world.worker(&["--log"]);
    until("a duplicate", LIMIT, async || world.rows().iter().map(|row| row.duplicates).sum::<i64>() == 1)
        .await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert_eq!(ended.printed, "a\tone\\ntwo\nb\tzwölf\n");
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// K48, K49: no more is taken than the prefetch says, on quorum and classic queues.
#[tokio::test(flavor = "multi_thread")]
async fn prefetch_bounds_what_is_taken() {
    for (kind, arguments, taken) in
        [("quorum", vec!["--prefetch", "5", "--concurrency", "2"], 5), ("classic", vec![], 64)]
    {
        let world = World::without_queue("prefetch").await;
        world.declare(&world.queue, kind).await;
        for number in 0..100 {
            world.publish(&number.to_string(), b"x").await;
        }
        let handler = world.script(r#"echo >> started; while [ ! -e go ]; do sleep 0.05; done"#);
        let worker = world.worker(&[arguments, vec!["--exec", &handler]].concat());
        until("handlers run", LIMIT, async || world.lines("started").len() >= 2).await;
        until("the prefetch is used", LIMIT, async || world.ready(&world.queue).await == 100 - taken).await;
        world.touch("go");
        world.until_state("done", 100).await;
        world.stop_and_find_nothing_left(worker).await;
    }
}

/// The promise is about handlers that succeed: one that fails is tried again, with its attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_is_tried_again_and_then_done() {
    let world = World::new("again").await;
    world.publish("a", b"x").await;
    let handler =
        world.script(r#"echo "$ACKONCE_ATTEMPT" >> effects; echo "no luck" >&2; [ "$ACKONCE_ATTEMPT" = 3 ]"#);
    let worker = world.worker(&["--initial-interval", "50ms", "--exec", &handler]);
    world.until_state("done", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("no luck");
    assert_eq!(world.effects(), ["1", "2", "3"]);
    assert_eq!(world.rows()[0].attempts, 3);
    assert_eq!(world.ready(&world.queue).await, 0);
}

/// What can not be handled is in the dead-letter queue, whole, with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_given_up_is_dead_lettered_whole() {
    let world = World::new("dead").await;
    let properties = BasicProperties::default()
        .with_message_id("a".into())
        .with_type("t".into())
        .with_expiration("600000".into());
    world.publish_with(b"body", properties).await;
    let worker = world.worker(&["--exec", "sh", "-c", "echo never >&2; exit 65"]);
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let dead = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].data, b"body");
    let properties = &dead[0].properties;
    assert_eq!(properties.message_id().as_ref().map(|id| id.as_str()), Some("a"));
    assert_eq!(properties.kind().as_ref().map(|kind| kind.as_str()), Some("t"));
    assert_eq!(*properties.expiration(), None, "it must not expire there");
    assert_eq!(header(&dead[0], "x-ackonce-reason"), "gave-up");
    assert_eq!(header(&dead[0], "x-ackonce-error"), "exit status 65: never");
    assert_eq!(header(&dead[0], "x-ackonce-expiration"), "600000");
    assert_eq!(header(&dead[0], "x-ackonce-routing-key"), world.queue);
}
