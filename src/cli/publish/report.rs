//! What the user is told: ids or JSON on stdout, what is not confirmed on stderr, a bar if it takes long.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::json;

use super::input::{Item, Place};
use crate::{
    broker::PublishError,
    cli::{Failure, progress::Bar},
};

/// Counts and tells what became of each message.
pub(super) struct Report {
    json: bool,
    quiet: bool,
    confirmed: u64,
    /// By status.
    unconfirmed: BTreeMap<&'static str, u64>,
    /// Why sending stopped early, if it did.
    stopped: Option<String>,
    /// Where to go on, if sending stopped early.
    not_sent_from: Option<Place>,
    broken_pipe: bool,
    bar: Bar,
}

/// Why a message is not known to have arrived.
pub(super) enum Reason {
    Publish(PublishError),
    /// Stopped by a signal while it was under way.
    Interrupted,
    /// Sending stopped before its turn.
    NotSent,
}

impl Reason {
    fn status(&self) -> &'static str {
        match self {
            Reason::Publish(error) => error.status(),
            Reason::Interrupted => "interrupted",
            Reason::NotSent => "not-sent",
        }
    }

    fn text(&self) -> String {
        match self {
            Reason::Publish(error) => error.to_string(),
            Reason::Interrupted => "interrupted: stopped before its confirm came".into(),
            Reason::NotSent => "not sent".into(),
        }
    }
}

impl Report {
    pub(super) fn new(json: bool, quiet: bool, total: Option<u64>) -> Self {
        Self {
            json,
            quiet,
            confirmed: 0,
            unconfirmed: BTreeMap::new(),
            stopped: None,
            not_sent_from: None,
            broken_pipe: false,
            bar: Bar::new(total, "confirmed"),
        }
    }

    /// Nobody reads what we print: there is no way to tell what is confirmed.
    pub(super) fn is_broken(&self) -> bool {
        self.broken_pipe
    }

    pub(super) fn settled(&mut self, item: &Item, result: Result<(), PublishError>) {
        match result {
            Ok(()) => self.confirmed(item),
            Err(error) => self.unconfirmed(item, &Reason::Publish(error)),
        }
    }

    fn confirmed(&mut self, item: &Item) {
        self.confirmed += 1;
        if self.json {
            self.print(&object(item, "confirmed", None));
        } else if !self.quiet {
            self.print(&item.id);
        }
        self.bar.step(self.confirmed);
    }

    pub(super) fn unconfirmed(&mut self, item: &Item, reason: &Reason) {
        *self.unconfirmed.entry(reason.status()).or_default() += 1;
        let text = reason.text();
        if self.json {
            self.print(&object(item, reason.status(), Some(&text)));
        }
        let place = match item.place {
            Place::Only => String::new(),
            Place::Line(line) => format!("line {line}: "),
            Place::Index(index) => format!("message {index}: "),
        };
        let copy = if item.copy > 0 { format!("copy {}: ", item.copy) } else { String::new() };
        self.complain(&format!("{place}{copy}{}: {text}", item.id));
    }

    /// Sending stops early: why. The first reason stays.
    pub(super) fn stopped(&mut self, why: impl Into<String>) {
        self.stopped.get_or_insert(why.into());
    }

    /// Everything from this item on was not sent.
    pub(super) fn not_sent_from(&mut self, item: &Item) {
        self.not_sent_from = Some(item.place);
        if self.json {
            let mut line = json!({"status": "not-sent"});
            match item.place {
                Place::Only => line["from_copy"] = item.copy.into(),
                Place::Line(number) => line["from_line"] = number.into(),
                Place::Index(number) => line["from_index"] = number.into(),
            }
            self.print(&line.to_string());
        }
        let from = match item.place {
            Place::Only => format!("copy {}", item.copy),
            Place::Line(line) => format!("line {line}"),
            Place::Index(index) => format!("message {index}"),
        };
        self.complain(&format!("from {from} on: not sent"));
    }

    /// The last word. `missing_queue` names the queue that nobody was asked to create.
    pub(super) fn finish(self, missing_queue: Option<&str>) -> Result<(), Failure> {
        self.bar.clear();
        let unconfirmed: u64 = self.unconfirmed.values().sum();
        if unconfirmed == 0 && self.stopped.is_none() {
            return Ok(());
        }
        let mut parts = vec![format!("{} confirmed", self.confirmed)];
        parts.extend(self.unconfirmed.iter().map(|(status, count)| format!("{count} {status}")));
        if self.not_sent_from.is_some() {
            parts.push("the rest not sent".into());
        }
        let mut text = parts.join(", ");
        if let Some(why) = &self.stopped {
            text = format!("{why}: {text}");
        }
        if let (Some(queue), true) = (missing_queue, self.unconfirmed.contains_key("unroutable")) {
            text.push_str(&format!(
                " (there is no queue '{queue}': a worker creates it when it starts, or add --create)"
            ));
        }
        Err(Failure::failed(text))
    }

    fn print(&mut self, line: &str) {
        let written = self.bar.aside(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.as_bytes()).and_then(|()| stdout.write_all(b"\n"))
        });
        if let Err(error) = written {
            self.broken_pipe = true;
            self.stopped(format!("cannot write to stdout: {error}"));
        }
    }

    fn complain(&self, line: &str) {
        // Without stderr there is nobody to tell; the exit code still says it.
        let _ = self.bar.aside(|| writeln!(io::stderr().lock(), "{line}"));
    }
}

fn object(item: &Item, status: &str, reason: Option<&str>) -> String {
    let mut object = json!({"message_id": &*item.id, "status": status});
    match item.place {
        Place::Only => {}
        Place::Line(line) => object["line"] = line.into(),
        Place::Index(index) => object["index"] = index.into(),
    }
    if item.copy > 0 {
        object["copy"] = item.copy.into();
    }
    if let Some(reason) = reason {
        object["reason"] = reason.into();
    }
    object.to_string()
}
