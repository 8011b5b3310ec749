//! The forms of the command, against a real broker: what is sent is what arrives.

use std::{
    io::{BufRead, BufReader, Write},
    time::Duration,
};

use lapin::types::{AMQPValue, FieldArray, FieldTable};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Broker, ended, fresh, ids, run, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_arrives_persistent_and_its_id_is_printed() {
    let broker = Broker::shared().await;
    let queue = broker.queue("body").await;
    let ended = broker.publish(&["--queue", &queue, "hello"]).expect(0);
    assert_eq!(ended.stderr, "");
    let [delivery] = &broker.drain(&queue).await[..] else { panic!("one message") };
    assert_eq!(delivery.data, b"hello");
    assert_eq!(delivery.properties.delivery_mode(), &Some(2));
    let id = delivery.properties.message_id().as_ref().expect("an id");
    assert_eq!(ended.stdout, format!("{id}\n"));
    assert_eq!(uuid::Uuid::parse_str(id.as_str()).expect("a UUID").get_version_num(), 7);
    assert_eq!(broker.publish(&["--queue", &queue, "--quiet", "x"]).expect(0).stdout, "");
}

/// K37, and the ways of giving a body.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_from_stdin_and_files_byte_for_byte() {
    let broker = Broker::shared().await;
    let queue = broker.queue("sources").await;
    let bytes: Vec<u8> = (0..=255).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    broker.publish_from(&["--queue", &queue, "-"], b"").expect(0);
    broker.publish_from(&["--queue", &queue, "-"], &bytes).expect(0);
    broker.publish(&["--queue", &queue, "--file", file.path().to_str().unwrap()]).expect(0);
    broker.publish_from(&["--queue", &queue, "--file", "-"], b"in\n").expect(0);
    broker.publish(&["--queue", &queue, "--", "-dash"]).expect(0);
    let bodies: Vec<_> = broker.drain(&queue).await.into_iter().map(|d| d.data).collect();
    assert_eq!(bodies, [&b""[..], &bytes, &bytes, b"in\n", b"-dash"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_and_headers_arrive_as_given() {
    let broker = Broker::shared().await;
    let queue = broker.queue("properties").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"n":7,"list":[true,null],"t":{"k":1.5},"s":"from file"}"#).unwrap();
    broker
        .publish(&[
            "--queue",
            &queue,
            "--message-id",
            "id-1",
            "--type",
            "order",
            "--correlation-id",
            "c",
            "--content-type",
            "text/plain",
            "--reply-to",
            "r",
            "--expiration",
            "1h",
            "--priority",
            "3",
            "--app-id",
            "a",
            "--header",
            "k=v=w",
            "--header",
            "s=ünï",
            "--header-file",
            file.path().to_str().unwrap(),
            "x",
        ])
        .expect(0);
    let [delivery] = &broker.drain(&queue).await[..] else { panic!("one message") };
    let properties = &delivery.properties;
    let text = |value: &Option<lapin::types::ShortString>| value.as_ref().map(ToString::to_string);
    assert_eq!(text(properties.message_id()).as_deref(), Some("id-1"));
    assert_eq!(text(properties.kind()).as_deref(), Some("order"));
    assert_eq!(text(properties.correlation_id()).as_deref(), Some("c"));
    assert_eq!(text(properties.content_type()).as_deref(), Some("text/plain"));
    assert_eq!(text(properties.reply_to()).as_deref(), Some("r"));
    assert_eq!(text(properties.expiration()).as_deref(), Some("3600000"));
    assert_eq!(text(properties.app_id()).as_deref(), Some("a"));
    assert_eq!(properties.priority(), &Some(3));
    // K60: text values, so the broker keeps the connection.
    let mut inner = FieldTable::default();
    inner.insert("k".into(), AMQPValue::Double(1.5));
    let headers = properties.headers().as_ref().expect("headers").inner();
    assert_eq!(headers["k"], AMQPValue::LongString("v=w".into()));
    assert_eq!(headers["s"], AMQPValue::LongString("ünï".into()));
    assert_eq!(headers["n"], AMQPValue::LongLongInt(7));
    let list = vec![AMQPValue::Boolean(true), AMQPValue::Void];
    assert_eq!(headers["list"], AMQPValue::FieldArray(FieldArray::from(list)));
    assert_eq!(headers["t"], AMQPValue::FieldTable(inner));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_count_and_repeat_multiply_and_keep_their_order() {
    let broker = Broker::shared().await;
    let queue = broker.queue("many").await;
    let ended =
        broker.publish_from(&["--queue", &queue, "--lines", "-", "--id-prefix", "p"], b"a\nb\n\nc").expect(0);
    assert_eq!(ended.lines(), ["p-1", "p-2", "p-3", "p-4"], "in the order of the input");
    let bodies: Vec<_> = broker.drain(&queue).await.into_iter().map(|d| d.data).collect();
    assert_eq!(bodies, [&b"a"[..], b"b", b"", b"c"]);

    let ended =
        broker.publish(&["--queue", &queue, "--count", "300", "--repeat", "3", "--shuffle"]).expect(0);
    let arrived = broker.drain(&queue).await;
    assert_eq!(arrived.len(), 900);
    assert_eq!(ids(&arrived).len(), 300, "each id three times");
    let order: Vec<_> =
        arrived.iter().map(|d| d.properties.message_id().as_ref().unwrap().to_string()).collect();
    assert_eq!(ended.lines(), order, "ids are printed, and messages arrive, in the order of sending");
    assert!(order.windows(2).any(|pair| pair[0] > pair[1]), "shuffled");

    let ended =
        broker.publish(&["--queue", &queue, "--count", "2", "--repeat", "2", "--json", "body"]).expect(0);
    let told = ended.json();
    assert_eq!(told.len(), 4);
    assert_eq!((&told[3]["index"], &told[3]["copy"]), (&2.into(), &2.into()));
    assert!(told.iter().all(|line| line["status"] == "confirmed"));
    assert_eq!(told[0]["message_id"], told[1]["message_id"]);
}

/// K56: a positive confirm is no delivery.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_queue_gets_is_named_with_the_brokers_reason() {
    let broker = Broker::shared().await;
    let ended = broker.publish(&[
        "--exchange",
        "amq.direct",
        "--routing-key",
        &fresh("nobody"),
        "--message-id",
        "m",
        "x",
    ]);
    let ended = ended.expect(1).says("m: unroutable: 312 NO_ROUTE\n").says("0 confirmed, 1 unroutable");
    assert_eq!(ended.stdout, "");

    let queue = fresh("missing");
    let args = ["--queue", &queue, "--lines", "-", "--id-prefix", "p", "--json"];
    let ended = broker.publish_from(&args, b"a\nb\n").expect(1);
    let told = ended.says("line 2: p-2: unroutable: 312 NO_ROUTE\n").says("--create").json();
    assert_eq!((&told[1]["line"], &told[1]["status"]), (&2.into(), &"unroutable".into()));
    assert_eq!(told[1]["reason"], "unroutable: 312 NO_ROUTE");

    let exchange = fresh("typo");
    let ended = broker.publish(&[
        "--exchange",
        &exchange,
        "--routing-key",
        "k",
        "--count",
        "3000",
        "--id-prefix",
        "p",
    ]);
    let ended = ended
        .expect(1)
        .says("message 1: p-1: not found: ")
        .says(&format!("404 NOT_FOUND - no exchange '{exchange}'"));
    let named = ended.stderr.lines().filter(|line| line.contains(": not found: ")).count();
    assert!(ended.stderr.contains(&format!("from message {} on: not sent", named + 1)), "{ended:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_queue_can_be_created_with_its_dead_letter_queue() {
    let broker = Broker::shared().await;
    let queue = fresh("created");
    for _ in 0..2 {
        broker.publish(&["--queue", &queue, "--create", "--queue-type", "classic", "x"]).expect(0);
    }
    assert_eq!(broker.drain(&queue).await.len(), 2);
    for name in [queue.clone(), format!("{queue}.dead")] {
        broker.channel.queue_delete(name.into(), Default::default()).await.expect("it exists");
    }
    let exclusive = lapin::options::QueueDeclareOptions { exclusive: true, ..Default::default() };
    broker
        .channel
        .queue_declare(queue.as_str().into(), exclusive, FieldTable::default())
        .await
        .expect("declared");
    broker.publish(&["--queue", &queue, "--create", "x"]).expect(1).says("405 RESOURCE_LOCKED");
}

/// K59, and everything else that is wrong before anything is sent: one sentence, exit code 2.
#[test]
fn wrong_usage_is_told_in_one_sentence() {
    let long = |bytes| "x".repeat(bytes);
    let (id, key, prefix) = (long(256), long(300), long(240));
    let header = format!("{}=v", long(300));
    for (args, words) in [
        (vec!["--queue", "q", "--message-id", &id, "x"], "message_id has 256 bytes: AMQP allows 255"),
        (vec!["--exchange", "e", "--routing-key", &key, "x"], "the routing key has 300 bytes"),
        (vec!["--exchange", &key, "--routing-key", "k", "x"], "the exchange's name has 300 bytes"),
        (vec!["--queue", &key, "x"], "300 bytes"),
        (vec!["--queue", &key, "--create", "x"], "the queue's name has 300 bytes"),
        (vec!["--queue", "q", "--header", &header, "x"], "a header's name has 300 bytes"),
        (vec!["--queue", "q", "--id-prefix", &prefix, "--count", "2"], "message_id has 261 bytes"),
        (vec!["--queue", "q", "--type", &id, "x"], "type has 256 bytes"),
        (vec!["--queue", "q", "--header", "novalue", "x"], "'novalue' has no '='"),
        (vec!["--queue", "q", "--header-file", "/nonexistent", "x"], "/nonexistent"),
        (vec!["--queue", "q", "--file", "/nonexistent"], "cannot read /nonexistent"),
        (vec!["--queue", "q", "--lines", "/nonexistent"], "cannot read /nonexistent"),
        (vec!["--queue", "q", "--password-file", "/nonexistent", "x"], "/nonexistent"),
        (vec!["--queue", "q"], "nothing to publish"),
        (vec!["--queue", "", "x"], "the queue's name is empty"),
        (vec!["x"], "--queue"),
        (vec!["--queue", "q", "--exchange", "e", "x"], "cannot be used with"),
        (vec!["--queue", "q", "--routing-key", "k", "x"], "cannot be used with"),
        (vec!["--queue", "q", "--message-id", "m", "--count", "2", "x"], "cannot be used with"),
        (vec!["--queue", "q", "--timeout", "0", "x"], "--timeout"),
        (vec!["--queue", "q", "--count", "0", "x"], "--count"),
        (vec!["--queue", "q", "--window", "0", "x"], "--window"),
        (vec!["--queue", "q", "--expiration", "soon", "x"], "--expiration"),
        (vec!["--queue", "q", "--queue-type", "quorum", "x"], "--create"),
    ] {
        // Nothing listens there: whoever connects first fails differently.
        let ended = run(&[&["publish", "--url", "amqp://127.0.0.1:1"], &args[..]].concat()).expect(2);
        assert_eq!(ended.stdout, "");
        assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
        ended.says(words);
    }
}

/// A window of one waits for each confirm; it is slow, not stuck.
#[tokio::test(flavor = "multi_thread")]
async fn any_window_works() {
    let broker = Broker::shared().await;
    let queue = broker.queue("window").await;
    for window in ["1", "2", "100000"] {
        let args = ["--queue", &queue, "--count", "200", "--window", window];
        within(Duration::from_secs(20), || broker.publish(&args).expect(0));
        assert_eq!(broker.drain(&queue).await.len(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_sending_and_what_is_confirmed_was_told() {
    let broker = Broker::shared().await;
    let queue = broker.queue("signal").await;
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let mut child = broker.spawn(&["--queue", &queue, "--lines", "-", "--id-prefix", "p"]);
        let mut stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdin.write_all(b"a\nb\nc\n").expect("it reads");
        let mut told = String::new();
        while told.lines().count() < 3 {
            assert!(stdout.read_line(&mut told).expect("it prints") > 0, "it ended early: {told}");
        }
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("signalled");
        // stdin stays open: nothing but the signal ends it.
        within(Duration::from_secs(5), || ended(child, name))
            .expect(1)
            .says(&format!("stopped by {name}: 3 confirmed"));
        assert_eq!(told, "p-1\np-2\np-3\n");
        assert_eq!(broker.drain(&queue).await.len(), 3);
    }
}

/// Whoever reads the ids may go away: that is no reason to panic, nor to claim success.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_stdout_is_an_error_not_a_panic() {
    let broker = Broker::shared().await;
    let queue = broker.queue("pipe").await;
    let mut child = broker.spawn(&["--queue", &queue, "--count", "5000"]);
    drop(child.stdout.take());
    let ended = ended(child, "closed stdout").expect(1).says("cannot write to stdout");
    assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
}
