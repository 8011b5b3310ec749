//! What a row means for its message, in words.

use std::time::{Duration, SystemTime};

use super::{Millis, Row, State, history::FAILURES_MAX};

/// What the row means for the message's next delivery: why it was not run, or not yet, in one sentence.
pub fn meaning(row: &Row, now: Millis) -> String {
    let next = u64::from(row.attempts) + 1;
    let mut text = match row.state {
        State::Done => "handled: a further delivery is acked as a duplicate".to_owned(),
        State::Dead => {
            "given up and dead-lettered: sent back to its queue, it runs again from attempt 1".to_owned()
        }
        State::Processing if row.owner_alive => {
            format!("attempt {} runs since {}, in a worker that is alive", row.attempts, iso(row.updated_ms))
        }
        State::Processing => format!(
            "attempt {} was cut off, its worker is dead: the next delivery runs as attempt {next}",
            row.attempts
        ),
        State::Failed => match row.next_attempt_ms {
            Some(due) if due > now => {
                format!("waits for attempt {next}, which is due in {}", duration(due.saturating_sub(now)))
            }
            Some(due) => format!(
                "attempt {next} is due since {}: it runs when the broker delivers it to a worker",
                iso(due)
            ),
            None => format!("its next delivery runs as attempt {next}"),
        },
    };
    if has_gaps(row) {
        text.push_str("; attempts that are not listed were cut off by their worker's end");
    }
    text
}

/// Whether an attempt ended that left no failure behind. A message that was dead counts from 1 again.
fn has_gaps(row: &Row) -> bool {
    let unfinished = matches!(row.state, State::Processing | State::Done);
    let ended = row.attempts.saturating_sub(u32::from(unfinished)).min(FAILURES_MAX);
    let mut before = u32::MAX;
    let recorded = row.failures.iter().rev().take_while(|failure| {
        let of_this_life = failure.attempt < before && failure.attempt <= row.attempts;
        before = failure.attempt;
        of_this_life
    });
    recorded.count() < ended as usize
}

/// In words: `1s 500ms`.
pub fn duration(ms: Millis) -> String {
    humantime::format_duration(Duration::from_millis(ms.max(0).unsigned_abs())).to_string()
}

/// ISO 8601 in UTC, if there is such a date.
pub fn iso(ms: Millis) -> String {
    /// The last millisecond of the year 9999.
    const LAST: u64 = 253_402_300_799_999;
    match u64::try_from(ms) {
        Ok(ms) if ms <= LAST => {
            humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_millis(ms)).to_string()
        }
        _ => format!("{ms} ms"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ledger::FailedAttempt;

    /// In that state, with those failed attempts on record.
    pub(crate) fn row(state: State, attempts: u32, failed: &[u32]) -> Row {
        let failure = |attempt: &u32| FailedAttempt {
            attempt: *attempt,
            ended_ms: 0,
            ran_ms: Some(1500),
            error: "no\nmoney".into(),
        };
        Row {
            scope: "orders".into(),
            message_id: "a".into(),
            state,
            attempts,
            duplicates: 0,
            owner: Some("host-1-x".into()),
            owner_alive: false,
            first_seen_ms: 0,
            updated_ms: 0,
            last_duplicate_ms: None,
            next_attempt_ms: None,
            last_error: None,
            failures: failed.iter().map(failure).collect(),
        }
    }

    #[test]
    fn each_state_says_what_comes_next() {
        for (row, expected) in [
            (row(State::Done, 1, &[]), "acked as a duplicate"),
            (row(State::Dead, 5, &[1, 2, 3, 4, 5]), "from attempt 1"),
            (Row { owner_alive: true, ..row(State::Processing, 2, &[1]) }, "attempt 2 runs since"),
            (row(State::Processing, 2, &[1]), "runs as attempt 3"),
            (row(State::Failed, 2, &[1, 2]), "next delivery runs as attempt 3"),
            (Row { next_attempt_ms: Some(2500), ..row(State::Failed, 2, &[1, 2]) }, "due in 1s 500ms"),
            (Row { next_attempt_ms: Some(10), ..row(State::Failed, 2, &[1, 2]) }, "is due since 1970-01-01"),
        ] {
            let said = meaning(&row, 1000);
            assert!(said.contains(expected) && !said.contains("not listed"), "{said}");
        }
    }

    #[test]
    fn attempts_that_left_nothing_behind_are_mentioned() {
        for (row, gaps) in [
            (row(State::Done, 2, &[]), true),
            (row(State::Failed, 3, &[1, 3]), true),
            (row(State::Dead, 6, &[6]), true),
            (row(State::Failed, 0, &[]), false),
            (row(State::Failed, 1, &[4, 5, 1]), false),
            (row(State::Done, 3, &[5, 1]), true),
            (row(State::Failed, 40, &[31, 32, 33, 34, 35, 36, 37, 38, 39, 40]), false),
        ] {
            assert_eq!(has_gaps(&row), gaps, "{row:?}");
        }
    }

    #[test]
    fn times_beyond_the_calendar_are_numbers() {
        assert_eq!(iso(1_800_000_000_123), "2027-01-15T08:00:00.123Z");
        assert_eq!(iso(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        for ms in [-1, i64::MIN, i64::MAX, 253_402_300_800_000] {
            assert_eq!(iso(ms), format!("{ms} ms"));
        }
    }
}
