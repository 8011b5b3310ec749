//! A broker to look into, the real binary, and a node of a test's own.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use futures::StreamExt;
use lapin::{
    Channel, Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicCancelOptions, BasicConsumeOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tempfile::TempDir;

/// How long anything may take that is expected to happen.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The broker that all tests share.
pub fn shared_url() -> String {
    std::env::var("AMQP_URL")
        .expect("these tests need a broker: set AMQP_URL, for instance from scripts/broker up")
}

/// A name that no other test uses.
pub fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test.publish.{name}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The test's own view of a broker.
pub struct Broker {
    pub url: String,
    pub channel: Channel,
    _connection: Connection,
}

impl Broker {
    pub async fn shared() -> Self {
        Self::at(&shared_url()).await
    }

    pub async fn at(url: &str) -> Self {
        let connection =
            Connection::connect(url, ConnectionProperties::default()).await.expect("the test's broker");
        let channel = connection.create_channel().await.expect("a channel");
        Self { url: url.to_owned(), channel, _connection: connection }
    }

    /// A durable queue that goes away some time after the test.
    pub async fn queue(&self, name: &str) -> String {
        let queue = fresh(name);
        let mut arguments = FieldTable::default();
        arguments.insert("x-expires".into(), AMQPValue::LongInt(600_000));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.as_str().into(), options, arguments).await.expect("a queue");
        queue
    }

    /// Takes everything that is ready out of a queue.
    pub async fn drain(&self, queue: &str) -> Vec<Delivery> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let looked_up = self.channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
        let count = looked_up.expect("the queue").message_count() as usize;
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consumer =
            self.channel.basic_consume(queue.into(), "drain".into(), options, FieldTable::default());
        let deliveries = consumer.await.expect("a consumer").take(count).map(|d| d.expect("a delivery"));
        let deliveries: Vec<_> = tokio::time::timeout(LIMIT, deliveries.collect()).await.expect("all arrive");
        self.channel.basic_cancel("drain".into(), BasicCancelOptions::default()).await.expect("cancelled");
        deliveries
    }

    /// `ackonce publish --url … ARGS`
    pub fn publish(&self, args: &[&str]) -> Ended {
        self.publish_from(args, b"")
    }

    /// The same with something on stdin.
    pub fn publish_from(&self, args: &[&str], stdin: &[u8]) -> Ended {
        run_from([&["publish", "--url", self.url.as_str()], args].concat(), stdin)
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        command([&["publish", "--url", self.url.as_str()], args].concat()).spawn().expect("the binary starts")
    }
}

/// The message ids, each once.
pub fn ids(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().filter_map(|d| d.properties.message_id().as_ref().map(ToString::to_string)).collect()
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Shown with a failure.
    command: String,
}

impl Ended {
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{self:#?}", self.command);
        self
    }

    /// On stderr.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "'{text}' is not said: {self:#?}");
        self
    }

    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    pub fn json(&self) -> Vec<serde_json::Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
            .collect()
    }
}

/// The binary with none of our settings inherited from whoever runs the tests.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ackonce"));
    for (name, _) in std::env::vars_os() {
        if name == "AMQP_URL" || name.as_encoded_bytes().starts_with(b"ACKONCE_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(args: &[&str]) -> Ended {
    run_from(args.to_vec(), b"")
}

pub fn run_from<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, stdin: &[u8]) -> Ended {
    let mut command = command(args);
    let shown = format!("{command:?}");
    let mut child = command.spawn().expect("the binary starts");
    let mut pipe = child.stdin.take().expect("piped");
    let text = stdin.to_vec();
    // The child may end without reading all of it.
    let writer = std::thread::spawn(move || pipe.write_all(&text));
    let ended = ended(child, &shown);
    let _ = writer.join().expect("no panic");
    ended
}

/// Waits for its end; whatever it has not yet printed is in there.
pub fn ended(child: Child, command: &str) -> Ended {
    let output = child.wait_with_output().expect("it ends");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        command: command.to_owned(),
    }
}

/// Panics unless it takes less than `limit`.
#[track_caller]
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < limit, "it took {:?}, not less than {limit:?}", start.elapsed());
    result
}

/// A private node. Dropping it destroys it.
pub struct Node {
    folder: TempDir,
    pub url: String,
}

impl Node {
    pub fn start_new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = Self { folder, url: String::new() };
        node.url = node.run(&["new"], &[]).trim().to_owned();
        node
    }

    pub fn kill(&self) {
        self.run(&["kill"], &[]);
    }

    pub fn start(&self) {
        self.run(&["start"], &[]);
    }

    /// Runs the node's control program.
    pub fn ctl(&self, args: &[&str]) -> String {
        self.run(&["ctl", "--dir"], args)
    }

    /// `host:port`
    pub fn address(&self) -> &str {
        self.url.strip_prefix("amqp://").expect("a plain URL")
    }

    fn run(&self, verb: &[&str], args: &[&str]) -> String {
        let output = self.command(verb, args).output().expect("the broker script runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{verb:?} {args:?}: {}\n{stderr}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, verb: &[&str], args: &[&str]) -> Command {
        let script = std::env::var_os("ACKONCE_TEST_BROKER_SCRIPT")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/broker"), PathBuf::from);
        let mut command = Command::new(script);
        command.args(verb).arg(self.folder.path().join("node")).args(args);
        command.stdin(Stdio::null()).env_remove("AMQP_URL");
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.command(&["destroy"], &[]).output();
    }
}
