//! What needs a broker of its own: one that raises alarms, cuts connections and dies.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ackonce::{
    broker::{Endpoint, Outgoing, PublishError, Publisher},
    message::Properties,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::support::{Broker, LIMIT, Node, ended, ids, run, within};

/// Holds every character that has a meaning in a URL.
const PASSWORD: &str = "p#/?@:%ü ";

/// K54: with a memory alarm raised, publishing ends within its time limit and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_broker_is_named_as_the_reason() {
    let node = Node::start_new();
    let broker = Broker::at(&node.url).await;
    let queue = broker.queue("blocked").await;
    node.ctl(&["set_vm_memory_high_watermark", "0"]);
    let one = || broker.publish(&["--queue", &queue, "--timeout", "2", "--message-id", "m", "x"]);
    let told = within(Duration::from_secs(6), one).expect(1).says("m: blocked: ").says("memory");
    assert_eq!(told.stdout, "");
    // Many: the first that times out ends it, and the rest is named.
    let args =
        ["--queue", &queue, "--timeout", "2s", "--count", "5000", "--window", "100", "--id-prefix", "p"];
    let many = within(Duration::from_secs(8), || broker.publish(&args)).expect(1);
    many.says("message 1: p-1: blocked: ").says("message 100: p-100: ").says("from message 101 on: not sent");
    node.ctl(&["set_vm_memory_high_watermark", "0.6"]);
    broker.publish(&["--queue", &queue, "x"]).expect(0);
}

/// K55: the broker is killed in the middle. What is told as confirmed is there after its restart, what
/// is not is named, and sending exactly that again completes the 10 000.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_exactly_the_rest_can_be_sent_again() {
    let node = Node::start_new();
    let broker = Broker::at(&node.url).await;
    let queue = broker.queue("crash").await;
    let Running { mut stdin, mut stdout, stderr, child } =
        half_of_10_000_lines(&broker, &queue, &["--timeout", "2s"]);
    let writer = std::thread::spawn(move || {
        node.kill();
        for line in 5001..=10_000 {
            // It stops reading once it has given up.
            if writeln!(stdin, "line {line}").is_err() {
                break;
            }
        }
        node
    });
    let mut told: String = (1..=100).map(|line| format!("p-{line}\n")).collect();
    stdout.read_to_string(&mut told).expect("it prints");
    within(LIMIT, || ended(child, "lines")).expect(1);
    let stderr = stderr.join().expect("no panic");
    let node = writer.join().expect("no panic");
    let confirmed: BTreeSet<&str> = told.lines().collect();
    let named: BTreeSet<&str> = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("line ")?.split(": ").nth(1))
        .filter(|id| id.starts_with("p-"))
        .collect();
    let rest_from: u64 = stderr
        .lines()
        .find_map(|line| line.strip_prefix("from line ")?.strip_suffix(" on: not sent")?.parse().ok())
        .unwrap_or(10_001);
    for line in 1..=10_000 {
        let id = format!("p-{line}");
        let (confirmed, named) = (confirmed.contains(id.as_str()), named.contains(id.as_str()));
        let told = [confirmed, named, line >= rest_from].into_iter().filter(|told| *told).count();
        assert_eq!(told, 1, "{id} is told exactly once: {confirmed} {named} {rest_from}");
    }

    node.start();
    let broker = Broker::at(&node.url).await;
    let arrived = ids(&broker.drain(&queue).await);
    let missing: Vec<_> = confirmed.iter().filter(|id| !arrived.contains(**id)).collect();
    assert!(missing.is_empty(), "confirmed, but not there: {missing:?}");
    let done = (1..).take_while(|line| confirmed.contains(format!("p-{line}").as_str())).count();
    let lines: String = (1..=10_000).map(|line| format!("line {line}\n")).collect();
    let args = ["--queue", &queue, "--lines", "-", "--id-prefix", "p", "--skip", &done.to_string()];
    broker.publish_from(&args, lines.as_bytes()).expect(0);
    let all: BTreeSet<String> = &arrived | &ids(&broker.drain(&queue).await);
    assert_eq!(all, (1..=10_000).map(|line| format!("p-{line}")).collect());
}

/// A child in the middle of its work.
struct Running {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Everything it says, read all along so that it never waits for a reader.
    stderr: JoinHandle<String>,
    child: Child,
}

/// Starts it, gives it 5000 lines, and returns once 100 are told as confirmed.
fn half_of_10_000_lines(broker: &Broker, queue: &str, args: &[&str]) -> Running {
    let mut child = broker.spawn(&[&["--queue", queue, "--lines", "-", "--id-prefix", "p"], args].concat());
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut said = child.stderr.take().expect("piped");
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        said.read_to_string(&mut text).expect("UTF-8");
        text
    });
    let writer = std::thread::spawn(move || {
        for line in 1..=5000 {
            writeln!(stdin, "line {line}").expect("it reads");
        }
        stdin
    });
    let mut told = String::new();
    while told.lines().count() < 100 {
        assert!(stdout.read_line(&mut told).expect("it prints") > 0, "it ended early: {told}");
    }
    Running { stdin: writer.join().expect("no panic"), stdout, stderr, child }
}

