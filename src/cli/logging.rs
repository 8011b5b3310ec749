//! The log: one line per event on stderr, as text or as JSON, times in UTC; and what a panic or a failure
//! leaves there.

use std::{
    env,
    io::{self, IsTerminal, Write},
    panic,
    sync::{Mutex, OnceLock, PoisonError},
    time::SystemTime,
};

use serde::Serialize;
use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use super::{Failure, screen};
use crate::config::{LogLevel, without_credentials};

/// How an event becomes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// What was set up for the process.
struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    /// The level was given as a flag or a variable, which counts more than the file's.
    level_is_fixed: bool,
    level: Mutex<LogLevel>,
}

static LOG: OnceLock<Log> = OnceLock::new();
/// By itself, since a failure may come before the rest is set up.
static FORMAT: OnceLock<Format> = OnceLock::new();

const DRIVERS: [&str; 2] = ["lapin", "amq_protocol"];

/// Sets up the log for the whole process. What was not given has its default.
///
/// # Errors
///
/// A level or a format that is none.
pub fn init(level: Option<&str>, format: Option<&str>) -> Result<(), Failure> {
    let format = Format::parse(format.unwrap_or_default())?;
    let format = *FORMAT.get_or_init(|| format);
    // An empty variable is one that was not given.
    let given = level.filter(|level| !level.trim().is_empty());
    let level = parse_level(given.unwrap_or_default())?;
    let (filter, handle) = reload::Layer::new(filter_of(&level));
    // The broker's library traces every frame it writes, the one with the password too.
    let no_frames = filter::filter_fn(|event| {
        *event.level() != Level::TRACE || !DRIVERS.iter().any(|driver| event.target().starts_with(driver))
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(|| screen::Stderr);
    let lines = match format {
        Format::Text => lines.compact().with_ansi(has_colours()).boxed(),
        Format::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    };
    let set_up = tracing_subscriber::registry().with(filter).with(no_frames).with(lines).try_init();
    // Fails only if a log was set up before: then that one stays.
    if set_up.is_ok() {
        let log = Log { filter: handle, level_is_fixed: given.is_some(), level: Mutex::new(level) };
        let _ = LOG.set(log);
    }
    Ok(())
}

/// Takes the configuration file's level, unless one was given as a flag or a variable. Whether that
/// changed anything.
pub(super) fn follow_file(level: Option<LogLevel>) -> bool {
    let Some(log) = LOG.get().filter(|log| !log.level_is_fixed) else { return false };
    let level = level.unwrap_or_default();
    let mut current = log.level.lock().unwrap_or_else(PoisonError::into_inner);
    if *current == level {
        return false;
    }
    // Fails only if the log is gone, and then nobody reads it.
    let changed = log.filter.reload(filter_of(&level)).is_ok();
    *current = level;
    changed
}

/// Whether lines are for programs: then nothing else may stand between them.
pub(super) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// The sentence that a failed command ends with, whatever the level.
pub fn last_words(failure: &Failure) {
    say(&failure.message, Some(failure.code));
}

impl Format {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(wrong("format", text, "expected text or json")),
        }
    }
}

fn parse_level(text: &str) -> Result<LogLevel, Failure> {
    LogLevel::parse(text).map_err(|expected| wrong("level", text, &expected))
}

fn wrong(what: &str, given: &str, expected: &str) -> Failure {
    Failure::usage(without_credentials(&format!("--log-{what} {given:?}: {expected}")))
}

fn filter_of(level: &LogLevel) -> EnvFilter {
    EnvFilter::builder().parse_lossy(level.directives())
}

/// On a terminal, unless somebody asked for none (no-color.org).
fn has_colours() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A line that no level keeps back.
fn say(message: &str, exit_code: Option<u8>) {
    #[derive(Serialize)]
    struct Line<'a> {
        timestamp: String,
        level: &'a str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<u8>,
        target: &'a str,
    }
    let timestamp = || humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    let text = || format!("ackonce: {message}");
    let line = if is_json() {
        let line = Line { timestamp: timestamp(), level: "ERROR", message, exit_code, target: "ackonce" };
        serde_json::to_string(&line).unwrap_or_else(|_| text())
    } else {
        text()
    };
    // A closed stderr is no reason to panic.
    let _ = screen::Stderr.write_all(format!("{line}\n").as_bytes());
}

/// A panic is a defect of ours: one line says where and what, without a URL's credentials.
pub fn init_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let text = one_line(text);
        if tracing::enabled!(Level::ERROR) {
            tracing::error!("panicked at {place}: {text}");
        } else {
            say(&format!("panicked at {place}: {text}"), None);
        }
    }));
}

/// Bounded and escaped: a payload may hold a piece of a message.
fn one_line(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let line: String = without_credentials(text).chars().take(CHARS_MAX).collect();
    line.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_level_or_format_is_a_usage_failure() {
        for failure in [parse_level("infoo").unwrap_err(), Format::parse("xml").unwrap_err()] {
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains("expected"), "{failure}");
        }
        assert_eq!(Format::parse(" JSON ").unwrap(), Format::Json);
        assert_eq!(Format::parse("").unwrap(), Format::Text);
    }

    #[test]
    fn a_panic_text_is_one_line_without_credentials() {
        assert_eq!(one_line("no amqp://u:hidden@h\nhere"), r"no amqp://***@h\nhere");
        assert_eq!(one_line(&"x".repeat(999)).len(), 200);
    }
}
