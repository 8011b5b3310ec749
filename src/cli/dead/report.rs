//! What is told of each letter that was sent back or removed, and of those that were not.

use serde_json::json;

use super::shown;
use crate::{
    cli::{Failure, ledger::output, progress::Bar},
    worker::desk::DeadLetter,
};

pub(super) struct Report {
    json: bool,
    /// What is done to a letter: `replayed`, `removed`; with `would-be-` before it in a dry run.
    verb: &'static str,
    done: u64,
    stay: u64,
    /// Why it ended before its end, if it did. The first reason stays.
    stopped: Option<String>,
    bar: Bar,
}

impl Report {
    pub(super) fn new(json: bool, verb: &'static str, total: u64) -> Self {
        Self { json, verb, done: 0, stay: 0, stopped: None, bar: Bar::new(Some(total), "letters") }
    }

    pub(super) fn done(&mut self, letter: &DeadLetter, row: Option<&str>) {
        self.done += 1;
        let line = if self.json {
            let mut line = letter.id_json();
            line["status"] = self.verb.into();
            if let Some(row) = row {
                line["row"] = row.into();
            }
            line.to_string()
        } else {
            shown(letter)
        };
        self.print(&line);
        self.bar.step(self.done);
    }

    /// A letter stays where it is, against what was asked for.
    pub(super) fn stays(&mut self, letter: &DeadLetter, status: &str, why: &str) {
        self.stay += 1;
        if self.json {
            let mut line = letter.id_json();
            line["status"] = "stays".into();
            line["reason"] = status.into();
            line["error"] = json!(why);
            self.print(&line.to_string());
        }
        self.bar.aside(|| output::note(&format!("{} stays: {why}", shown(letter))));
    }

    pub(super) fn stopped(&mut self, why: impl Into<String>) {
        self.stopped.get_or_insert(why.into());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn count(&self) -> u64 {
        self.done
    }

    /// The last word. `complaint`: what was asked for and not there.
    pub(super) fn finish(self, complaint: Option<String>) -> Result<(), Failure> {
        self.bar.clear();
        let letters = if self.done == 1 { "letter" } else { "letters" };
        let mut text = format!("{} {letters} {}", self.done, self.verb.replace('-', " "));
        if self.stay > 0 {
            text.push_str(&format!(", {} stay", self.stay));
        }
        match self.stopped.or(complaint) {
            Some(why) => Err(Failure::failed(format!("{why}: {text}"))),
            None if self.stay > 0 => Err(Failure::failed(text)),
            None => {
                output::note(&text);
                Ok(())
            }
        }
    }

    fn print(&mut self, line: &str) {
        if let Err(failure) = self.bar.aside(|| output::print(&format!("{line}\n"))) {
            self.stopped(failure.message);
        }
    }
}
