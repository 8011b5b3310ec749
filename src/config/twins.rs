//! Every setting that has a flag and an environment variable: their names, and where it stands in the file.

use std::ffi::OsString;

use super::{
    problem::{Problems, nearest, quoted},
    section::{Origin, Raw, Setting},
};

/// The table of the file that a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// None: it is read before the file is.
    CommandLine,
    Top,
    Broker,
    Ledger,
    Worker,
    Retry,
}

/// One setting under its three names.
#[derive(Debug)]
pub(super) struct Twin {
    pub flag: &'static str,
    pub env: &'static str,
    pub at: At,
    pub key: &'static str,
}

impl Twin {
    pub(super) fn is_of_worker(&self) -> bool {
        matches!(self.at, At::Worker | At::Retry)
    }
}

const fn twin(flag: &'static str, env: &'static str, at: At, key: &'static str) -> Twin {
    Twin { flag, env, at, key }
}

pub(super) const TWINS: &[Twin] = &[
    twin("config", "ACKONCE_CONFIG", At::CommandLine, "config"),
    twin("url", "AMQP_URL", At::Broker, "url"),
    twin("password-file", "ACKONCE_PASSWORD_FILE", At::Broker, "password_file"),
    // No flag: what stands on a command line can be seen by all.
    twin("", "ACKONCE_PASSWORD", At::Broker, "password"),
    twin("heartbeat", "ACKONCE_HEARTBEAT", At::Broker, "heartbeat"),
    twin("ledger", "ACKONCE_LEDGER", At::Ledger, "url"),
    twin("retention", "ACKONCE_RETENTION", At::Ledger, "retention"),
    twin(
        "allow-network-file-system",
        "ACKONCE_ALLOW_NETWORK_FILE_SYSTEM",
        At::Ledger,
        "allow_network_file_system",
    ),
    twin("listen", "ACKONCE_LISTEN", At::Top, "listen"),
    twin("listen-token-file", "ACKONCE_LISTEN_TOKEN_FILE", At::Top, "listen_token_file"),
    twin("listen-host", "ACKONCE_LISTEN_HOST", At::Top, "listen_host"),
    twin("drain-timeout", "ACKONCE_DRAIN_TIMEOUT", At::Top, "drain_timeout"),
    twin("queue", "ACKONCE_QUEUE", At::Worker, "queue"),
    twin("exec", "ACKONCE_EXEC", At::Worker, "exec"),
    twin("shell", "ACKONCE_SHELL", At::Worker, "shell"),
    twin("exit-codes", "ACKONCE_EXIT_CODES", At::Worker, "exit_codes"),
    twin("pipe", "ACKONCE_PIPE", At::Worker, "pipe"),
    twin("pipe-children", "ACKONCE_PIPE_CHILDREN", At::Worker, "pipe_children"),
    twin("pipe-in-flight", "ACKONCE_PIPE_IN_FLIGHT", At::Worker, "pipe_in_flight"),
    twin("pipe-framing", "ACKONCE_PIPE_FRAMING", At::Worker, "pipe_framing"),
    twin("http", "ACKONCE_HTTP", At::Worker, "http"),
    twin("http-header", "ACKONCE_HTTP_HEADERS", At::Worker, "http_headers"),
    twin("http-bearer-token-file", "ACKONCE_HTTP_BEARER_TOKEN_FILE", At::Worker, "http_bearer_token_file"),
    twin(
        "http-signature-secret-file",
        "ACKONCE_HTTP_SIGNATURE_SECRET_FILE",
        At::Worker,
        "http_signature_secret_file",
    ),
    twin("sql", "ACKONCE_SQL", At::Worker, "sql"),
    twin("sql-schema", "ACKONCE_SQL_SCHEMA", At::Worker, "sql_schema"),
    twin("log", "ACKONCE_LOG", At::Worker, "log"),
    twin("key", "ACKONCE_KEY", At::Worker, "key"),
    twin("scope", "ACKONCE_SCOPE", At::Worker, "scope"),
    twin("on-missing-key", "ACKONCE_ON_MISSING_KEY", At::Worker, "on_missing_key"),
    twin("on-mismatch", "ACKONCE_ON_MISMATCH", At::Worker, "on_mismatch"),
    twin("on-interrupted", "ACKONCE_ON_INTERRUPTED", At::Worker, "on_interrupted"),
    twin("timeout", "ACKONCE_TIMEOUT", At::Worker, "timeout"),
    twin("kill-grace", "ACKONCE_KILL_GRACE", At::Worker, "kill_grace"),
    twin("concurrency", "ACKONCE_CONCURRENCY", At::Worker, "concurrency"),
    twin("prefetch", "ACKONCE_PREFETCH", At::Worker, "prefetch"),
    twin("dead-letter", "ACKONCE_DEAD_LETTER", At::Worker, "dead_letter"),
    twin("dead-letter-exchange", "ACKONCE_DEAD_LETTER_EXCHANGE", At::Worker, "dead_letter_exchange"),
    twin("declare", "ACKONCE_DECLARE", At::Worker, "declare"),
    twin("queue-type", "ACKONCE_QUEUE_TYPE", At::Worker, "queue_type"),
    twin("max-attempts", "ACKONCE_MAX_ATTEMPTS", At::Retry, "max_attempts"),
    twin("initial-interval", "ACKONCE_INITIAL_INTERVAL", At::Retry, "initial_interval"),
    twin("multiplier", "ACKONCE_MULTIPLIER", At::Retry, "multiplier"),
    twin("max-interval", "ACKONCE_MAX_INTERVAL", At::Retry, "max_interval"),
    twin("jitter", "ACKONCE_JITTER", At::Retry, "jitter"),
    // Read with the command line; here so that the names are known.
    twin("log-level", "ACKONCE_LOG_LEVEL", At::CommandLine, "log_level"),
    twin("log-format", "ACKONCE_LOG_FORMAT", At::CommandLine, "log_format"),
];

