//! `ackonce dead purge`: letters are removed for good.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use super::{
    Place,
    report::Report,
    selection::{Chooser, Selection},
};
use crate::{
    cli::{Failure, ledger::output, signals::Signals},
    worker::desk::{DeadLetter, Desk},
};

#[derive(Args, Clone, Debug)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    selection: Selection,

    /// Only say which letters would be removed
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) async fn run(args: PurgeArgs) -> Result<(), Failure> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !args.dry_run && !can_ask {
        return Err(Failure::usage("this removes letters for good: add --yes, or --dry-run to look first"));
    }
    let mut desk = args.place.open().await?;
    let verb = if args.dry_run { "would-be-removed" } else { "removed" };
    let mut report = Report::new(args.place.json, verb, desk.total());
    let mut chooser = args.selection.chooser();
    if let Err(failure) = remove(&mut desk, &args, &mut report, &mut chooser).await {
        report.stopped(failure.message);
    }
    if let Err(failure) = desk.close().await {
        report.stopped(format!("{failure}; not all of them may be gone"));
    }
    let complaint = if report.is_stopped() { None } else { chooser.complaint() };
    report.finish(complaint)
}

/// Without `--yes` everything is read first, so that the question has a number in it.
async fn remove(
    desk: &mut Desk,
    args: &PurgeArgs,
    report: &mut Report,
    chooser: &mut Chooser<'_>,
) -> Result<(), Failure> {
    let mut signals = Signals::new();
    let mut asked_for = Vec::new();
    loop {
        let letters = tokio::select! {
            biased;
            name = signals.next() => {
                report.stopped(format!("stopped by {name}"));
                return Ok(());
            }
            letters = desk.next(u64::MAX) => letters?,
        };
        if letters.is_empty() {
            break;
        }
        let [chosen, others] = chooser.split(letters, u64::MAX);
        desk.keep(others).await;
        if args.yes {
            chosen.iter().for_each(|letter| report.done(letter, None));
            desk.take(chosen);
        } else if args.dry_run {
            chosen.iter().for_each(|letter| report.done(letter, None));
            desk.keep(chosen).await;
        } else {
            // One that may have to be put back as a new one is needed whole.
            let whole = desk.limit().returns_max().is_some();
            let light = |letter: DeadLetter| if whole { letter } else { letter.without_body() };
            asked_for.extend(chosen.into_iter().map(light));
        }
    }
    if asked_for.is_empty() {
        return Ok(());
    }
    let question = format!(
        "Remove {} of {} letters of '{}' for good? [y/N] ",
        asked_for.len(),
        desk.total(),
        output::printable(desk.dead_queue())
    );
    let yes = tokio::select! {
        name = signals.next() => {
            report.stopped(format!("stopped by {name}"));
            false
        }
        yes = tokio::task::spawn_blocking(move || ask(&question)) => yes.unwrap_or(false),
    };
    if yes {
        asked_for.iter().for_each(|letter| report.done(letter, None));
        desk.take(asked_for);
    } else {
        report.stopped("not confirmed");
        desk.keep(asked_for).await;
    }
    Ok(())
}

/// Only a clear yes is one.
fn ask(question: &str) -> bool {
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question}").and_then(|()| io::stderr().flush());
    asked.is_ok()
        && io::stdin().lock().read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
