//! Where copies of messages go: the queues they need are made when they are needed.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Declare, Outgoing, PublishError, Publisher,
    topology::{self, QueueSpec, QueueType},
};

/// The queue that a copy is published to, through the default exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `<queue>.dead`
    DeadLetters { queue: String },
    /// `<queue>.retry.<ms>`, from which it comes back to `queue`.
    Delay { queue: String, delay: Duration },
}

impl Destination {
    pub fn queue_name(&self) -> String {
        self.spec(QueueType::default()).name
    }

    fn spec(&self, kind: QueueType) -> QueueSpec {
        match self {
            Destination::DeadLetters { queue } => topology::dead_queue(queue, kind),
            Destination::Delay { queue, delay } => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                topology::retry_queue(queue, delay_ms, kind)
            }
        }
    }
}

/// Publishes copies, confirmed, on a connection of its own.
#[derive(Debug)]
pub struct Outlet {
    publisher: Publisher,
    declare: Declare,
    queue_type: QueueType,
    /// Queues that were there when last looked for.
    known: Mutex<HashSet<String>>,
}

impl Outlet {
    /// Queues are made only with [`Declare::Create`]; otherwise they must be there.
    pub fn new(publisher: Publisher, declare: Declare, queue_type: QueueType) -> Self {
        Self { publisher, declare, queue_type, known: Mutex::default() }
    }

    /// Publishes one copy within `limit`, its queue's declaration included.
    ///
    /// # Errors
    ///
    /// As [`Publisher::publish`]. The copy may have arrived all the same
    /// ([`PublishError::may_have_arrived`]), but is not known to.
    ///
    /// # Cancellation
    ///
    /// The copy may arrive.
    pub async fn publish(
        &self,
        destination: &Destination,
        outgoing: Outgoing,
        limit: Duration,
    ) -> Result<(), PublishError> {
        let deadline = Instant::now() + limit;
        let spec = destination.spec(self.queue_type);
        self.ensure(&spec).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        match self.publisher.publish(outgoing.clone(), left).await {
            // Somebody has deleted it since.
            Err(PublishError::Unroutable(_)) if self.forget(&spec.name) => {
                self.ensure(&spec).await?;
                let left = deadline.saturating_duration_since(Instant::now());
                self.publisher.publish(outgoing, left).await
            }
            Err(error @ PublishError::Blocked(_)) => {
                // On a connection that was blocked before, lapin has written nothing yet, and would
                // write it once the alarm ends, beside the copy that is sent again: without the
                // connection it never will. The copy that made the broker block the connection is in
                // the broker's hands already, and may arrive twice.
                self.publisher.close(Duration::ZERO).await;
                Err(error)
            }
            result => result,
        }
    }

    /// Whether an alarm of the broker's blocks copies just now.
    pub fn is_blocked(&self) -> bool {
        self.publisher.is_blocked()
    }

    async fn ensure(&self, spec: &QueueSpec) -> Result<(), PublishError> {
        let is_known = self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&spec.name);
        if is_known || self.declare != Declare::Create {
            return Ok(());
        }
        let connection = self.publisher.connection().await.map_err(PublishError::NotConnected)?;
        topology::ensure(&connection, spec).await.map_err(PublishError::NotConnected)?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.name.clone());
        Ok(())
    }

    fn forget(&self, queue: &str) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(queue)
    }
}
