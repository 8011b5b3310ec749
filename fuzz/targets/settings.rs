//! No value of a flag or a variable, a duration or whatever else, makes the configuration panic; each of its problems is
//! one line that says something.

#![no_main]

use std::ffi::OsString;

use ackonce::config::Config;
use libfuzzer_sys::fuzz_target;

/// With the variables that stand for them.
const SETTINGS: [(&str, &str); 17] = [
    ("timeout", "ACKONCE_TIMEOUT"),
    ("kill-grace", "ACKONCE_KILL_GRACE"),
    ("initial-interval", "ACKONCE_INITIAL_INTERVAL"),
    ("max-interval", "ACKONCE_MAX_INTERVAL"),
    ("retention", "ACKONCE_RETENTION"),
    ("drain-timeout", "ACKONCE_DRAIN_TIMEOUT"),
    ("heartbeat", "ACKONCE_HEARTBEAT"),
    ("multiplier", "ACKONCE_MULTIPLIER"),
    ("jitter", "ACKONCE_JITTER"),
    ("concurrency", "ACKONCE_CONCURRENCY"),
    ("prefetch", "ACKONCE_PREFETCH"),
    ("key", "ACKONCE_KEY"),
    ("url", "AMQP_URL"),
    ("listen", "ACKONCE_LISTEN"),
    ("http-header", "ACKONCE_HTTP_HEADERS"),
    ("exec", "ACKONCE_EXEC"),
    ("scope", "ACKONCE_SCOPE"),
];

fuzz_target!(|input: Vec<(u8, bool, String)>| {
    let mut flags: Vec<(&str, Vec<String>)> = vec![("queue", vec!["q".to_owned()])];
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    for (which, as_flag, value) in input {
        let (flag, variable) = SETTINGS[usize::from(which) % SETTINGS.len()];
        match as_flag {
            true => flags.push((flag, vec![value])),
            false => variables.push((variable.into(), value.into())),
        }
    }
    let flags = flags.iter().map(|(flag, values)| (*flag, values.as_slice()));
    if let Err(problems) = Config::load(flags, variables) {
        assert!(!problems.is_empty(), "refused without a reason");
        for problem in problems.iter().map(ToString::to_string) {
            assert!(!problem.trim().is_empty() && !problem.contains(char::is_control), "{problem:?}");
        }
    }
});
