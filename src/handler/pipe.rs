//! Long-lived children: each is given many messages over its standard input, and answers on its
//! standard output. Starting a program costs a hundred times what handing a message over does.

mod answers;
mod child;
mod codec;
mod pool;
mod stderr;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{Handler, Verdict, Work};
use answers::Request;
#[cfg(fuzzing)]
pub use codec::read_replies;
use pool::Pool;

/// How messages and replies are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Framing {
    /// One JSON object in a line, for each.
    #[default]
    #[serde(rename = "lines")]
    Lines,
    /// Each frame begins with its length: the JSON object in one, the body as it is in another.
    #[serde(rename = "length_prefixed_uint32_be")]
    LengthPrefixed,
}

/// What a pool of children is made of.
#[derive(Clone, Debug)]
pub struct PipeOptions {
    pub program: String,
    pub args: Vec<String>,
    /// From handing a message over to SIGTERM for its child.
    pub timeout: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// At least 1.
    pub children: usize,
    /// Messages that one child has at the same time, at least 1.
    pub in_flight: usize,
    pub framing: Framing,
}

/// Hands each message to a child of a pool.
///
/// Dropping it kills the children; [`Handler::close`] lets them end by themselves.
#[derive(Debug)]
pub struct Pipe {
    pool: Arc<Pool>,
}

impl Pipe {
    /// Children start when there is work for them.
    pub fn new(options: PipeOptions) -> Self {
        Self { pool: Arc::new(Pool::new(options)) }
    }
}

impl Handler for Pipe {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let (answer, verdict) = oneshot::channel();
        self.pool.submit(Request { work, answer });
        Box::pin(async move {
            let lost = |_| Verdict::Retry { error: "the pool of children has ended".into(), after: None };
            verdict.await.unwrap_or_else(lost)
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        self.probe()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.pool.probe())
    }

    fn close(&self, at_once: bool) -> BoxFuture<'_, ()> {
        Box::pin(self.pool.close(at_once))
    }

    fn guarantee(&self) -> &'static str {
        "each message is done once by a child's word; a crash between that and the ledger's commit hands it over again, with \"interrupted\": true"
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.pool.abort();
    }
}
