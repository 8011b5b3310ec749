//! `ackonce ledger prune`: all that is past the retention, at once but in small steps.

use std::{path::Path, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{self, Instant},
};

use super::{BUSY_TIMEOUT, output};
use crate::{
    cli::Failure,
    config::for_people,
    ledger::{
        Ledger, Millis, Prune,
        prune::STEP_ROWS_MAX,
        sqlite::{SqliteLedger, SqliteOptions},
        unix_millis,
    },
};

#[derive(Serialize)]
struct Report {
    removed: u64,
    /// False if a signal ended it.
    complete: bool,
}

/// Removes everything that the retention allows, whatever the clock says: an operator has decided.
/// A signal ends it between two steps; what was removed by then is gone.
pub(super) async fn run(path: &Path, retention: Duration, json: bool) -> Result<(), Failure> {
    let options = SqliteOptions { create: false, busy_timeout: BUSY_TIMEOUT, ..SqliteOptions::default() };
    let ledger = SqliteLedger::open(path, options)?;
    let listen = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;

    let bar = progress();
    let retention_ms = Millis::try_from(retention.as_millis()).unwrap_or(Millis::MAX);
    let (now, mut after_row) = (unix_millis(), 0);
    let mut report = Report { removed: 0, complete: false };
    loop {
        let started = Instant::now();
        let step = ledger.prune(Prune { retention_ms, rows_max: STEP_ROWS_MAX, after_row }, now).await?;
        report.removed += step.removed;
        bar.set_position(report.removed);
        if step.complete {
            report.complete = true;
            break;
        }
        after_row = step.last_row;
        // As long a pause as the step took: half of the time is the workers'.
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = time::sleep(started.elapsed()) => {}
        }
    }
    bar.finish_and_clear();
    finish(&report, retention, json)
}

fn finish(report: &Report, retention: Duration, json: bool) -> Result<(), Failure> {
    let rows = if report.removed == 1 { "row" } else { "rows" };
    if json {
        output::print(&output::json(report)?)?;
    } else {
        let age = for_people(retention);
        output::print(&format!("removed {} {rows} older than {age}\n", report.removed))?;
    }
    if report.complete {
        return Ok(());
    }
    Err(Failure::failed("interrupted: there is more to remove"))
}

/// On stderr, and only if that is a terminal.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    // The template is a constant, and right.
    if let Ok(style) = ProgressStyle::with_template("{spinner} removed {human_pos} rows ({per_sec})") {
        bar.set_style(style);
    }
    bar
}
