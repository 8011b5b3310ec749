//! `ackonce dead replay`: letters go back to the work queue, as fresh runs.
//!
//! One window of letters after the other; see [`Desk::send_back`] for what an end amid it leaves behind.

use std::{env, ffi::OsString, time::Duration};

use clap::{Args, builder::RangedU64ValueParser};
use futures::StreamExt;

use super::{
    Place,
    report::Report,
    selection::{Chooser, Selection},
};
use crate::{
    broker::PublishError,
    cli::{Failure, ledger::BUSY_TIMEOUT, ledger::output, signals::Signals},
    config::{Config, LedgerUrl},
    ledger::{Inspect, sqlite::SqliteReader},
    worker::desk::{DeadLetter, Desk, Fresh, RowWas},
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
    let total = desk.total();
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
            "{failure}; some letters may still be here although they are back in the work queue"
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
        let fresh = Fresh {
            ledger: self.ledger.as_ref().map(|ledger| ledger as &dyn Inspect),
            scope: self.args.scope.as_deref().unwrap_or(&self.args.place.queue),
            even_done: self.args.force,
            timeout: self.args.timeout,
        };
        let mut sending = desk.send_back(letters, fresh).await?;
        let mut kept = Vec::new();
        let mut stopped = false;
        while !sending.is_empty() {
            let sent = tokio::select! {
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
            match sent.result {
                Ok(()) => {
                    self.report.done(&sent.letter, sent.row.map(RowWas::as_str));
                    self.known_done += u64::from(sent.row == Some(RowWas::Done));
                    desk.take([sent.letter]);
                }
                Err(error) => {
                    self.report.stays(&sent.letter, error.status(), &error.to_string());
                    if let Some(why) = stops_all(&error) {
                        self.report.stopped(why);
                    }
                    kept.push(sent.letter);
                }
            }
        }
        desk.keep(kept).await;
        Ok(())
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
