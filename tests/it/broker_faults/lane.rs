//! A queue with its worker and ledger, and what must be in them.

use std::collections::BTreeSet;

use crate::{
    harness::{LIMIT, Path, Process, World, until},
    sql::{SQL, number, texts, write},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Command,
    Sql,
}

pub struct Lane {
    // Before its folder: what it said is printed when a test fails.
    worker: Process,
    world: World,
    kind: Kind,
}

impl Lane {
    /// The queue is reached directly, the worker's way goes by `path`.
    pub async fn start(broker: &str, path: &Path, queue_type: &str, kind: Kind) -> Self {
        let mut world = World::at(broker, &format!("faults.{queue_type}.{kind:?}")).await;
        world.declare(&world.queue, queue_type).await;
        world.url = format!("amqp://127.0.0.1:{}?heartbeat=2", path.port);
        write(&world, "CREATE TABLE IF NOT EXISTS effects (key TEXT);", "INSERT INTO effects VALUES (:key);");
        // Some run on while the session is lost and another one begins.
        let command = world.handler(r#"case $ACKONCE_KEY in *7) sleep 2 ;; esac"#, "");
        let handler = match kind {
            Kind::Command => vec!["--exec", command.as_str()],
            Kind::Sql => SQL.to_vec(),
        };
        let more = ["--queue-type", queue_type, "--concurrency", "8", "--prefetch", "20"];
        let quiet = |command: &mut std::process::Command| {
            command.env("ACKONCE_LOG_LEVEL", "info");
        };
        let worker = world.worker_with(quiet, &[&more[..], &handler].concat());
        worker.until_consuming().await;
        Self { worker, world, kind }
    }

    pub fn queue(&self) -> &str {
        &self.world.queue
    }

    pub fn is_running(&mut self) -> bool {
        self.worker.is_running()
    }

    pub fn done(&self) -> u64 {
        let done = number(&self.world, "SELECT count(*) FROM messages WHERE state = 'done'");
        done.unsigned_abs()
    }

    /// Of the first `sent` numbers.
    pub fn not_done(&self, sent: u64) -> Vec<u64> {
        let done: BTreeSet<String> =
            texts(&self.world, "SELECT key FROM messages WHERE state = 'done'").into_iter().collect();
        (0..sent).filter(|number| !done.contains(&number.to_string())).collect()
    }

    pub async fn until_done(&mut self, sent: u64) {
        let what = format!("{} messages of {} are done", sent, self.queue());
        until(&what, LIMIT * 3, async || {
            assert!(self.is_running(), "{what}: the worker has ended");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            self.done() >= sent
        })
        .await;
    }

    pub fn sessions(&self) -> usize {
        self.worker.said().matches("consuming from").count()
    }

    pub async fn until_more_sessions(&self, than: usize) {
        until(&format!("{} is consumed again", self.queue()), LIMIT, async || self.sessions() > than).await;
    }

    /// Each number has taken effect once, in one attempt, and nothing else is anywhere.
    pub async fn stop_and_check(self, sent: u64, probe: &World) {
        let Self { world, worker, kind } = self;
        let ended = worker.terminate().await;
        ended.expect_exit(0);
        assert_eq!(probe.ready(&world.queue).await, 0, "left in {}", world.queue);
        assert_eq!(probe.ready(&format!("{}.dead", world.queue)).await, 0, "dead letters of {}", world.queue);
        let effects = match kind {
            Kind::Command => world.effects(),
            Kind::Sql => texts(&world, "SELECT key FROM effects"),
        };
        let distinct: BTreeSet<u64> = effects.iter().map(|key| key.parse().expect("a number")).collect();
        assert_eq!(effects.len(), distinct.len(), "an effect of {} came twice", world.queue);
        assert_eq!(distinct, (0..sent).collect(), "a message of {} is lost", world.queue);
        assert_eq!(number(&world, "SELECT count(*) FROM messages WHERE attempts <> 1 OR state <> 'done'"), 0);
    }
}
