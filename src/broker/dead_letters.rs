//! Looking at a dead-letter queue: everything in it is handed over once, and what is not taken goes
//! back where it was.
//!
//! A letter that is handed over stays unacked until the end, so none comes twice. It comes in windows,
//! each through a consumer of its own that is allowed no more than that; so what waits in memory is
//! bounded, however long the queue is. Then everything that is left goes back, in its order.
//!
//! Quorum queues count that as one return of each letter. If they have a limit of returns, they also
//! put what is returned at their end: a look at all letters keeps their order, one at the first few
//! makes them the last.

mod held;
mod limit;

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::message::{Delivery, Receipt, Settlement};

use super::{
    BrokerError, Connection, Endpoint, Kind, connect, convert,
    settle::{self, Batch},
    topology::{self, bounded},
};
use held::Held;
pub use limit::ReturnLimit;
use limit::return_limit;

/// Letters in the first window, when nothing is known of their size.
const WINDOW_FIRST: u16 = 16;
const WINDOW_MAX: u16 = 1000;
/// What a window's bodies should have together.
const WINDOW_BYTES: usize = 32 << 20;
/// Nothing was handed over for so long: is there anything left?
const IDLE: Duration = Duration::from_millis(100);
/// So often in a row, although there is.
const IDLE_MAX: u32 = 100;
/// A quorum queue's channel keeps what exceeds 32 settlements under way to itself, and forgets it when
/// it is closed. A get is answered when all that was sent before has been applied; then the channel sends
/// the rest, which the next get is behind. One to spare.
const FLUSH_GETS: u32 = 3;
/// So many frames of returns are under way at once, for the same reason.
const RETURNS_UNDER_WAY: usize = 30;
/// For the broker to have what was returned back in its queue.
const RETURN_TIMEOUT: Duration = Duration::from_secs(2);
const RETURN_POLL: Duration = Duration::from_millis(10);
/// For the last acks and the goodbye, each.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// See the module. Dropping it cuts the connection: the broker then returns what was not taken.
#[derive(Debug)]
pub struct DeadLetters {
    connection: Connection,
    channel: Channel,
    queue: String,
    limit: ReturnLimit,
    /// Letters there were at the start; no more are handed over.
    total: u64,
    handed_over: u64,
    held: Held,
    windows: u32,
    window: u16,
    settlements: mpsc::UnboundedSender<Batch>,
    settler: JoinHandle<Result<(), BrokerError>>,
}

impl DeadLetters {
    /// Connects and looks the queue up.
    ///
    /// # Errors
    ///
    /// [`Kind::NotFound`] if there is no such queue.
    pub async fn open(endpoints: &[Endpoint], queue: &str) -> Result<Self, BrokerError> {
        let connection = connect::connect(endpoints, &format!("dead letters of {queue}")).await?;
        let info = topology::look(&connection, queue).await?.ok_or_else(|| missing(queue))?;
        let limit = return_limit(&connection, queue).await?;
        let channel = connection.channel().await?;
        let (settlements, batches) = mpsc::unbounded_channel();
        let settler = tokio::spawn(settle::settle(channel.clone(), batches));
        Ok(Self {
            connection,
            channel,
            queue: queue.to_owned(),
            limit,
            total: u64::from(info.messages),
            handed_over: 0,
            held: Held::default(),
            windows: 0,
            window: WINDOW_FIRST,
            settlements,
            settler,
        })
    }

    /// Letters in the queue at the start.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Letters that were handed over, and not taken yet.
    pub fn held(&self) -> u64 {
        self.held.count()
    }

    pub fn limit(&self) -> ReturnLimit {
        self.limit
    }

