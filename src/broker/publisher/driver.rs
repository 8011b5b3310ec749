//! The one task that publishes on a connection and hears the confirms.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, poll_immediate},
    stream::FuturesUnordered,
};
use lapin::{
    Channel, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    PublishError,
    outgoing::Prepared,
    pending::{Answer, Pending},
};
use crate::broker::{BrokerError, Connection, Kind, connect};

/// For switching a channel to confirms.
const SELECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One message to publish, and who wants to know.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) prepared: Arc<Prepared>,
    pub(super) reply: oneshot::Sender<Result<(), PublishError>>,
}

/// Lives as long as its connection, through any number of channels.
pub(super) struct Driver {
    connection: Arc<Connection>,
    channel: Channel,
    pending: Pending<Job>,
    confirms: FuturesUnordered<BoxFuture<'static, Told>>,
    pending_max: usize,
}

/// What lapin tells about the message of that number.
type Told = (u64, lapin::Result<Confirmation>);

impl Driver {
    /// `pending_max` bounds the messages without an answer, those included whose caller gave up:
    /// more mean that the broker has forgotten us, and the connection is cut.
    pub(super) async fn new(connection: Arc<Connection>, pending_max: usize) -> Result<Self, BrokerError> {
        let channel = confirming_channel(&connection).await?;
        Ok(Self {
            connection,
            channel,
            pending: Pending::default(),
            confirms: FuturesUnordered::new(),
            pending_max,
        })
    }

    /// Ends when the connection has ended, or when nobody can ask any more and all is answered.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut state = self.connection.state();
        let mut asked = true;
        let cause = loop {
            if !asked && self.pending.len() == 0 {
                return;
            }
            tokio::select! {
                biased;
                Some(told) = self.confirms.next() => self.hear(told),
                cause = connect::ended(&mut state) => break cause,
                job = jobs.recv(), if asked => match job {
                    Some(job) => self.start(job).await,
                    None => asked = false,
                },
            }
        };
        while let Some(Some(told)) = self.confirms.next().now_or_never() {
            self.hear(told);
        }
        self.give_up(&cause);
        jobs.close();
        while let Some(job) = jobs.recv().await {
            // Never handed to lapin, but asked for: whoever waits is told the same as the others.
            answer(job.reply, Err(PublishError::Lost(cause.to_string())));
        }
    }

    async fn start(&mut self, job: Job) {
        if self.pending.len() >= self.pending_max {
            self.connection.cut();
            let text = format!("{} messages have no answer: the connection is given up", self.pending.len());
            answer(job.reply, Err(PublishError::Lost(text)));
            return;
        }
        if !self.channel.status().connected() {
            // What was under way on the closed channel gets no answer any more.
            self.give_up(&BrokerError::new(Kind::Lost, "the channel is closed"));
            match confirming_channel(&self.connection).await {
                Ok(channel) => self.channel = channel,
                Err(error) => return answer(job.reply, Err(PublishError::Lost(error.to_string()))),
            }
        }
        let prepared = job.prepared.clone();
        let number = self.pending.add(job);
        let mut publishing = publish(self.channel.clone(), prepared, number).boxed();
        // The first poll queues the frames: they go out in the order of the numbers.
        match poll_immediate(&mut publishing).await {
            Some(told) => self.hear(told),
            None => self.confirms.push(publishing),
        }
    }

    fn hear(&mut self, (number, told): Told) {
        let (acked, returned) = match told {
            Ok(Confirmation::Ack(returned)) => (Answer::Acked, returned),
            Ok(Confirmation::Nack(returned)) => (Answer::Nacked, returned),
            // Confirms are on for this channel.
            Ok(Confirmation::NotRequested) => (Answer::Nacked, None),
            // The channel or the connection is gone, and with it all other answers.
            Err(error) => return self.give_up(&BrokerError::from_lapin(&error)),
        };
        self.pending.confirmed(number, acked);
        if let Some(returned) = returned {
            let text = format!("{} {}", returned.reply_code, returned.reply_text);
            self.pending.returned(text, |job| job.prepared.is(&returned.delivery));
        }
        while let Some((job, told)) = self.pending.pop_final() {
            answer(
                job.reply,
                match told {
                    Answer::Acked => Ok(()),
                    Answer::Nacked => Err(PublishError::Nacked),
                    Answer::Unroutable(text) => Err(PublishError::Unroutable(text)),
                },
            );
        }
    }

    fn give_up(&mut self, cause: &BrokerError) {
        self.confirms.clear();
        let jobs = self.pending.take_all();
        let alone = jobs.len() == 1;
        for job in jobs {
            let error = job.prepared.after(cause, alone);
            answer(job.reply, Err(error));
        }
    }
}

/// Whoever asked may have given up by now.
fn answer(reply: oneshot::Sender<Result<(), PublishError>>, result: Result<(), PublishError>) {
    let _ = reply.send(result);
}

async fn publish(channel: Channel, message: Arc<Prepared>, number: u64) -> Told {
    let options = BasicPublishOptions { mandatory: message.mandatory, immediate: false };
    let sent = channel
        .basic_publish(
            message.exchange.clone(),
            message.routing_key.clone(),
            options,
            &message.body,
            message.properties.clone(),
        )
        .await;
    match sent {
        Ok(confirm) => (number, confirm.await),
        Err(error) => (number, Err(error)),
    }
}

async fn confirming_channel(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = connection.channel().await?;
    match timeout(SELECT_TIMEOUT, channel.confirm_select(ConfirmSelectOptions { nowait: false })).await {
        Ok(Ok(())) => Ok(channel),
        Ok(Err(error)) => Err(BrokerError::from_lapin(&error)),
        Err(_) => Err(BrokerError::new(Kind::Timeout, "switching to confirms timed out")),
    }
}
