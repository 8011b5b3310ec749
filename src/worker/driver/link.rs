//! The link to the broker: one session after the other, for as long as the worker lives.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    broker::{BrokerError, Session},
    message::Delivery,
};

use super::{Driver, Event, WorkerError};

/// A session that lasted less does not reset the backoff: something ends them.
const SESSION_PROVEN: Duration = Duration::from_secs(5);

impl Driver {
    pub(super) fn connect(&mut self, after: Duration) {
        self.sessions += 1;
        let (source, id) = (self.worker.source.clone(), self.sessions);
        let first = !self.ever_connected;
        let open = async move {
            tokio::time::sleep(after).await;
            let session = source.open(id).await?;
            if first && let Some(why) = source.why_dropped(&session).await {
                warn!(
                    queue = source.queue,
                    "the broker drops a message of this quorum queue that was delivered more often than its limit, \
                     as after some crashes: {why}; give it one, with a policy or when it is made"
                );
            }
            Ok(session)
        };
        self.connecting = Some(open.boxed()).into();
    }

    pub(super) fn session_opened(&mut self, opened: Result<Session, BrokerError>) -> Result<(), WorkerError> {
        self.connecting = None.into();
        match opened {
            Ok(session) => {
                info!(queue = &*self.worker.policy.queue, "consuming from {}", session.broker());
                self.session = Some(session);
                self.opened = Some(Instant::now());
                self.ever_connected = true;
                if let Some(signs) = &self.worker.signs {
                    signs.session_opened();
                }
                self.take(Event::SessionOpened(self.sessions));
                Ok(())
            }
            Err(error) if error.is_permanent() && !self.ever_connected => Err(WorkerError::Broker(error)),
            Err(error) => {
                self.connect_again(&error);
                Ok(())
            }
        }
    }

    pub(super) fn session_ended(&mut self, why: &BrokerError) {
        self.session = None;
        if self.opened.take().is_some_and(|opened| opened.elapsed() >= SESSION_PROVEN) {
            self.broker.heal(Instant::now());
        }
        self.take(Event::SessionEnded);
        if let Some(signs) = &self.worker.signs {
            signs.session_ended(why);
        }
        if self.deadline.is_none() {
            self.connect_again(why);
        }
    }

    fn connect_again(&mut self, why: &BrokerError) {
        let failure = self.broker.fail(Instant::now(), why);
        if failure.mention {
            warn!(queue = &*self.worker.policy.queue, "no session with the broker, trying again: {why}");
        }
        if let Some(signs) = &self.worker.signs {
            signs.session_away(why);
        }
        self.connect(failure.delay);
    }
}

/// Pends for ever without a session; its end is reported once.
pub(super) async fn receive(session: &mut Option<Session>) -> Result<Vec<Delivery>, BrokerError> {
    match session {
        Some(session) => session.receive().await,
        None => std::future::pending().await,
    }
}