    /// The next letters, in order, as many as fit into a window and at most `most`; none at the end. A
    /// letter that came to the queue after the start is not among them, unless others are gone.
    ///
    /// # Errors
    ///
    /// Why reading is over: the broker takes back all that was not taken.
    ///
    /// # Cancellation
    ///
    /// Letters that were on their way stay unacked until the end, but are not handed over again.
    pub async fn next(&mut self, most: u64) -> Result<Vec<Delivery>, BrokerError> {
        let left = self.total.saturating_sub(self.handed_over);
        let wanted = u16::try_from(left.min(most)).unwrap_or(u16::MAX).min(self.window);
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let letters =
            self.read(wanted).await.map_err(|error| self.connection.why_ended().unwrap_or(error))?;
        self.handed_over += letters.len() as u64;
        letters.iter().for_each(|letter| self.held.add(letter.receipt.tag()));
        let bytes: usize = letters.iter().map(|letter| letter.message.body.len()).sum();
        let average = bytes / letters.len().max(1) + 1;
        let fitting = u16::try_from(WINDOW_BYTES / average).unwrap_or(WINDOW_MAX);
        self.window = fitting.clamp(1, WINDOW_MAX);
        Ok(letters)
    }

    /// Removes letters from the queue: in the background, and certainly by the end of [`Self::close`] if
    /// [`Self::flush`] came before.
    pub fn take(&mut self, receipts: impl IntoIterator<Item = Receipt>) {
        let batch: Batch = receipts.into_iter().map(|receipt| (receipt.tag(), Settlement::Ack)).collect();
        batch.iter().for_each(|(tag, _)| self.held.remove(*tag));
        // If the settler has ended, `close` reports why.
        let _ = self.settlements.send(batch);
    }

    /// Waits until the broker has applied what was taken so far. Some letters may be handed over for
    /// that, which came after all others; taking these needs no further flush.
    ///
    /// # Errors
    ///
    /// If reading is over: then nobody knows whether all of it is removed.
    pub async fn flush(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        let mut letters = Vec::new();
        if self.limit == ReturnLimit::None || self.handed_over == self.held.count() {
            return Ok(letters);
        }
        // Another settler for what comes later: this one has written everything when it ends.
        let (settlements, batches) = mpsc::unbounded_channel();
        self.settlements = settlements;
        let next = tokio::spawn(settle::settle(self.channel.clone(), batches));
        written(std::mem::replace(&mut self.settler, next)).await?;
        for _ in 0..FLUSH_GETS {
            let queue = convert::short(&self.queue, "the queue's name")?;
            let got = bounded(self.channel.basic_get(queue, BasicGetOptions { no_ack: false })).await?;
            letters.extend(got.map(|message| delivery(message.delivery)));
        }
        self.handed_over += letters.len() as u64;
        letters.iter().for_each(|letter| self.held.add(letter.receipt.tag()));
        Ok(letters)
    }

    /// Returns what was not taken, in its order. Tells how many letters the queue has then.
    ///
    /// # Errors
    ///
    /// If not everything is known to be removed that was taken. All the rest is back in any case.
    pub async fn close(self) -> Result<u64, BrokerError> {
        let Self { connection, channel, queue, limit, held, settlements, settler, .. } = self;
        drop(settlements);
        written(settler).await?;
        let left = if limit == ReturnLimit::None {
            give_back(&channel, held.last().into_iter()).await?;
            bounded(channel.close(200, "OK".into())).await?;
            ready_again(&connection, &queue, held.count()).await?
        } else {
            let mut back = held.ends();
            let (mut left, mut others) = (None, false);
            while !back.is_empty() {
                let group: Vec<_> = back.drain(..back.len().min(RETURNS_UNDER_WAY)).collect();
                let until = *group.last().unwrap_or(&0);
                give_back(&channel, group.into_iter()).await?;
                // Somebody else takes them as soon as they are back: then there is nothing to wait for.
                let expected = if others { 0 } else { held.count_to(until) };
                let ready = ready_again(&connection, &queue, expected).await?;
                others |= ready < expected;
                left = Some(ready);
            }
            bounded(channel.close(200, "OK".into())).await?;
            match left {
                Some(left) => left,
                None => ready_again(&connection, &queue, 0).await?,
            }
        };
        connection.close(CLOSE_TIMEOUT).await;
        Ok(left)
    }

