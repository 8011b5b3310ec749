//! `ackonce torture`: is anything lost or done twice, with the user's own broker and handler, when workers are killed
//! at random moments? Sends numbered messages with copies to a queue of its own, kills and restarts real worker
//! processes meanwhile, and accounts for every message in the end.

mod crew;
mod faults;
mod load;
mod path;
mod plan;
mod report;
mod tally;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::{
    broker::{Publisher, topology},
    ledger::sqlite::{SqliteLedger, SqliteOptions, SqliteReader},
};

use super::{Failure, progress::Bar, run::RunArgs, run::serve, signals::Signals};
use crew::Crew;
use plan::Plan;
use report::Report;
use tally::Tally;

/// What `ackonce torture` is asked for.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The handler and its settings are given as to `ackonce run`; without one, a built-in handler notes \
each run. Settings come from flags alone, but AMQP_URL and ACKONCE_PASSWORD_FILE count. Exit status 1: a message was \
lost, or took effect twice outside the one window that is promised. What a handler behind --http or --pipe did cannot \
be seen from here: of it, only what the ledger knows is reported."
)]
pub struct TortureArgs {
    /// Messages to send
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// How often each message is sent, in random order
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: u32,
    /// Body of each message; {n} is its number
    #[arg(long, value_name = "TEXT", default_value = "{n}")]
    body: String,
    /// Worker processes on one ledger
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Workers to kill (SIGKILL) and start again, at random moments
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    kills: u32,
    /// Times to cut all the workers' connections, at random moments
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    cuts: u32,
    /// Makes the random moments repeatable [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Without a handler: which built-in one, command or sql
    #[arg(long, value_name = "WHICH", default_value = "command")]
    recorder: Recorder,
    /// Give up when nothing moves for so long
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// Folder for the ledger and the workers' logs; what is made there is deleted, unless something is wrong
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Keep that in any case
    #[arg(long)]
    keep: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    worker: RunArgs,
}

/// A built-in handler, which notes each run that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Recorder {
    /// A command that appends a line to a file.
    Command,
    /// A statement that adds a row, in the ledger's transaction.
    Sql,
}

/// How long a poll of the ledger's progress waits for the next one.
const POLL: Duration = Duration::from_millis(1);
/// The same where a poll reads the whole ledger.
const SLOW_POLL: Duration = Duration::from_millis(200);
/// Unconfirmed messages at the same time.
const WINDOW: usize = 1000;

/// Tortures, prints, and deletes what it made, also when interrupted.
///
/// # Errors
///
/// Code 2 for options that mean nothing; code 1 if a message is lost or doubled, or it cannot be told.
pub async fn run(args: TortureArgs) -> Result<(), Failure> {
    let plan = Plan::new(&args).await?;
    let publisher = Publisher::new(serve::endpoints(&plan.config.broker)?, "torture", WINDOW);
    let mut crew = Crew::new(&plan, args.workers);
    let mut signals = Signals::new();
    let (verdict, interrupted) = tokio::select! {
        report = torture(&args, &plan, &publisher, &mut crew) => (report.and_then(|report| {
            report.print(args.json);
            report.verdict()
        }), false),
        signal = signals.next() => (Err(Failure::failed(format!("interrupted by {signal}"))), true),
    };
    crew.kill_all().await;
    let deleted = delete_queues(&publisher, &plan).await;
    if args.keep || (verdict.is_err() && !interrupted && plan.ledger.exists()) {
        eprintln!("the ledger and the workers' logs: {}", plan.folder.display());
    } else {
        // What cannot be deleted is left where the user can see it.
        let _ = std::fs::remove_dir_all(&plan.folder);
    }
    verdict.and(deleted)
}

async fn delete_queues(publisher: &Publisher, plan: &Plan) -> Result<(), Failure> {
    let connection = publisher.connection().await.map_err(Failure::failed)?;
    for queue in plan.queues() {
        topology::delete(&connection, &queue).await.map_err(Failure::failed)?;
    }
    publisher.close(Duration::from_secs(3)).await;
    Ok(())
}

