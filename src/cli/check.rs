//! `ackonce check`: would a worker with this configuration work here? It looks, and changes nothing.

mod broker;
mod handler;
mod ledger;
mod queue;
mod report;

use std::time::Duration;

use clap::Args;
use futures::future::join_all;

use super::{Failure, run::RunArgs};
use crate::config::Config;
use report::Line;

/// For closing the connection.
const GOODBYE: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// One JSON object per line on stdout
    // Before the rest: a handler's command takes all that follows it.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// Looks at everything that a worker needs, and prints a line for each.
///
/// # Errors
///
/// With code 2 what is wrong with the configuration, all of it; with code 1 how much else is wrong. Nothing of
/// what is wrong hides the rest, and each part is given up after a while.
pub async fn run(args: CheckArgs) -> Result<(), Failure> {
    let config = args.run.config()?;
    let handlers = join_all(config.workers.iter().map(handler::look));
    let (broker, ledger, handlers) = tokio::join!(broker_side(&config), ledger::look(&config), handlers);
    let mut lines = vec![configuration(&config)];
    lines.extend(broker);
    lines.extend(ledger);
    lines.extend(handlers);
    report::print(&lines, args.json)
}

fn configuration(config: &Config) -> Line {
    let queues: Vec<&str> = config.workers.iter().map(|worker| &*worker.policy.queue).collect();
    let workers = if queues.len() == 1 { "worker" } else { "workers" };
    Line::ok("configuration", format!("{} {workers}: {}", queues.len(), queues.join(", ")))
}

async fn broker_side(config: &Config) -> Vec<Line> {
    let (mut lines, connection) = broker::look(&config.broker).await;
    for worker in &config.workers {
        lines.extend(queue::look(connection.as_ref(), worker).await);
    }
    if let Some(connection) = connection {
        connection.close(GOODBYE).await;
    }
    lines
}
