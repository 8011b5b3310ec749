//! `ackonce publish`: messages into a queue or exchange, each confirmed by the broker.
//!
//! An id is printed only once the broker has confirmed the message; whatever is not confirmed is
//! named on stderr, so that exactly the rest can be sent again under the same ids.

mod input;
mod properties;
mod report;
mod sending;

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, builder::RangedU64ValueParser};

use crate::{
    broker::{
        Outgoing, Publisher,
        topology::{self, QueueType},
    },
    cli::{Failure, broker::BrokerArgs},
    message::Properties,
};
use input::Input;
#[cfg(fuzzing)]
pub use input::lines_of;
use properties::PropertyArgs;
use report::Report;

/// Publish messages and wait until the broker has them
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("target").args(["queue", "exchange"]).required(true))]
#[command(group = ArgGroup::new("source").args(["body", "file", "lines"]))]
#[command(
    after_help = "Ids of confirmed messages go to stdout, one per line; everything else to stderr. Exit \
                        code 0: all are confirmed; 1: some are not (stderr says which); 2: wrong usage."
)]
pub struct PublishArgs {
    /// Publish to this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    /// Publish to this exchange
    #[arg(long, value_name = "EXCHANGE")]
    exchange: Option<String>,

    /// The routing key, for an exchange
    #[arg(long, value_name = "KEY", conflicts_with = "queue")]
    routing_key: Option<String>,

    /// Create the queue, with its dead-letter queue, if it is missing
    #[arg(long, requires = "queue")]
    create: bool,

    /// The type of a queue that is created: quorum or classic
    #[arg(long, value_name = "TYPE", default_value = "quorum", requires = "create")]
    queue_type: QueueType,

    /// The message's body; - reads it from stdin
    #[arg(value_name = "BODY", allow_hyphen_values = false)]
    body: Option<String>,

    /// Read the body from a file; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Publish each line of a file as one message; - is stdin
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,

    /// The message id [default: a new UUID for each message]
    #[arg(long, value_name = "ID", conflicts_with_all = ["lines", "count", "id_prefix"])]
    message_id: Option<String>,

    /// Number the message ids: PREFIX-1, PREFIX-2, …; the same ids again when sent again
    #[arg(long, value_name = "PREFIX")]
    id_prefix: Option<String>,

    /// Publish so many messages of each body, each with its own id
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    count: Option<u64>,

    /// Leave out so many messages at the start, keeping the numbers of the others: to go on after a stop
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,

    /// Publish each message so many times under the same id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    repeat: u32,

    /// Publish everything in random order (holds it in memory)
    #[arg(long)]
    shuffle: bool,

    /// Makes the random order the same each time
    #[arg(long, value_name = "N", requires = "shuffle")]
    seed: Option<u64>,

    #[command(flatten)]
    properties: PropertyArgs,

    /// How long each message may take to be confirmed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,

    /// How many messages may wait for their confirm at once
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = RangedU64ValueParser::<u32>::new().range(1..=100_000))]
    window: u32,

    /// One JSON object per message on stdout: message_id, status, line or index, reason
    #[arg(long)]
    json: bool,

    /// Print no ids
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

/// Where all messages of one run go, and with what.
#[derive(Clone, Debug)]
struct Template {
    exchange: String,
    routing_key: String,
    properties: Properties,
}

impl Template {
    fn outgoing(&self, message_id: &str, body: std::sync::Arc<[u8]>) -> Outgoing {
        Outgoing {
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            properties: Properties { message_id: Some(message_id.to_owned()), ..self.properties.clone() },
            body,
            mandatory: true,
        }
    }
}

/// Runs the command. SIGINT or SIGTERM stop it early: what is under way gets a second to be confirmed.
///
/// # Errors
///
/// A usage failure before anything was sent; a failure if any message is not confirmed.
pub async fn run(args: PublishArgs) -> Result<(), Failure> {
    let endpoints = args.broker.endpoints()?;
    for endpoint in &endpoints {
        for warning in endpoint.warnings() {
            eprintln!("warning: {warning}");
        }
    }
    let template = args.template()?;
    let input = Input::open(&args)?;
    // Before anything is sent: what does not fit into AMQP is wrong usage.
    template
        .outgoing(&input.longest_id(), std::sync::Arc::from([]))
        .check()
        .map_err(|error| Failure::usage(error.to_string()))?;

    let publisher = Publisher::new(endpoints, "publish", args.window as usize);
    let connection = publisher.connection().await.map_err(|error| Failure::failed(error.to_string()))?;
    if let (true, Some(queue)) = (args.create, &args.queue) {
        topology::ensure_work_queue(&connection, queue, args.queue_type)
            .await
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    drop(connection);

    let report = Report::new(args.json, args.quiet, input.total());
    let report =
        sending::send_all(&publisher, &template, input, args.window as usize, args.timeout, report).await;
    publisher.close(sending::GOODBYE).await;
    report.finish(args.queue.as_deref().filter(|_| !args.create))
}

impl PublishArgs {
    fn template(&self) -> Result<Template, Failure> {
        let (exchange, routing_key) = match (&self.queue, &self.exchange) {
            (Some(queue), _) if queue.is_empty() => return Err(Failure::usage("the queue's name is empty")),
            (Some(queue), _) => (String::new(), queue.clone()),
            (None, exchange) => {
                (exchange.clone().unwrap_or_default(), self.routing_key.clone().unwrap_or_default())
            }
        };
        if self.create {
            topology::check_queue_name(&routing_key).map_err(Failure::usage)?;
        }
        Ok(Template { exchange, routing_key, properties: self.properties.properties()? })
    }
}

/// `30s`, `5m`; a bare number is seconds.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    // A year: far enough, and no clock arithmetic overflows.
    if timeout.is_zero() || timeout > Duration::from_secs(365 * 86_400) {
        return Err("it must be more than nothing and at most a year".into());
    }
    Ok(timeout)
}
