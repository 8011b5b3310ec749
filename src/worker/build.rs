//! A worker with the defaults of `ackonce run`, for programs.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    broker::{Declare, Endpoint, Outlet, Publisher, Source, topology::QueueType, uri::UriError},
    handler::Handler,
    ledger::{Effects, Ledger},
};

use super::{Handling, Policy, Worker};

/// Unconfirmed copies at the same time.
const PUBLISH_WINDOW: usize = 100;

impl Worker {
    /// Consumes `queue` of the broker at `url` with `handler`, and remembers in `ledger`. The queue is
    /// made if it is missing.
    ///
    /// Everything has the defaults of `ackonce run`; the fields may be changed before
    /// [`Worker::run`]. What [`Source`] says of queue and prefetch has to be said there as well.
    ///
    /// # Errors
    ///
    /// The URL is not one of a broker. Nothing is connected yet.
    pub fn new(
        url: &str,
        queue: &str,
        handler: impl Handler + 'static,
        ledger: Arc<dyn Ledger>,
    ) -> Result<Self, UriError> {
        Self::build(url, queue, Handling::Claimed(Arc::new(handler)), ledger)
    }

    /// The same with a handler inside the transactions of the ledger that it comes with.
    ///
    /// # Errors
    ///
    /// As for [`Worker::new`].
    pub fn transactional(url: &str, queue: &str, effects: impl Effects + 'static) -> Result<Self, UriError> {
        let ledger = effects.ledger();
        Self::build(url, queue, Handling::Transactional(Arc::new(effects)), ledger)
    }

    fn build(url: &str, queue: &str, handler: Handling, ledger: Arc<dyn Ledger>) -> Result<Self, UriError> {
        let endpoints = vec![Endpoint::parse(url)?];
        let policy = Policy::new(queue);
        let source = Source {
            endpoints: endpoints.clone(),
            queue: queue.to_owned(),
            declare: Declare::default(),
            queue_type: QueueType::default(),
            prefetch: policy.prefetch,
            rejects: None,
        };
        let publisher = Publisher::new(endpoints, format!("publisher for {queue}"), PUBLISH_WINDOW);
        Ok(Self {
            policy: Arc::new(policy),
            handler,
            ledger,
            outlet: Arc::new(Outlet::new(publisher, source.declare, source.queue_type)),
            source: Arc::new(source),
            drain_timeout: Duration::from_secs(25),
            counts: watch::Sender::default(),
            signs: None,
        })
    }
}