    /// One window, through a consumer of its own. Its tag sorts after the earlier ones: by their tags'
    /// order, the broker returns what each of them holds.
    async fn read(&mut self, wanted: u16) -> Result<Vec<Delivery>, BrokerError> {
        self.windows += 1;
        bounded(self.channel.basic_qos(wanted, BasicQosOptions { global: false })).await?;
        let tag = format!("ackonce-dead-{}-{:08}", std::process::id(), self.windows);
        let options = BasicConsumeOptions { no_local: false, no_ack: false, exclusive: false, nowait: false };
        let queue = convert::short(&self.queue, "the queue's name")?;
        let tag = convert::short(&tag, "the consumer tag")?;
        let consuming = self.channel.basic_consume(queue, tag.clone(), options, FieldTable::default());
        let mut consumer = bounded(consuming)
            .await
            .map_err(|error| error.context(format!("reading from '{}'", self.queue)))?;
        let mut letters = Vec::with_capacity(usize::from(wanted));
        self.fill(&mut consumer, &mut letters, usize::from(wanted)).await?;
        bounded(self.channel.basic_cancel(tag, BasicCancelOptions { nowait: false })).await?;
        // What was handed over meanwhile comes before the stream's end.
        while let Ok(Some(delivery)) = timeout(CLOSE_TIMEOUT, consumer.next()).await {
            letters.push(delivery.map_err(|error| BrokerError::from_lapin(&error))?);
        }
        Ok(letters.into_iter().map(delivery).collect())
    }

    /// Receives so many letters, or all that are there.
    async fn fill(
        &self,
        consumer: &mut Consumer,
        letters: &mut Vec<lapin::message::Delivery>,
        wanted: usize,
    ) -> Result<(), BrokerError> {
        let (mut idle, mut empty) = (0, 0);
        while letters.len() < wanted {
            match timeout(IDLE, consumer.next()).await {
                Ok(Some(Ok(delivery))) => {
                    letters.push(delivery);
                    (idle, empty) = (0, 0);
                }
                Ok(Some(Err(error))) => return Err(BrokerError::from_lapin(&error)),
                Ok(None) => return Err(BrokerError::new(Kind::Lost, "the broker ended the consumer")),
                Err(_) => {
                    let info = topology::look(&self.connection, &self.queue).await?;
                    let messages = info.ok_or_else(|| missing(&self.queue))?.messages;
                    (idle, empty) = (idle + 1, if messages == 0 { empty + 1 } else { 0 });
                    // Twice: the last ones may have been on their way when it was asked.
                    if empty == 2 {
                        return Ok(());
                    }
                    if idle == IDLE_MAX {
                        let text = format!("the broker hands nothing over, although there are {messages}");
                        return Err(BrokerError::new(Kind::Timeout, text));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns what is unacked up to each of these tags.
async fn give_back(channel: &Channel, tags: impl Iterator<Item = u64>) -> Result<(), BrokerError> {
    for tag in tags {
        bounded(channel.basic_nack(tag, BasicNackOptions { multiple: true, requeue: true })).await?;
    }
    Ok(())
}

/// Waits until a settler that nobody can ask any more has written everything.
async fn written(settler: JoinHandle<Result<(), BrokerError>>) -> Result<(), BrokerError> {
    match timeout(CLOSE_TIMEOUT, settler).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) | Err(_) => Err(BrokerError::new(Kind::Lost, "acknowledging has ended")),
    }
}

fn delivery(delivery: lapin::message::Delivery) -> Delivery {
    let (message, tag) = convert::message(delivery);
    Delivery { message: Arc::new(message), receipt: Receipt::new(0, tag) }
}

fn missing(queue: &str) -> BrokerError {
    BrokerError::new(Kind::NotFound, format!("there is no queue '{queue}'"))
}

/// Waits until so many messages are ready, which takes the broker a moment; others may be faster. So
/// whoever looks next sees what was returned. Tells how many there are.
async fn ready_again(connection: &Connection, queue: &str, returned: u64) -> Result<u64, BrokerError> {
    let deadline = Instant::now() + RETURN_TIMEOUT;
    loop {
        let info = topology::look(connection, queue).await?;
        let ready = info.map_or(0, |info| u64::from(info.messages));
        if ready >= returned || Instant::now() > deadline {
            return Ok(ready);
        }
        sleep(RETURN_POLL).await;
    }
}
