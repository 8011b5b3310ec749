//! `ackonce dead list`

use clap::Args;

use super::{Place, shown};
use crate::{
    cli::{Failure, ledger::output},
    worker::desk::{DeadLetter, Desk},
};

#[derive(Args, Clone, Debug)]
pub(super) struct ListArgs {
    /// Only letters with this reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,

    #[command(flatten)]
    place: Place,
}

const HEADINGS: [&str; 7] = ["key", "reason", "attempts", "first_seen", "dead", "bytes", "error"];

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let mut desk = args.place.open().await?;
    let mut table = vec![HEADINGS.map(str::to_owned)];
    let listed = list(&mut desk, &args, &mut table).await;
    let total = desk.total();
    let closed = desk.close().await;
    if !args.place.json {
        output::print(&output::columns(&table))?;
    }
    let listed = listed?;
    closed?;
    if !args.place.json && listed == args.limit && total > listed && args.limit > 0 {
        output::note(&format!("the first {listed} of {total} letters; --limit N shows more"));
    }
    Ok(())
}

/// Reads until enough are listed. Returns how many.
async fn list(
    desk: &mut Desk,
    args: &ListArgs,
    table: &mut Vec<[String; HEADINGS.len()]>,
) -> Result<u64, Failure> {
    let mut listed = 0;
    while listed < args.limit {
        // With a reason, nobody knows how many have to be looked at.
        let most = if args.reason.is_some() { u64::MAX } else { args.limit - listed };
        let letters = desk.next(most).await?;
        if letters.is_empty() {
            break;
        }
        let wanted = |letter: &&DeadLetter| args.reason.is_none() || letter.notes.reason == args.reason;
        let room = usize::try_from(args.limit - listed).unwrap_or(usize::MAX);
        let mut lines = String::new();
        for letter in letters.iter().filter(wanted).take(room) {
            listed += 1;
            if args.place.json {
                lines.push_str(&format!("{}\n", letter.json()));
            } else {
                table.push(row(letter));
            }
        }
        desk.keep(letters).await;
        output::print(&lines)?;
    }
    Ok(listed)
}

fn row(letter: &DeadLetter) -> [String; HEADINGS.len()] {
    let notes = &letter.notes;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let error = match (&notes.error, &notes.queue) {
        (Some(error), _) => Some(output::tail(error)),
        (None, Some(queue)) if !notes.is_ours => {
            Some(format!("moved by the broker from {}", output::printable(queue)))
        }
        (None, _) => None,
    };
    [
        shown(letter),
        or_dash(notes.reason.as_deref().map(output::printable)),
        or_dash(notes.attempts.map(|attempts| attempts.to_string())),
        or_dash(notes.first_seen_ms.map(output::iso)),
        or_dash(notes.dead_ms.map(output::iso)),
        letter.message.body.len().to_string(),
        or_dash(error),
    ]
}
