//! One test's world: a queue of its own on a real broker, a folder of its own, the real binary.
//!
//! When a test fails, what its workers said and what the ledger holds is printed.

mod disk;
mod endpoint;
mod node;
mod path;
mod process;
mod terminal;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable, LongString},
};
use tempfile::TempDir;

pub use disk::{SmallDisk, may_mount};
pub use endpoint::{Endpoint, Reply, Request, answer};
pub use node::Node;
pub use path::{Path, Way};
pub use process::{Process, ackonce, child_pids, children, is_alive};
pub use terminal::{has_colours, seen};

/// How long anything may take that is expected to happen.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Lines of a handler that says when it starts, and waits for the file `go`.
pub const SLOW: &str = r#"echo "$ACKONCE_ATTEMPT $ACKONCE_INTERRUPTED" >> started
while [ ! -e go ]; do sleep 0.02; done"#;

/// See the module.
pub struct World {
    pub folder: TempDir,
    pub queue: String,
    pub url: String,
    pub channel: Channel,
    _connection: Connection,
}

/// One row of the ledger, as far as most tests care.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Row {
    pub key: String,
    pub state: String,
    pub attempts: u32,
    pub duplicates: i64,
}

/// The broker that all tests share.
pub fn shared_url() -> String {
    std::env::var("AMQP_URL")
        .expect("these tests need a broker: run them through scripts/test, or set AMQP_URL")
}

impl World {
    /// On the shared broker, with a quorum queue and its dead-letter queue as the worker makes them.
    pub async fn new(name: &str) -> Self {
        let world = Self::without_queue(name).await;
        world.declare(&world.queue, "quorum").await;
        world
    }

    /// The same, but the queue is yet to be made.
    pub async fn without_queue(name: &str) -> Self {
        Self::at(&shared_url(), name).await
    }

    /// On a broker of the test's own choosing, without a queue.
    pub async fn at(url: &str, name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let queue = format!("test.{name}.{}.{number}", std::process::id());
        let (connection, channel) = connect(url).await;
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, queue, url: url.to_owned(), channel, _connection: connection }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker on this world's queue and ledger, with further arguments.
    pub fn worker(&self, arguments: &[&str]) -> Process {
        self.worker_with(|_| {}, arguments)
    }

    /// The same, with a change to its command, such as its environment.
    pub fn worker_with(
        &self,
        change: impl FnOnce(&mut std::process::Command),
        arguments: &[&str],
    ) -> Process {
        Process::start(self.command(change, arguments), self.folder.path())
    }

    fn command(
        &self,
        change: impl FnOnce(&mut std::process::Command),
        arguments: &[&str],
    ) -> std::process::Command {
        let mut command = ackonce();
        command
            .args(["run", "--url", &self.url, "--queue", &self.queue])
            .arg("--ledger")
            .arg(self.path("ackonce.db"))
            .args(arguments)
            .env("ACKONCE_LOG_LEVEL", "debug")
            .current_dir(self.folder.path());
        change(&mut command);
        command
    }

    /// A handler that appends its key to the effect file, written as a shell script; `before` and
    /// `after` are shell lines around that.
    pub fn handler(&self, before: &str, after: &str) -> String {
        self.script(&format!("{before}\necho \"$ACKONCE_KEY\" >> effects\n{after}"))
    }

    /// Writes an executable shell script and returns its path.
    pub fn script(&self, text: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("handler-{}.sh", COUNT.fetch_add(1, Ordering::Relaxed));
        let path = self.path(&name);
        let folder = self.folder.path().display();
        fs::write(&path, format!("#!/bin/sh\ncd '{folder}'\n{text}\n")).expect("a script");
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable script");
        path.display().to_string()
    }

    /// The lines of a file that handlers append to; none if there is no such file yet.
    pub fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub fn effects(&self) -> Vec<String> {
        self.lines("effects")
    }

