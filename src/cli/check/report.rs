//! What was found, one line for each thing, with a hint below what is wrong.

use serde_json::json;

use crate::cli::{Failure, ledger::output};

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Ok,
    /// A worker runs, but it may go otherwise than meant.
    Warn,
    /// A worker does not start, or does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    mark: Mark,
    what: &'static str,
    /// The worker it is about, by its queue.
    queue: Option<String>,
    value: String,
    hint: Option<String>,
}

/// In front of all values.
const SUBJECT_CHARS: usize = 18;

impl Line {
    pub(super) fn ok(what: &'static str, value: impl Into<String>) -> Self {
        Self { mark: Mark::Ok, what, queue: None, value: value.into(), hint: None }
    }

    pub(super) fn warn(what: &'static str, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { mark: Mark::Warn, hint: Some(hint.into()), ..Self::ok(what, value) }
    }

    pub(super) fn fail(what: &'static str, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { mark: Mark::Fail, hint: Some(hint.into()), ..Self::ok(what, value) }
    }

    pub(super) fn of(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    pub(super) fn is_failure(&self) -> bool {
        self.mark == Mark::Fail
    }

    /// What is wrong with it is no reason not to start.
    pub(super) fn softened(mut self) -> Self {
        if self.is_failure() {
            self.mark = Mark::Warn;
        }
        self
    }

    fn text(&self) -> String {
        let mark = match self.mark {
            Mark::Ok => "ok",
            Mark::Warn => "warn",
            Mark::Fail => "FAIL",
        };
        let value = match &self.queue {
            Some(queue) => format!("{queue}: {}", self.value),
            None => self.value.clone(),
        };
        let mut text = format!("{mark:<4}  {:<SUBJECT_CHARS$}  {}\n", self.what, printable(&value));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{:<indent$}hint: {}\n", "", printable(hint), indent = SUBJECT_CHARS + 8));
        }
        text
    }

    fn json(&self) -> String {
        let result = match self.mark {
            Mark::Ok => "ok",
            Mark::Warn => "warn",
            Mark::Fail => "fail",
        };
        let line = json!({
            "check": self.what,
            "queue": self.queue,
            "result": result,
            "value": self.value,
            "hint": self.hint,
        });
        format!("{line}\n")
    }
}

/// Prints all lines.
///
/// # Errors
///
/// If there is a failure among them.
pub(super) fn print(lines: &[Line], json: bool) -> Result<(), Failure> {
    let text: String = lines.iter().map(|line| if json { line.json() } else { line.text() }).collect();
    output::print(&text)?;
    match lines.iter().filter(|line| line.is_failure()).count() {
        0 => Ok(()),
        failures => Err(Failure::failed(format!("{failures} of {} checks failed", lines.len()))),
    }
}

/// Names come from anywhere, and a terminal obeys some of them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
