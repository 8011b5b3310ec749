//! `ackonce bench`: what the ledger costs here. A raw consumer and the full path take the same messages
//! in turn, on the same broker and disk, so that their ratio means something on a noisy machine.

mod load;
mod report;
mod round;
mod timed;

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use uuid::Uuid;

use crate::{
    broker::{
        Endpoint, Publisher,
        topology::{self, QueueSpec, QueueType},
    },
    message::{Table, Value},
};

use super::{Failure, broker::BrokerArgs};
use report::Report;
use round::Round;

/// What `ackonce bench` is asked for.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Messages in each round
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// Rounds; the medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Type of the queue: quorum or classic
    #[arg(long, value_name = "TYPE", default_value = "quorum")]
    queue_type: QueueType,
    /// Bytes of each body
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    body_size: u32,
    /// Share of the messages that the ledger knows already, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    duplicates: f64,
    /// Message ids: uuid7 (they grow) or uuid4 (random)
    #[arg(long, value_name = "KIND", default_value = "uuid7")]
    keys: Keys,
    /// Unacked deliveries at the same time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    prefetch: u16,
    /// Rows in the ledger before each round
    #[arg(long, value_name = "N", default_value_t = 0)]
    ledger_rows: u64,
    /// Folder for the ledger, on the disk to be measured; what is made there is deleted
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArgs,
}

/// How message ids are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Keys {
    Uuid7,
    Uuid4,
}

impl Keys {
    fn make(self) -> String {
        match self {
            Keys::Uuid7 => Uuid::now_v7().to_string(),
            Keys::Uuid4 => {
                uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid().to_string()
            }
        }
    }
}

/// Measures, prints, and deletes what it made, also after a failure.
///
/// # Errors
///
/// Code 2 for options that mean nothing; code 1 for whatever ends a round.
pub async fn run(args: BenchArgs) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&args.duplicates) {
        return Err(Failure::usage(format!(
            "--duplicates {}: expected a share from 0 to 1",
            args.duplicates
        )));
    }
    let endpoints = args.broker.endpoints()?;
    let publisher = Publisher::new(endpoints.clone(), "bench", load::WINDOW);
    let queue = format!("ackonce.bench.{}", Uuid::now_v7().simple());
    let connection = publisher.connection().await.map_err(Failure::failed)?;
    let kind = Value::text(args.queue_type.as_str());
    let spec = QueueSpec { name: queue.clone(), arguments: Table::from([("x-queue-type".into(), kind)]) };
    topology::ensure(&connection, &spec).await.map_err(Failure::failed)?;
    let result = tokio::select! {
        result = measure(&args, &endpoints, &publisher, &queue) => result,
        _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted; nothing was measured to the end")),
    };
    let connection = publisher.connection().await.map_err(Failure::failed)?;
    topology::delete(&connection, &queue).await.map_err(Failure::failed)?;
    let report = result?;
    report.print(args.json);
    Ok(())
}

async fn measure(
    args: &BenchArgs,
    endpoints: &[Endpoint],
    publisher: &Publisher,
    queue: &str,
) -> Result<Report, Failure> {
    let bar = progress(args);
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let round = Round { args, endpoints, publisher, queue, bar: &bar };
        rounds.push(round.run().await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Report::new(args, &rounds))
}

/// On a terminal only: indicatif draws nothing elsewhere.
fn progress(args: &BenchArgs) -> ProgressBar {
    let bar = ProgressBar::new(args.rounds.into());
    // The template is a constant that its own tests would refuse if it were wrong.
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} round {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
