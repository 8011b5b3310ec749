//! A session: one connection with its channel and consumer, from the first delivery to the last ack.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use serde::Deserialize;
use tokio::{select, sync::mpsc, task::JoinHandle, time::timeout};

use crate::message::{Delivery, Receipt, SessionId, Settlement};

use super::{
    BrokerError, Connection, Endpoint, Kind, connect, convert,
    settle::{self, Batch},
    topology::{self, QueueType},
};

/// For each question to the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For the last acks and the goodbye, each.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Deliveries handed over at once, at most.
const BATCH_MAX: usize = 1024;

/// Where sessions come from: a broker, a queue, and how to find it there.
#[derive(Clone, Debug)]
pub struct Source {
    /// Tried in turn.
    pub endpoints: Vec<Endpoint>,
    pub queue: String,
    pub declare: Declare,
    /// Of a queue that has to be made.
    pub queue_type: QueueType,
    /// Unacked deliveries at the same time; at least 1, because 0 would mean no limit.
    pub prefetch: u16,
    /// Set if rejected messages are left to the queue's own dead-letter exchange: then there must be one.
    pub rejects: Option<Rejects>,
}

/// What is known of the way of rejected messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejects {
    /// The dead-letter exchange that a policy sets, where AMQP cannot see it.
    pub exchange: Option<String>,
}

/// What to do about the queue before consuming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Declare {
    /// Make it, and its dead-letter queue, if it is missing; any existing arguments do.
    #[default]
    Create,
    /// It must be there.
    Passive,
    /// Do not even look: consuming needs no permission but reading.
    None,
}

impl Source {
    /// Connects, finds the queue and starts to consume.
    ///
    /// # Errors
    ///
    /// See [`Kind`]; permanent if no repetition can help.
    ///
    /// # Cancellation
    ///
    /// Dropping the future cuts the connection; what it had been handed, the broker takes back.
    pub async fn open(&self, id: SessionId) -> Result<Session, BrokerError> {
        let connection = connect::connect(&self.endpoints, &format!("consumer of {}", self.queue)).await?;
        let messages = self.find_queue(&connection).await?;
        self.check_rejects(&connection).await?;
        let channel = connection.channel().await?;
        // Per consumer: the channel-wide form is an error on quorum queues and from 4.3 on.
        answer(channel.basic_qos(self.prefetch, BasicQosOptions { global: false })).await?;
        let tag = format!("ackonce-{}-{id}", std::process::id());
        let options = BasicConsumeOptions { no_local: false, no_ack: false, exclusive: false, nowait: false };
        let queue = convert::short(&self.queue, "the queue's name")?;
        let consuming = channel.basic_consume(
            queue,
            convert::short(&tag, "the consumer tag")?,
            options,
            FieldTable::default(),
        );
        let consumer = answer(consuming)
            .await
            .map_err(|error| error.context(format!("consuming from '{}'", self.queue)))?;
        let (settlements, queue) = mpsc::unbounded_channel();
        let settler = tokio::spawn(settle::settle(channel.clone(), queue));
        Ok(Session {
            id,
            connection,
            channel,
            consumer,
            messages,
            settlements,
            settler,
            stopping: false,
            ended: false,
        })
    }

    async fn find_queue(&self, connection: &Connection) -> Result<Option<u32>, BrokerError> {
        match self.declare {
            Declare::Create => {
                let info = topology::ensure_work_queue(connection, &self.queue, self.queue_type).await?;
                Ok(Some(info.messages))
            }
            Declare::Passive => match topology::look(connection, &self.queue).await? {
                Some(info) => Ok(Some(info.messages)),
                None => Err(BrokerError::new(
                    Kind::NotFound,
                    format!(
                        "there is no queue '{}': make it, or let ackonce do so with --declare create",
                        self.queue
                    ),
                )),
            },
            Declare::None => Ok(None),
        }
    }
}

/// See the module. Dropping it cuts the connection; [`Session::close`] writes the last acks first.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    pub(super) connection: Connection,
    channel: Channel,
    consumer: Consumer,
    messages: Option<u32>,
    settlements: mpsc::UnboundedSender<Batch>,
    settler: JoinHandle<Result<(), BrokerError>>,
    stopping: bool,
    ended: bool,
}

