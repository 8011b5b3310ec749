//! What `show` says beside the row itself: who holds it, and what went wrong.

use std::fmt::Write as _;

use super::output::{iso, printable};
use crate::ledger::{Row, State, meaning::duration};

/// Under the first line of a field.
const INDENT: &str = "\n                ";

/// Further lines of a text stand under its first.
pub(super) fn lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join(INDENT)
}

/// Who claimed it last and, while it is being run, whether that worker lives.
pub(super) fn owner(row: &Row) -> String {
    let Some(owner) = row.owner.as_deref().map(printable) else { return "-".to_owned() };
    match (row.state, row.owner_alive) {
        (State::Processing, true) => format!("{owner} (alive)"),
        (State::Processing, false) => format!("{owner} (dead)"),
        (State::Done | State::Failed | State::Dead, _) => owner,
    }
}

/// One line for each failed attempt, the oldest first.
pub(super) fn failures(row: &Row) -> String {
    if row.failures.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    for (index, failure) in row.failures.iter().enumerate() {
        if index > 0 {
            text.push_str(INDENT);
        }
        let ran = failure.ran_ms.map_or("did not run".to_owned(), |ms| format!("ran {}", duration(ms)));
        // Writing to a String cannot fail.
        let _ = write!(text, "attempt {}, {}, {ran}: ", failure.attempt, iso(failure.ended_ms));
        text.push_str(&failure.error.lines().map(printable).collect::<Vec<_>>().join(&format!("{INDENT}  ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::meaning::tests::row;

    #[test]
    fn a_failures_lines_stand_under_each_other() {
        assert_eq!(
            failures(&row(State::Failed, 1, &[1])),
            "attempt 1, 1970-01-01T00:00:00.000Z, ran 1s 500ms: no\n                  money"
        );
    }
}
