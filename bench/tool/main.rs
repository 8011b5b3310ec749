//! What the measurements in `bench/` need beside the programs they measure: queues, ledgers full of rows, and the
//! references (the raw consumer, the raw publisher, the bare spawn-and-wait). Prints one JSON object.
//!
//!     cargo run --release --example bench-tool -- --help

mod consume;
mod keys;
mod latency;
mod ledger;
mod percentiles;
mod publish;
mod queue;
mod spawn;

use std::{error::Error, path::PathBuf};

use ackonce::broker::topology::QueueType;
use clap::{Parser, Subcommand};
use keys::Keys;
use lapin::{Channel, Connection, ConnectionProperties};

/// What ends a measurement; `main` prints it.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    /// Broker
    #[arg(long, env = "AMQP_URL", default_value = "amqp://127.0.0.1:5672")]
    url: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a durable queue
    Declare {
        queue: String,
        #[arg(long, default_value = "quorum")]
        queue_type: QueueType,
    },
    /// Remove what waits in a queue
    Purge { queue: String },
    /// Delete a queue
    Delete { queue: String },
    /// Say when a queue gets its first consumer, and when nothing in it waits for delivery any more
    Watch { queue: String },
    /// The raw consumer: takes messages and acks every hundredth
    Consume {
        queue: String,
        #[arg(long)]
        messages: u64,
        #[arg(long, default_value_t = 1000)]
        prefetch: u16,
    },
    /// The raw publisher: persistent messages with an id each, confirmed
    Publish {
        queue: String,
        #[arg(long)]
        messages: u64,
        #[arg(long, default_value_t = 1000)]
        window: usize,
        /// Body of each message
        #[arg(long)]
        body: String,
        #[arg(long, default_value = "uuid7")]
        keys: Keys,
    },
    /// Bare spawn-and-wait of a program
    Spawn {
        #[arg(long)]
        runs: u64,
        #[arg(long)]
        concurrency: usize,
        program: String,
    },
    /// From publish to ack at a steady rate: the raw consumer, then the full path
    Latency {
        #[arg(long)]
        messages: usize,
        /// Messages per second
        #[arg(long, default_value_t = 1000)]
        rate: u32,
        #[arg(long, default_value = "quorum")]
        queue_type: QueueType,
        /// Folder for the ledger
        #[arg(long)]
        folder: PathBuf,
    },
    /// Fill a ledger with done rows
    Seed {
        ledger: PathBuf,
        #[arg(long)]
        rows: u64,
        #[arg(long, default_value = "uuid7")]
        keys: Keys,
    },
    /// Claims while rows are pruned, and without that
    Prune {
        #[arg(long)]
        rows: u64,
        /// Folder for the ledger
        #[arg(long)]
        folder: PathBuf,
    },
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let Args { url, what } = Args::parse();
    let result = match what {
        What::Declare { queue, queue_type } => queue::declare(&url, &queue, queue_type).await?,
        What::Delete { queue } => queue::delete(&url, &queue).await?,
        What::Purge { queue } => queue::purge(&url, &queue).await?,
        What::Watch { queue } => queue::watch(&url, &queue).await?,
        What::Consume { queue, messages, prefetch } => consume::run(&url, &queue, messages, prefetch).await?,
        What::Publish { queue, messages, window, body, keys } => {
            publish::run(&url, &queue, messages, window, body.as_bytes(), keys).await?
        }
        What::Spawn { runs, concurrency, program } => spawn::run(runs, concurrency, &program).await?,
        What::Latency { messages, rate, queue_type, folder } => {
            latency::run(&url, messages, rate, queue_type, &folder).await?
        }
        What::Seed { ledger, rows, keys } => ledger::seed(&ledger, rows, keys).await?,
        What::Prune { rows, folder } => ledger::prune(&folder, rows).await?,
    };
    println!("{result}");
    Ok(())
}

/// A connection as any program would make it, and a channel on it.
async fn open(url: &str) -> Result<(Connection, Channel), Failure> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}
