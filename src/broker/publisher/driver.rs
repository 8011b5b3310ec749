//! The one task that publishes on a connection and hears the confirms.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, poll_immediate},
    stream::FuturesUnordered,
    task::{ArcWake, waker},
};
use lapin::{
    Channel, Confirmation, ErrorKind,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    PublishError, Room,
    outgoing::Prepared,
    pending::{Answer, Pending},
};
use crate::broker::{BrokerError, Connection, Kind, connect};

/// For switching a channel to confirms.
const SELECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For the last words of a channel that has been closed.
const HEAR_OUT_TIMEOUT: Duration = Duration::from_secs(1);

/// One message to publish, and who wants to know.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) prepared: Arc<Prepared>,
    pub(super) reply: oneshot::Sender<Result<(), PublishError>>,
    pub(super) room: Arc<Room>,
}

impl Job {
    fn answer(self, result: Result<(), PublishError>) {
        self.room.give_back();
        // Whoever asked may have given up by now.
        let _ = self.reply.send(result);
    }
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
            // After each of them: on a busy machine a message may be confirmed while it is started.
            self.hear_ready();
            self.settle();
        };
        self.hear_ready();
        self.settle();
        self.give_up(&cause);
        jobs.close();
        while let Some(job) = jobs.recv().await {
            // Never handed to lapin, but asked for: whoever waits is told the same as the others.
            job.answer(Err(PublishError::Lost(cause.to_string())));
        }
    }

    async fn start(&mut self, mut job: Job) {
        loop {
            if self.pending.len() >= self.pending_max {
                self.connection.cut();
                let count = self.pending.len();
                let text = format!("{count} messages have no answer: the connection is given up");
                return job.answer(Err(PublishError::Lost(text)));
            }
            if !self.channel.status().connected()
                && let Err(error) = self.replace_channel().await
            {
                return job.answer(Err(PublishError::Lost(error.to_string())));
            }
            let prepared = job.prepared.clone();
            let number = self.pending.add(job);
            let mut publishing = publish(self.channel.clone(), prepared, number).boxed();
            // The first poll queues the frames: they go out in the order of the numbers.
            let Some(told) = poll_immediate(&mut publishing).await else {
                return self.confirms.push(publishing);
            };
            // The channel was closed just now and took nothing: another one will.
            let took_nothing =
                matches!(&told.1, Err(e) if matches!(e.kind(), ErrorKind::InvalidChannelState(..)));
            if !took_nothing {
                return self.hear(told);
            }
            match self.pending.take(number) {
                Some(untold) => job = untold,
                None => return,
            }
        }
    }

    /// Hears out what a closed channel still has to tell, which includes why, and opens another.
    async fn replace_channel(&mut self) -> Result<(), BrokerError> {
        let hear_out = async {
            while let Some(told) = self.confirms.next().await {
                self.hear(told);
                self.hear_ready();
                self.settle();
            }
        };
        // lapin fails everything on a channel that closes; if it ever did not, this ends the wait.
        let _ = timeout(HEAR_OUT_TIMEOUT, hear_out).await;
        self.give_up(&BrokerError::new(Kind::Lost, "the channel is closed"));
        self.channel = confirming_channel(&self.connection).await?;
        Ok(())
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
    }

    /// Hears everything that lapin has told by now. A confirm that came along with somebody else's
    /// return may be heard after one that lapin told later; settling in between would believe too much.
    fn hear_ready(&mut self) {
        let woken = Arc::new(Woken::default());
        let waker = waker(woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            woken.0.store(false, Ordering::SeqCst);
            match self.confirms.poll_next_unpin(&mut context) {
                Poll::Ready(Some(told)) => self.hear(told),
                Poll::Ready(None) => return,
                // It only took a breath.
                Poll::Pending if woken.0.load(Ordering::SeqCst) => {}
                Poll::Pending => return,
            }
        }
    }

    fn settle(&mut self) {
        while let Some((job, told)) = self.pending.pop_final() {
            job.answer(match told {
                Answer::Acked => Ok(()),
                Answer::Nacked => Err(PublishError::Nacked),
                Answer::Unroutable(text) => Err(PublishError::Unroutable(text)),
            });
        }
    }

    fn give_up(&mut self, cause: &BrokerError) {
        self.confirms.clear();
        let jobs = self.pending.take_all();
        let alone = jobs.len() == 1;
        for job in jobs {
            let error = job.prepared.after(cause, alone);
            job.answer(Err(error));
        }
    }
}

/// Notices being woken, and does nothing about it.
#[derive(Default)]
struct Woken(AtomicBool);

impl ArcWake for Woken {
    fn wake_by_ref(this: &Arc<Self>) {
        this.0.store(true, Ordering::SeqCst);
    }
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
