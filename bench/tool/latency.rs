//! From publish to ack at a steady rate, by the raw consumer and by the full path.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ackonce::{
    Handler, Stop, Verdict, Work, Worker,
    broker::topology::QueueType,
    ledger::sqlite::{SqliteLedger, SqliteOptions},
};
use futures::{StreamExt, future::BoxFuture};
use lapin::{
    BasicProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions},
    types::FieldTable,
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use uuid::Uuid;

use crate::{Failure, open, percentiles, queue};

const BODY: [u8; 256] = [b'x'; 256];
const PREFETCH: u16 = 1000;
/// For everything to be acked after the last message was published.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    url: &str,
    messages: usize,
    rate: u32,
    kind: QueueType,
    folder: &Path,
) -> Result<Value, Failure> {
    let name = format!("ackonce.bench.latency.{}", Uuid::now_v7().simple());
    queue::declare(url, &name, kind).await?;
    let result = async {
        let raw = raw(url, &name, messages, rate).await?;
        let full = full(url, &name, messages, rate, folder).await?;
        Ok::<_, Failure>(json!({ "raw": percentiles::of(raw), "full": percentiles::of(full) }))
    };
    let result = result.await;
    queue::delete(url, &name).await?;
    result
}

/// When each message was handed to the broker's connection, in order.
type Published = Arc<Mutex<Vec<Instant>>>;

/// Publishes in a task: one message at a time, on a connection of its own.
async fn publish(
    url: &str,
    queue: &str,
    messages: usize,
    rate: u32,
) -> Result<(Published, JoinHandle<Result<(), Failure>>), Failure> {
    let (connection, channel) = open(url).await?;
    let published = Published::default();
    let (times, queue) = (published.clone(), queue.to_owned());
    let task = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..messages {
            ticks.tick().await;
            let id = Uuid::now_v7().to_string();
            let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.into());
            let options = BasicPublishOptions::default();
            times.lock().map_err(|_| "a task has panicked")?.push(Instant::now());
            channel.basic_publish("".into(), queue.as_str().into(), options, &BODY, properties).await?;
        }
        connection.close(200, "OK".into()).await?;
        Ok(())
    });
    Ok((published, task))
}

async fn raw(url: &str, queue: &str, messages: usize, rate: u32) -> Result<Vec<Duration>, Failure> {
    let (connection, channel) = open(url).await?;
    channel.basic_qos(PREFETCH, BasicQosOptions { global: false }).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(queue.into(), "raw".into(), options, FieldTable::default()).await?;
    let (published, publishing) = publish(url, queue, messages, rate).await?;
    let mut acked = Vec::with_capacity(messages);
    while acked.len() < messages {
        let delivery = consumer.next().await.ok_or("the broker ended the consumer")??;
        channel.basic_ack(delivery.delivery_tag, BasicAckOptions { multiple: false }).await?;
        acked.push(Instant::now());
    }
    publishing.await??;
    channel.close(200, "OK".into()).await?;
    connection.close(200, "OK".into()).await?;
    latencies(&published, &acked)
}

async fn full(
    url: &str,
    queue: &str,
    messages: usize,
    rate: u32,
    folder: &Path,
) -> Result<Vec<Duration>, Failure> {
    let path = folder.join(format!("latency-{}.db", Uuid::now_v7().simple()));
    let ledger = Arc::new(SqliteLedger::open(path, SqliteOptions::default())?);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut worker = Worker::new(url, queue, Nothing(runs.clone()), ledger)?;
    let source = Arc::get_mut(&mut worker.source).ok_or("the source is shared")?;
    source.prefetch = PREFETCH;
    Arc::get_mut(&mut worker.policy).ok_or("the policy is shared")?.prefetch = PREFETCH;
    let mut counts = worker.counts.subscribe();
    let (stop, asked) = watch::channel(Stop::No);
    let running = tokio::spawn(worker.run(asked));

    // One message through it first: then it consumes, and its ledger is open.
    let (_, first) = publish(url, queue, 1, rate).await?;
    first.await??;
    timeout(LIMIT, counts.wait_for(|counts| counts.handled == 1)).await??;

    let (published, publishing) = publish(url, queue, messages, rate).await?;
    let mut acked = Vec::with_capacity(messages);
    while acked.len() < messages {
        timeout(LIMIT, counts.changed()).await??;
        let handled = counts.borrow_and_update().handled as usize - 1;
        acked.resize(handled, Instant::now());
    }
    publishing.await??;
    stop.send_replace(Stop::Drain);
    running.await??;
    if runs.load(Ordering::Relaxed) != messages + 1 {
        return Err("the handler did not run once for each message".into());
    }
    latencies(&published, &acked)
}

/// Both in the order of the queue.
fn latencies(published: &Published, acked: &[Instant]) -> Result<Vec<Duration>, Failure> {
    let published = published.lock().map_err(|_| "a task has panicked")?;
    Ok(published.iter().zip(acked).map(|(published, acked)| acked.duration_since(*published)).collect())
}

/// A handler that only counts.
struct Nothing(Arc<AtomicUsize>);

impl Handler for Nothing {
    fn handle(&self, _: Work) -> BoxFuture<'static, Verdict> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Verdict::Done))
    }

    fn waits(&self) -> bool {
        false
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn guarantee(&self) -> &'static str {
        "nothing is done"
    }
}