impl Session {
    /// Waits for deliveries: all that are here, at most `BATCH_MAX`, in order.
    ///
    /// # Errors
    ///
    /// Why the session is over: an error, the connection's end, or the end of the consumer (its
    /// queue was deleted, or the broker cancelled it). It is reported once; then this pends.
    ///
    /// # Cancellation
    ///
    /// Safe: no delivery is lost.
    pub async fn receive(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        if self.ended {
            return std::future::pending().await;
        }
        let first = select! {
            biased;
            settled = &mut self.settler => {
                self.ended = true;
                return Err(match settled {
                    Ok(Err(error)) => error,
                    Ok(Ok(())) | Err(_) => BrokerError::new(Kind::Lost, "acknowledging has ended"),
                });
            }
            first = self.consumer.next() => first,
        };
        let mut batch = Vec::new();
        let mut next = first;
        loop {
            match next {
                Some(Ok(delivery)) => batch.push(self.hand_over(delivery)),
                Some(Err(error)) => return self.over(batch, BrokerError::from_lapin(&error)),
                None if self.stopping => {
                    // Cancelled at our own request: nothing comes any more, acks still go.
                    self.ended = true;
                    return Ok(batch);
                }
                None => return self.over(batch, self.cancelled()),
            }
            if batch.len() >= BATCH_MAX {
                return Ok(batch);
            }
            match self.consumer.next().now_or_never() {
                Some(more) => next = more,
                None => return Ok(batch),
            }
        }
    }

    /// Says to the broker what became of deliveries, coalesced and in the background.
    ///
    /// Receipts of another session are ignored: their deliveries are with the broker again.
    pub fn settle(&mut self, settlements: Vec<(Receipt, Settlement)>) {
        let batch: Batch = settlements
            .into_iter()
            .filter(|(receipt, _)| receipt.session() == self.id)
            .map(|(receipt, settlement)| (receipt.tag(), settlement))
            .collect();
        // If the settler has ended, `receive` reports why.
        let _ = self.settlements.send(batch);
    }

    /// Asks for no more deliveries. What was on its way still arrives.
    pub fn stop_consuming(&mut self) {
        self.stopping = true;
        let (channel, tag) = (self.channel.clone(), self.consumer.tag());
        tokio::spawn(async move {
            // If this fails the session is over anyway, and `receive` reports it.
            let _ = answer(channel.basic_cancel(tag, BasicCancelOptions { nowait: false })).await;
        });
    }

    /// Writes what is still to be settled, and says goodbye; each within a few seconds.
    pub async fn close(self) {
        let Self { connection, channel, settlements, settler, .. } = self;
        drop(settlements);
        // A settler that has failed was seen by `receive`; it must not be awaited twice.
        if !settler.is_finished() {
            let _ = timeout(CLOSE_TIMEOUT, settler).await;
        }
        let _ = timeout(CLOSE_TIMEOUT, channel.close(200, "OK".into())).await;
        connection.close(CLOSE_TIMEOUT).await;
    }

    /// The broker's URL without the password.
    pub fn broker(&self) -> String {
        self.connection.to_string()
    }

    /// Messages ready when the session began, if it looked.
    pub fn messages(&self) -> Option<u32> {
        self.messages
    }

    fn hand_over(&self, delivery: lapin::message::Delivery) -> Delivery {
        let (message, tag) = convert::message(delivery);
        Delivery { message: Arc::new(message), receipt: Receipt::new(self.id, tag) }
    }

    /// Deliveries that came before the end are of no use: the broker has taken them back.
    fn over(&mut self, batch: Vec<Delivery>, why: BrokerError) -> Result<Vec<Delivery>, BrokerError> {
        drop(batch);
        self.ended = true;
        Err(self.connection.why_ended().unwrap_or(why))
    }

    fn cancelled(&self) -> BrokerError {
        BrokerError::new(
            Kind::Lost,
            "the broker ended the consumer: its queue was deleted or moved, or a delivery was not acked in time",
        )
    }
}

async fn answer<T>(question: impl Future<Output = lapin::Result<T>>) -> Result<T, BrokerError> {
    match timeout(ANSWER_TIMEOUT, question).await {
        Ok(result) => result.map_err(|error| BrokerError::from_lapin(&error)),
        Err(_) => Err(BrokerError::new(
            Kind::Timeout,
            format!("the broker does not answer within {ANSWER_TIMEOUT:?}"),
        )),
    }
}