    /// Lets handlers go on that wait for this file.
    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").expect("a file");
    }

    /// The ledger's rows by key; none if there is no ledger yet.
    pub fn rows(&self) -> Vec<Row> {
        rows(&self.path("ackonce.db"))
    }

    /// The rows' states by key.
    pub fn states(&self) -> Vec<(String, String)> {
        self.rows().into_iter().map(|row| (row.key, row.state)).collect()
    }

    /// Publishes persistently with that id, confirmed.
    pub async fn publish(&self, id: &str, body: &[u8]) {
        self.publish_with(body, BasicProperties::default().with_message_id(id.into())).await;
    }

    pub async fn publish_with(&self, body: &[u8], properties: BasicProperties) {
        publish(&self.channel, "", &self.queue, body, properties).await;
    }

    /// A durable queue with a dead-letter queue `<name>.dead` beside it.
    pub async fn declare(&self, name: &str, kind: &str) {
        let dead = format!("{name}.dead");
        let text = |text: &str| AMQPValue::LongString(LongString::from(text));
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text(kind));
        self.declare_with(&dead, arguments.clone()).await;
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(&dead));
        self.declare_with(name, arguments).await;
    }

    pub async fn declare_with(&self, name: &str, arguments: FieldTable) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), options, arguments).await.expect("a queue");
    }

    pub async fn delete(&self, name: &str) {
        self.channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.expect("deleted");
    }

    /// Messages that are ready in a queue; those handed over and not acked do not count.
    pub async fn ready(&self, name: &str) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(name.into(), options, FieldTable::default()).await;
        queue.expect("an existing queue").message_count()
    }

    /// Everything ready in a queue, acked.
    pub async fn take_all(&self, name: &str) -> Vec<lapin::message::Delivery> {
        let mut all = Vec::new();
        while let Some(message) =
            self.channel.basic_get(name.into(), BasicGetOptions { no_ack: true }).await.expect("a get")
        {
            all.push(message.delivery);
        }
        all
    }

    /// Waits until the ledger has so many rows in that state.
    pub async fn until_state(&self, state: &str, count: usize) {
        until(&format!("{count} rows are {state}"), LIMIT, async || {
            self.rows().iter().filter(|row| row.state == state).count() == count
        })
        .await;
    }

    /// Stops the worker and checks that the broker has nothing left: all is acked.
    pub async fn stop_and_find_nothing_left(&self, worker: Process) {
        let ended = worker.terminate().await;
        ended.expect_exit(0);
        assert_eq!(self.ready(&self.queue).await, 0, "messages left in the queue: {}", ended.said);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- ledger");
            for row in self.rows().iter().take(20) {
                eprintln!("{row:?}");
            }
        }
    }
}

/// A header as text; empty if it is absent.
pub fn header(delivery: &lapin::message::Delivery, name: &str) -> String {
    let headers = delivery.properties.headers().clone().unwrap_or_default();
    match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

pub async fn connect(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("a broker");
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    (connection, channel)
}

pub async fn publish(channel: &Channel, exchange: &str, key: &str, body: &[u8], properties: BasicProperties) {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = properties.with_delivery_mode(2);
    let confirm = channel
        .basic_publish(exchange.into(), key.into(), options, body, properties)
        .await
        .expect("written")
        .await
        .expect("confirmed");
    assert!(confirm.is_ack() && confirm.take_message().is_none(), "unroutable");
}

/// Reads the ledger as anyone can: through its view, with SQLite.
pub fn rows(ledger: &std::path::Path) -> Vec<Row> {
    if !ledger.exists() {
        return Vec::new();
    }
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(ledger, flags).expect("a readable ledger");
    database.busy_timeout(LIMIT).expect("a timeout");
    let sql = "SELECT message_id, state, attempts, duplicates FROM ledger ORDER BY message_id";
    let mut statement = database.prepare(sql).expect("the view");
    let rows = statement.query_map([], |row| {
        Ok(Row { key: row.get(0)?, state: row.get(1)?, attempts: row.get(2)?, duplicates: row.get(3)? })
    });
    rows.expect("rows").collect::<Result<_, _>>().expect("rows")
}

/// Polls until `holds`; fails with `what` after `limit`.
pub async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "after {limit:?} still not true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
