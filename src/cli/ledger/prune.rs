//! `ackonce ledger prune`: all that is past the retention, at once but in small steps.

use std::{path::Path, time::Duration};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
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
        sqlite::{Compacted, Compactor, SqliteLedger, SqliteOptions},
        unix_millis,
    },
};

#[derive(Serialize)]
struct Report {
    removed: u64,
    /// False if a signal ended it.
    complete: bool,
    /// The file's length after it was compacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Removes everything that the retention allows, whatever the clock says: an operator has decided.
/// A signal ends it between two steps; what was removed by then is gone.
pub(super) async fn run(path: &Path, retention: Duration, compact: bool, json: bool) -> Result<(), Failure> {
    let options = SqliteOptions { create: false, busy_timeout: BUSY_TIMEOUT, ..SqliteOptions::default() };
    let ledger = SqliteLedger::open(path, options)?;
    let listen = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;

    let bar = progress();
    let retention_ms = Millis::try_from(retention.as_millis()).unwrap_or(Millis::MAX);
    let (now, mut after_row) = (unix_millis(), 0);
    let mut report = Report { removed: 0, complete: false, bytes: None };
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
    drop(ledger);
    if !compact || !report.complete {
        return finish(&report, None, retention, json);
    }
    let compactor = Compactor::open(path, BUSY_TIMEOUT)?;
    let handle = compactor.interrupt_handle();
    let mut compacting = tokio::task::spawn_blocking(move || compactor.run());
    let compacted = tokio::select! {
        compacted = &mut compacting => compacted,
        _ = interrupt.recv() => { handle.interrupt(); compacting.await }
        _ = terminate.recv() => { handle.interrupt(); compacting.await }
    };
    let failed = |panic| Failure::failed(format!("compacting the ledger: {panic}"));
    match compacted.map_err(failed)? {
        Ok(compacted) => {
            report.bytes = Some(compacted.bytes_after);
            finish(&report, Some(compacted), retention, json)
        }
        Err(error) => {
            finish(&report, None, retention, json)?;
            Err(error.into())
        }
    }
}

fn finish(
    report: &Report,
    compacted: Option<Compacted>,
    retention: Duration,
    json: bool,
) -> Result<(), Failure> {
    let rows = if report.removed == 1 { "row" } else { "rows" };
    if json {
        output::print(&output::json(report)?)?;
    } else {
        let age = for_people(retention);
        output::print(&format!("removed {} {rows} older than {age}\n", report.removed))?;
        if let Some(Compacted { bytes_before, bytes_after, .. }) = compacted {
            let (before, after) = (BinaryBytes(bytes_before), BinaryBytes(bytes_after));
            output::print(&format!("compacted: {before} before, {after} now\n"))?;
        }
    }
    if compacted.is_some_and(|compacted| compacted.pending) {
        output::note("another program is reading: the file shrinks when that has ended");
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