/// K57: connections are closed again and again. Every publish ends, one way or the other, in time.
#[tokio::test(flavor = "multi_thread")]
async fn every_publish_ends_while_connections_are_closed_again_and_again() {
    let node = Node::start_new();
    let broker = Broker::at(&node.url).await;
    let queue = broker.queue("closes").await;
    let publisher = Publisher::new(vec![Endpoint::parse(&node.url).unwrap()], "test", 50);
    let limit = Duration::from_secs(5);
    let done = Arc::new(AtomicBool::new(false));
    let closer = std::thread::spawn({
        let done = done.clone();
        move || {
            let until = Instant::now() + Duration::from_secs(20);
            let mut closes = 0;
            while Instant::now() < until {
                node.ctl(&["close_all_connections", "again"]);
                closes += 1;
            }
            done.store(true, Ordering::SeqCst);
            (node, closes)
        }
    });
    let (mut confirmed, mut lost) = (0_u64, 0_u64);
    while !done.load(Ordering::SeqCst) {
        // Several at once, of different sizes, so that a close finds them in every state.
        let burst = (0..20).map(|number| {
            let message = Outgoing {
                exchange: String::new(),
                routing_key: queue.clone(),
                properties: Properties::default(),
                body: vec![b'x'; number * 20_000].into(),
                mandatory: true,
            };
            let start = Instant::now();
            let publishing = publisher.publish(message, limit);
            async move { (publishing.await, start.elapsed()) }
        });
        for (result, took) in futures::future::join_all(burst).await {
            assert!(took < limit + Duration::from_secs(1), "{result:?} after {took:?}");
            match result {
                Ok(()) => confirmed += 1,
                Err(PublishError::Lost(_) | PublishError::NotConnected(_)) => lost += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    let (node, closes) = closer.join().expect("no panic");
    assert!(closes >= 5 && confirmed > 0 && lost > 0, "{closes} closes, {confirmed} confirmed, {lost} lost");
    let broker = Broker::at(&node.url).await;
    broker.publish(&["--queue", &queue, "x"]).expect(0);
}

/// K61: one message is above the broker's limit. It is named, the next ones go through.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_brokers_limit_is_named_and_the_next_ones_go_through() {
    let node = Node::start_new();
    let broker = Broker::at(&node.url).await;
    let queue = broker.queue("limit").await;
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), vec![b'x'; 17 << 20]).unwrap();
    broker.publish(&["--queue", &queue, "--file", large.path().to_str().unwrap()]).expect(0);
    node.ctl(&["eval", "application:set_env(rabbit, max_message_size, 1048576), persistent_term:put(max_message_size, 1048576)."]);
    let lines = ["a".to_owned(), "x".repeat(2 << 20), "b".to_owned()].join("\n");
    let args = ["--queue", &queue, "--lines", "-", "--id-prefix", "p", "--window", "1"];
    let ended = broker.publish_from(&args, lines.as_bytes()).expect(1);
    let ended = ended.says("line 2: p-2: too large: its body has 2097152 bytes; the broker says 406");
    assert_eq!(ended.lines(), ["p-1", "p-3"]);
    // The same with all three under way at once.
    let args = ["--queue", &queue, "--lines", "-", "--id-prefix", "p"];
    let ended = broker.publish_from(&args, lines.as_bytes()).expect(1).says("line 2: p-2: too large: ");
    assert_eq!(ended.lines(), ["p-1", "p-3"]);
    let sizes: BTreeSet<usize> = broker.drain(&queue).await.iter().map(|d| d.data.len()).collect();
    assert_eq!(sizes, BTreeSet::from([1, 17 << 20]));
}

/// K62: the password's characters arrive, in the URL or in a file; what the broker refuses has a hint.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_and_vhosts_with_special_characters() {
    let node = Node::start_new();
    node.ctl(&["add_user", "u", PASSWORD]);
    node.ctl(&["add_vhost", "a/b"]);
    for vhost in ["/", "a/b"] {
        node.ctl(&["set_permissions", "-p", vhost, "u", ".*", ".*", ".*"]);
    }
    node.ctl(&["add_vhost", "closed"]);
    let encoded = utf8_percent_encode(PASSWORD, NON_ALPHANUMERIC).to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{PASSWORD}\n")).unwrap();
    let address = node.address();
    let create = ["--queue", "q", "--create", "--queue-type", "classic", "x"];
    for vhost in ["", "/%2f", "/%2F", "/a%2fb"] {
        let url = format!("amqp://u:{encoded}@{address}{vhost}");
        run(&[&["publish", "--url", &url], &create[..]].concat()).expect(0);
        let url = format!("amqp://u@{address}{vhost}");
        let path = file.path().to_str().unwrap();
        run(&[&["publish", "--url", &url, "--password-file", path], &create[..]].concat()).expect(0);
    }
    for (url, hint) in [
        (format!("amqp://u:wrong@{address}"), "access refused for user 'u': wrong user or password?"),
        (format!("amqp://guest:wrong@{address}"), "access refused for user 'guest'"),
        (format!("amqp://u:{encoded}@{address}/nope"), "the vhost 'nope' does not exist"),
        (format!("amqp://u:{encoded}@{address}/%2fnope"), "without a leading slash?"),
        (format!("amqp://u:{encoded}@{address}/closed"), "user 'u' has no access to the vhost 'closed'"),
    ] {
        let ended = run(&[&["publish", "--url", &url], &create[..]].concat()).expect(1).says(hint);
        assert!(!ended.stderr.contains("wrong@") && !ended.stderr.contains(&encoded), "{ended:#?}");
    }
    // A permission that is missing is another matter than the login.
    node.ctl(&["set_permissions", "u", ".*", "^$", ".*"]);
    let url = format!("amqp://u:{encoded}@{address}");
    run(&["publish", "--url", &url, "--queue", "q", "--message-id", "m", "x"])
        .expect(1)
        .says("m: denied: ")
        .says("403");
}
