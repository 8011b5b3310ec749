//! How rows and numbers look. What senders chose (keys, errors) is never sent to a terminal raw.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
};

use serde::Serialize;

use super::history;
pub(in crate::cli) use crate::ledger::meaning::iso;
use crate::{
    cli::Failure,
    ledger::{Forgotten, Millis, Row, State, Stats, meaning::meaning},
};

/// So much of an error's end is listed; `show` has all of it.
const ERROR_CHARS: usize = 60;

/// Prints to stdout. A reader that has gone away (`| head`) has read enough.
pub(in crate::cli) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!("cannot print: {e}"))),
        _ => Ok(()),
    }
}

/// For people only.
pub(in crate::cli) fn note(text: &str) {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

pub(super) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))
}

pub(super) fn stats(stats: &Stats) -> String {
    let mut table = vec![
        ["scope", "processing", "done", "failed", "dead", "duplicates", "oldest processing"]
            .map(str::to_owned),
    ];
    for scope in &stats.scopes {
        table.push([
            printable(&scope.scope),
            scope.processing.to_string(),
            scope.done.to_string(),
            scope.failed.to_string(),
            scope.dead.to_string(),
            scope.duplicates.to_string(),
            scope.oldest_processing_ms.map_or("-".to_owned(), iso),
        ]);
    }
    let size = |bytes| indicatif::BinaryBytes(bytes).to_string();
    format!("{}\nsize {}, log {}\n", columns(&table), size(stats.bytes), size(stats.wal_bytes))
}

pub(super) fn list(rows: &[Row]) -> String {
    let mut table = vec![
        ["scope", "message_id", "state", "attempts", "duplicates", "updated", "last_error"]
            .map(str::to_owned),
    ];
    for row in rows {
        table.push([
            printable(&row.scope),
            printable(&row.message_id),
            state(row),
            row.attempts.to_string(),
            row.duplicates.to_string(),
            iso(row.updated_ms),
            row.last_error.as_deref().map_or("-".to_owned(), tail),
        ]);
    }
    columns(&table)
}

pub(super) fn show(rows: &[Row], now: Millis) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let fields = [
            ("scope", printable(&row.scope)),
            ("message_id", printable(&row.message_id)),
            ("state", state(row)),
            ("attempts", row.attempts.to_string()),
            ("duplicates", row.duplicates.to_string()),
            ("owner", history::owner(row)),
            ("first_seen", iso(row.first_seen_ms)),
            ("updated", iso(row.updated_ms)),
            ("last_duplicate", row.last_duplicate_ms.map_or("-".to_owned(), iso)),
            ("next_attempt", row.next_attempt_ms.map_or("-".to_owned(), iso)),
            ("last_error", row.last_error.as_deref().map_or("-".to_owned(), history::lines)),
            ("failures", history::failures(row)),
            ("meaning", meaning(row, now)),
        ];
        for (field, value) in fields {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<15} {value}", format!("{field}:"));
        }
    }
    text
}

/// `rows` as they were before.
pub(super) fn forgotten(rows: &[Row], forgotten: Forgotten) -> String {
    let gone: Vec<_> = rows
        .iter()
        .filter(|row| !(row.state == State::Processing && row.owner_alive))
        .map(|row| format!("{} (it was {})", printable(&row.scope), state(row)))
        .collect();
    match forgotten.removed {
        0 => "removed nothing\n".to_owned(),
        n if n == gone.len() as u64 => format!("removed from {}\n", gone.join(", ")),
        // A worker was quicker.
        n => format!("removed {n} rows\n"),
    }
}

pub(super) fn state(row: &Row) -> String {
    match row.state {
        State::Processing if !row.owner_alive => "processing (its owner is dead)".to_owned(),
        other => other.as_str().to_owned(),
    }
}

/// The text with everything escaped that moves a cursor, colours or reorders what is shown.
pub(in crate::cli) fn printable(text: &str) -> String {
    let reorders =
        |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || reorders(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

pub(in crate::cli) fn tail(error: &str) -> String {
    let shown = printable(error);
    match shown.char_indices().rev().nth(ERROR_CHARS - 1) {
        Some((start, _)) if start > 0 => format!("…{}", &shown[start..]),
        _ => shown,
    }
}

/// Left-aligned, two blanks between columns, none at the end of a line.
pub(in crate::cli) fn columns<const N: usize>(table: &[[String; N]]) -> String {
    let width = |column: usize| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in table {
        let cells: Vec<_> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_raw() {
        assert_eq!(
            printable("a\u{1b}[31m\n\0\u{7f}\u{9b}\u{202e}"),
            r"a\u{1b}[31m\n\u{0}\u{7f}\u{9b}\u{202e}"
        );
        assert_eq!(printable("ä€😀 \\ '\""), "ä€😀 \\ '\"");
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let table = [["a", "b"], ["äöü", "x"]].map(|line| line.map(str::to_owned));
        assert_eq!(columns(&table), "a    b\näöü  x\n");
    }

    #[test]
    fn an_error_shows_its_end() {
        assert_eq!(tail("short"), "short");
        assert_eq!(tail(&"x".repeat(60)), "x".repeat(60));
        assert_eq!(tail(&format!("{}é", "x".repeat(60))), format!("…{}é", "x".repeat(59)));
    }
}
