//! `ackonce ledger retry` and `mark-done`: an operator's word on what becomes of a message.

use super::{found, output, refuse_in_flight};
use crate::{
    cli::Failure,
    ledger::{Change, Changed, Inspect, Row, State, unix_millis},
};

/// Changes the rows with that key, and says which they were.
///
/// # Errors
///
/// If there is no such row, or one stays because it is being worked on; the others are changed.
pub(super) async fn run(
    ledger: &impl Inspect,
    key: &str,
    scope: Option<&str>,
    change: Change,
    json: bool,
) -> Result<(), Failure> {
    let rows = found(key, scope, ledger.show(key, scope).await?)?;
    let changed = ledger.change(vec![key.to_owned()], scope, change, unix_millis()).await?;
    let changed = changed.into_iter().next().unwrap_or_default();
    output::print(&if json { output::json(&changed)? } else { text(&rows, change, changed) })?;
    refuse_in_flight(key, changed.in_flight)
}

/// `rows` as they were before.
fn text(rows: &[Row], change: Change, changed: Changed) -> String {
    let what = match change {
        Change::Retry { .. } => "runs at its next delivery, from attempt 1",
        Change::MarkDone => "is done",
    };
    let is_changed = |row: &&Row| match row.state {
        State::Processing => !row.owner_alive,
        State::Done => change != Change::MarkDone,
        State::Failed | State::Dead => true,
    };
    let were: Vec<_> = rows
        .iter()
        .filter(is_changed)
        .map(|row| format!("{} (it was {})", output::printable(&row.scope), output::state(row)))
        .collect();
    match changed.changed {
        0 if changed.done > 0 => "it is done already\n".to_owned(),
        0 => "changed nothing\n".to_owned(),
        n if n == were.len() as u64 => format!("{what}: {}\n", were.join(", ")),
        // A worker was quicker.
        n => format!("{what}: {n} rows\n"),
    }
}
