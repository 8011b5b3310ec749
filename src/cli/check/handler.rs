//! The handlers: could each start now, and end before the broker loses patience?

use std::time::Duration;

use tokio::time::timeout;

use super::report::Line;
use crate::{
    cli::run,
    config::{HandlerConfig, WorkerConfig},
};

/// A probe takes a few seconds at most.
const LIMIT: Duration = Duration::from_secs(15);

const HANDLER: &str = "handler";

/// Whether it could start now. Nothing is run and nothing is sent.
pub(super) async fn look(worker: &WorkerConfig) -> Line {
    let described = run::describe(&worker.handler);
    let line = match timeout(LIMIT, run::serve::probe(&worker.handler)).await {
        Ok(Ok(())) => Line::ok(HANDLER, described + seen_later(&worker.handler)),
        Ok(Err(why)) => Line::fail(
            HANDLER,
            format!("{described}: {why}"),
            "a worker would not start, or start paused, until this is mended",
        ),
        Err(_) => {
            Line::fail(HANDLER, format!("{described}: no answer within {LIMIT:?}"), "see whether it hangs")
        }
    };
    line.of(&worker.policy.queue)
}

/// What cannot be told before a worker starts.
fn seen_later(handler: &HandlerConfig) -> &'static str {
    match handler {
        HandlerConfig::Sql(_) => ", readable; its statements are judged when a worker starts",
        HandlerConfig::Log | HandlerConfig::Exec(_) | HandlerConfig::Pipe(_) | HandlerConfig::Http(_) => "",
    }
}
