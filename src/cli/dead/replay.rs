//! `ackonce dead replay`: letters go back to the work queue, as fresh runs.
//!
//! For each window of letters: the ledger's rows are reset, in one transaction; then each letter is
//! published to the work queue; then, once the broker has confirmed it, it is removed here. So an end
//! at any point loses nothing, and leaves at worst one copy here and one there, which the ledger tells
//! apart by their key.

use std::{env, ffi::OsString, time::Duration};

use clap::{Args, builder::RangedU64ValueParser};
use futures::{StreamExt, stream::FuturesUnordered};

use super::{
    Desk, Place,
    letter::DeadLetter,
    report::Report,
    selection::{Chooser, Selection},
};
use crate::{
    broker::PublishError,
    cli::{Failure, ledger::BUSY_TIMEOUT, ledger::output, signals::Signals},
    config::{Config, LedgerUrl},
    ledger::{Change, Changed, Inspect, sqlite::SqliteReader, unix_millis},
    worker::letter,
};

#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    selection: Selection,

    /// At most so many
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    limit: Option<u64>,

    /// Only say which letters would go
    #[arg(long)]
    dry_run: bool,

    /// Let what is done already run again: its row is reset as well
    #[arg(long)]
    force: bool,

    /// Ledger: a path or sqlite:PATH [env: ACKONCE_LEDGER] [default: ackonce.db]
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,

    /// The scope of the keys in the ledger [default: the work queue's name]
    #[arg(long, value_name = "NAME", env = "ACKONCE_SCOPE")]
    scope: Option<String>,

    /// How long each letter may take to be confirmed by the work queue
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    place: Place,
}

pub(super) async fn run(args: ReplayArgs) -> Result<(), Failure> {
    let ledger = args.open_ledger()?;
    let mut desk = args.place.open().await?;
    let total = desk.letters.total();
    let verb = if args.dry_run { "would-be-replayed" } else { "replayed" };
    let mut work = Work {
        limit: args.limit.unwrap_or(u64::MAX),
        report: Report::new(args.place.json, verb, total.min(args.limit.unwrap_or(u64::MAX))),
        chooser: args.selection.chooser(),
        signals: Signals::new(),
        ledger,
        args: &args,
        known_done: 0,
    };
    if let Err(failure) = work.all(&mut desk).await {
        work.report.stopped(failure.message);
    }
    let closed = desk.close().await;
    let Work { mut report, chooser, known_done, .. } = work;
    match closed {
        Ok(left) if args.selection.is_all() && !args.dry_run && args.limit.is_none() && left > 0 => {
            output::note(&format!("{left} letters are there now"));
        }
        Ok(_) => {}
        Err(failure) => report.stopped(format!(
            "{}; some letters may still be here although they are back in the work queue",
            failure.message
        )),
    }
    if known_done > 0 {
        output::note(&format!(
            "{known_done} of them are done in the ledger and come as duplicates: --force lets them run again"
        ));
    }
    let complaint = if report.is_stopped() { None } else { chooser.complaint() };
    report.finish(complaint)
}

/// One run of the command.
struct Work<'a> {
    args: &'a ReplayArgs,
    ledger: Option<SqliteReader>,
    chooser: Chooser<'a>,
    signals: Signals,
    report: Report,
    limit: u64,
    /// Replayed, although they are done.
    known_done: u64,
}

