//! The log: one line per event on stderr, times in UTC; and what a panic leaves there.

use std::{
    io::{self, IsTerminal, Write},
    panic,
};

use tracing::Level;
use tracing_subscriber::{EnvFilter, filter, layer::SubscriberExt, util::SubscriberInitExt};

use super::Failure;
use crate::config::without_credentials;

/// Sets up the log for the whole process.
///
/// # Errors
///
/// A level that is none.
pub fn init(level: &str) -> Result<(), Failure> {
    let filter = filter_of(level)?;
    // The broker's library traces every frame it writes, the one with the password too.
    let no_frames = filter::filter_fn(|event| {
        *event.level() != Level::TRACE || !DRIVERS.iter().any(|driver| event.target().starts_with(driver))
    });
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    // Fails only if a log was set up before: then that one stays.
    let _ = tracing_subscriber::registry().with(filter).with(no_frames).with(lines).try_init();
    Ok(())
}

const DRIVERS: [&str; 2] = ["lapin", "amq_protocol"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A level is ours alone: the broker's library warns with whole messages and repeats our errors,
/// so it is heard at `trace` only. Anything else is a filter, taken as it is.
fn filter_of(level: &str) -> Result<EnvFilter, Failure> {
    let word = level.trim().to_ascii_lowercase();
    let directives = match word.as_str() {
        // An empty variable is one that was not given.
        "" => "off,ackonce=info".to_owned(),
        "trace" => "warn,ackonce=trace,lapin=debug".to_owned(),
        _ if LEVELS.contains(&word.as_str()) => format!("off,ackonce={word}"),
        _ if level.contains(['=', '[']) => level.to_owned(),
        _ => return Err(wrong(level)),
    };
    EnvFilter::builder().parse(directives).map_err(|_| wrong(level))
}

fn wrong(level: &str) -> Failure {
    Failure::usage(without_credentials(&format!(
        "--log-level {level:?}: expected one of {}, or a filter such as ackonce::worker=debug",
        LEVELS.join(", ")
    )))
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
            let _ = writeln!(io::stderr(), "ackonce: panicked at {place}: {text}");
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
    fn levels_and_filters_are_told_from_typing_mistakes() {
        for level in ["off", "INFO", "", "trace", "ackonce=debug", "warn,ackonce::worker=trace"] {
            assert!(filter_of(level).is_ok(), "{level}");
        }
        for level in ["infoo", "warning", "ackonce=loud"] {
            let failure = filter_of(level).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains("expected one of off, error"), "{failure}");
        }
    }

    #[test]
    fn a_panic_text_is_one_line_without_credentials() {
        assert_eq!(one_line("no amqp://u:hidden@h\nhere"), r"no amqp://***@h\nhere");
        assert_eq!(one_line(&"x".repeat(999)).len(), 200);
    }
}