/// What a handler finds in its environment; a worker started from within one inherits it.
const OF_HANDLERS: [&str; 15] = [
    "ACKONCE_KEY",
    "ACKONCE_MESSAGE_ID",
    "ACKONCE_SCOPE",
    "ACKONCE_QUEUE",
    "ACKONCE_EXCHANGE",
    "ACKONCE_ROUTING_KEY",
    "ACKONCE_ATTEMPT",
    "ACKONCE_INTERRUPTED",
    "ACKONCE_REDELIVERED",
    "ACKONCE_TYPE",
    "ACKONCE_CONTENT_TYPE",
    "ACKONCE_CORRELATION_ID",
    "ACKONCE_REPLY_TO",
    "ACKONCE_TIMESTAMP",
    "ACKONCE_HEADERS",
];

/// A setting that was given outside the file.
pub(super) type Override = (&'static Twin, Setting);

/// The settings given as flags: each flag's name and values. A flag without values was not given.
pub(super) fn from_flags<'a>(flags: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Vec<Override> {
    let given = flags.into_iter().filter(|(_, values)| !values.is_empty());
    given
        .filter_map(|(flag, values)| {
            let twin = TWINS.iter().find(|twin| twin.flag == flag)?;
            let raw = match (twin.key, values) {
                ("exec" | "pipe" | "key" | "http_headers" | "listen_host", _) | ("url", [_, _, ..]) => {
                    Raw::Texts(values.to_vec())
                }
                _ => Raw::Text(values[0].clone()),
            };
            Some((twin, Setting { origin: Origin::Flag(twin.flag), raw }))
        })
        .collect()
}

/// The settings given as environment variables; empty ones are not given. A variable that is
/// almost one of ours is a problem. Within a handler, what describes its message is no setting.
pub(super) fn from_env(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    problems: &mut Problems,
) -> Vec<Override> {
    let mut variables: Vec<_> = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, value)| (name.starts_with("ACKONCE_") || name == "AMQP_URL") && !value.is_empty())
        .collect();
    variables.sort();
    let in_handler = variables.iter().any(|(name, _)| name == "ACKONCE_ATTEMPT");
    let mut settings = Vec::new();
    for (name, value) in variables {
        if in_handler && OF_HANDLERS.contains(&name.as_str()) {
            continue;
        }
        match (TWINS.iter().find(|twin| twin.env == name), value.into_string()) {
            (Some(twin), Ok(value)) => {
                settings.push((twin, Setting { origin: Origin::Env(name), raw: Raw::Text(value) }));
            }
            (Some(_), Err(_)) => problems.push(format!("{name}: its value is not UTF-8: write it as UTF-8")),
            (None, _) if OF_HANDLERS.contains(&name.as_str()) => {}
            (None, _) => {
                if let Some(near) = nearest_variable(&name) {
                    let name = quoted(&name);
                    let name = name.trim_matches('"');
                    problems.push(format!("unknown environment variable '{name}' (did you mean '{near}'?)"));
                }
            }
        }
    }
    settings
}

/// Only the part after the prefix counts: `ACKONCE_PORT` is nobody's misspelling of ours.
fn nearest_variable(name: &str) -> Option<&'static str> {
    let rest = name.strip_prefix("ACKONCE_")?;
    let known = TWINS.iter().filter_map(|twin| twin.env.strip_prefix("ACKONCE_"));
    let near = nearest(rest, known)?;
    TWINS.iter().map(|twin| twin.env).find(|env| env.strip_prefix("ACKONCE_") == Some(near))
}

/// The text given for a setting; a flag counts more than a variable.
pub(super) fn text_of<'a>(overrides: &'a [Override], flag: &str) -> Option<&'a str> {
    let (_, setting) = overrides.iter().rev().find(|(twin, _)| twin.flag == flag)?;
    match &setting.raw {
        Raw::Text(text) => Some(text),
        Raw::Texts(_) | Raw::Toml(_) => None,
    }
}