impl Work<'_> {
    async fn all(&mut self, desk: &mut Desk) -> Result<(), Failure> {
        while self.report.count() < self.limit && !self.report.is_stopped() {
            let letters = tokio::select! {
                biased;
                name = self.signals.next() => {
                    self.report.stopped(format!("stopped by {name}"));
                    return Ok(());
                }
                letters = desk.next(u64::MAX) => letters?,
            };
            if letters.is_empty() {
                break;
            }
            let [chosen, others] = self.chooser.split(letters, self.limit - self.report.count());
            desk.keep(others).await;
            if self.args.dry_run {
                chosen.iter().for_each(|letter| self.report.done(letter, None));
                desk.keep(chosen).await;
            } else {
                self.window(desk, chosen).await?;
            }
        }
        Ok(())
    }

    /// Sends one window's letters back.
    async fn window(&mut self, desk: &mut Desk, letters: Vec<DeadLetter>) -> Result<(), Failure> {
        let rows = match self.reset_rows(desk, &letters).await {
            Ok(rows) => rows,
            Err(failure) => {
                desk.keep(letters).await;
                return Err(failure);
            }
        };
        let Desk { publisher, letters: dead_letters, queue, .. } = &mut *desk;
        let (publisher, queue, limit) = (&*publisher, queue.as_str(), self.args.timeout);
        let sending = letters.into_iter().zip(rows).map(|(letter, row)| async move {
            let result = publisher.publish(letter::replay(&letter.message, queue), limit).await;
            (letter, row, result)
        });
        let mut sending: FuturesUnordered<_> = sending.collect();
        let mut kept = Vec::new();
        let mut stopped = false;
        while !sending.is_empty() {
            let (letter, row, result) = tokio::select! {
                biased;
                name = self.signals.next() => {
                    self.report.stopped(format!("stopped by {name}"));
                    output::note("waiting for what is under way to be confirmed; once more ends it now");
                    // What is under way has its time to be confirmed; a second signal does not wait.
                    if std::mem::replace(&mut stopped, true) {
                        let count = sending.len();
                        output::note(&format!("{count} letters stay that may be in the work queue as well"));
                        return Ok(());
                    }
                    continue;
                }
                Some(sent) = sending.next() => sent,
            };
            match result {
                Ok(()) => {
                    self.report.done(&letter, row);
                    self.known_done += u64::from(row == Some("done"));
                    dead_letters.take([letter.receipt]);
                }
                Err(error) => {
                    self.report.stays(&letter, error.status(), &error.to_string());
                    if let Some(why) = stops_all(&error) {
                        self.report.stopped(why);
                    }
                    kept.push(letter);
                }
            }
        }
        drop(sending);
        desk.keep(kept).await;
        Ok(())
    }

    /// Lets the letters' rows run from attempt 1, before their copies can arrive. Says what each row is.
    async fn reset_rows(
        &self,
        desk: &Desk,
        letters: &[DeadLetter],
    ) -> Result<Vec<Option<&'static str>>, Failure> {
        let Some(ledger) = &self.ledger else { return Ok(vec![None; letters.len()]) };
        let keys = letters.iter().map(|letter| letter.notes.key.clone().unwrap_or_default()).collect();
        let scope = self.args.scope.as_deref().unwrap_or(&desk.queue);
        let change = Change::Retry { even_done: self.args.force };
        let changed = ledger.change(keys, Some(scope), change, unix_millis()).await?;
        Ok(changed.into_iter().map(|changed| Some(row(changed))).collect())
    }
}

fn row(changed: Changed) -> &'static str {
    match changed {
        Changed { changed: 1.., .. } => "reset",
        Changed { in_flight: 1.., .. } => "in-flight",
        Changed { done: 1.., .. } => "done",
        _ => "none",
    }
}

/// What would befall every further letter as well: they all go to the same queue.
fn stops_all(error: &PublishError) -> Option<&'static str> {
    match error {
        PublishError::Unroutable(_) => Some("there is no work queue to send them to"),
        PublishError::Nacked => Some("the work queue takes no more"),
        PublishError::Blocked(_) | PublishError::Timeout => Some("the broker does not confirm"),
        PublishError::NotConnected(_) => Some("the connection does not come back"),
        PublishError::Denied(_) => Some("the broker does not let us publish"),
        PublishError::NotFound(_)
        | PublishError::Refused(_)
        | PublishError::TooLarge(_)
        | PublishError::Lost(_) => None,
    }
}

impl ReplayArgs {
    /// A missing ledger is no obstacle: a fresh delivery claims a dead row in any case.
    fn open_ledger(&self) -> Result<Option<SqliteReader>, Failure> {
        if self.dry_run {
            return Ok(None);
        }
        let flags = [("ledger", self.ledger.as_slice())];
        let name = "ACKONCE_LEDGER";
        let environment = env::var_os(name).map(|value| (OsString::from(name), value));
        let (_, config) = Config::load_without_workers(flags, environment)?;
        let LedgerUrl::Sqlite(path) = config.url;
        if std::fs::metadata(&path).is_ok() {
            return Ok(Some(SqliteReader::open(&path, BUSY_TIMEOUT)?));
        }
        let text = format!("there is no ledger at {}: name it with --ledger", path.display());
        if self.force {
            return Err(Failure::usage(text));
        }
        output::note(&format!("warning: {text}; dead rows run again in any case, others may be duplicates"));
        Ok(None)
    }
}