async fn torture(
    args: &TortureArgs,
    plan: &Plan,
    publisher: &Publisher,
    crew: &mut Crew,
) -> Result<Report, Failure> {
    let started = Instant::now();
    let connection = publisher.connection().await.map_err(Failure::failed)?;
    topology::ensure_work_queue(&connection, &plan.queue, plan.queue_type).await.map_err(Failure::failed)?;
    let reader = make_ledger(plan).await?;
    let path = match args.cuts {
        0 => None,
        _ => Some(path::Path::to(plan.broker_authority.clone()).await?),
    };
    if let Some(path) = &path {
        crew.connect_through(path);
    }
    crew.start_all()?;
    let mut bar = Bar::new(Some(args.messages.into()), "messages");
    let faults = faults::Faults::new(args, plan.seed);
    let allowed = faults.allowed();
    let sending = load::send(args, plan, publisher, allowed);
    let meddling = faults.meddle(args, &reader, crew, path.as_ref(), &mut bar);
    let (sent, happened) = tokio::try_join!(sending, meddling)?;
    let all_ended = wait_for_ends(args, &reader, crew, &mut bar).await?;
    let left = empty_the_queue(args, plan, publisher, crew).await?;
    bar.clear();
    let letters = depth(publisher, &topology::dead_letter_queue(&plan.queue)).await?;
    let tally = Tally::of(args.messages, &plan.evidence, &reader)?;
    Ok(Report::new(args, plan, &tally, sent, happened, report::End { letters, left, all_ended, started }))
}

/// Made here, so that it can be read from the start.
async fn make_ledger(plan: &Plan) -> Result<SqliteReader, Failure> {
    let path = plan.ledger.clone();
    let making = tokio::task::spawn_blocking(move || {
        drop(SqliteLedger::open(&path, SqliteOptions::default())?);
        SqliteReader::open(&path, SqliteOptions::default().busy_timeout)
    });
    making.await.map_err(Failure::failed)?.map_err(Failure::failed)
}

/// Whether every message came to an end: `false` if nothing moved for too long.
async fn wait_for_ends(
    args: &TortureArgs,
    reader: &SqliteReader,
    crew: &mut Crew,
    bar: &mut Bar,
) -> Result<bool, Failure> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        crew.check()?;
        let ended = reader.ended().map_err(Failure::failed)?;
        bar.step(ended);
        if ended >= u64::from(args.messages) {
            return Ok(true);
        }
        if ended != last {
            (last, moved) = (ended, Instant::now());
        }
        if moved.elapsed() > args.patience {
            return Ok(false);
        }
        sleep(SLOW_POLL).await;
    }
}

/// Lets the workers take what is left, and stops them; what they returned, they take once more. Says how many
/// messages nobody took.
async fn empty_the_queue(
    args: &TortureArgs,
    plan: &Plan,
    publisher: &Publisher,
    crew: &mut Crew,
) -> Result<u32, Failure> {
    for _ in 0..5 {
        let since = Instant::now();
        while depth(publisher, &plan.queue).await? > 0 && since.elapsed() < args.patience {
            crew.check()?;
            sleep(SLOW_POLL).await;
        }
        crew.stop_all().await?;
        if depth(publisher, &plan.queue).await? == 0 {
            return Ok(0);
        }
        crew.start_all()?;
    }
    crew.stop_all().await?;
    depth(publisher, &plan.queue).await
}

async fn depth(publisher: &Publisher, queue: &str) -> Result<u32, Failure> {
    let connection = publisher.connection().await.map_err(Failure::failed)?;
    let found = topology::look(&connection, queue).await.map_err(Failure::failed)?;
    found
        .map(|info| info.messages)
        .ok_or_else(|| Failure::failed(format!("somebody has deleted the queue '{queue}'")))
}
