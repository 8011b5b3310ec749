//! The broker's settings.

use std::{fs, time::Duration};

use super::{
    secret::{BrokerUrl, Secret},
    section::{Given, Section},
};

/// Where the broker is and how to log in.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// At least one; tried in this order.
    pub urls: Vec<BrokerUrl>,
    /// Given separately, by itself or in a file; then no URL holds one.
    pub password: Option<Secret>,
    /// Whole seconds, from 1 to 65535.
    pub heartbeat: Duration,
}

pub(super) const URL_DEFAULT: &str = "amqp://127.0.0.1:5672";

/// Two missed heartbeats end a session: long enough for a loaded host, short enough to be noticed.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(20);

/// A password is one line; a file longer than this is some other file.
const PASSWORD_BYTES_MAX: u64 = 4096;

pub(super) fn read(broker: &mut Section) -> BrokerConfig {
    let urls = urls(broker);
    let file = broker.text("password_file", "expected the name of a file that holds the password");
    // In a file it would be a secret among settings, which are shown around.
    let given =
        if broker.is_override("password") { broker.text("password", "expected a text") } else { None };
    let separate = given.as_ref().map(|given| &given.said).or(file.as_ref().map(|file| &file.said));
    if let Some(said) = separate.filter(|_| urls.iter().any(BrokerUrl::has_password)).cloned() {
        broker.problem(format!("{said}: the URL holds a password too: take one of them out"));
    }
    if let (Some(given), Some(file)) = (&given, &file) {
        broker.problem(format!("{}: {} is given too: take one of them out", given.said, file.said));
    }
    let from_file = file.and_then(|file| password(broker, &file));
    let password = given.map(|given| Secret::new(given.value)).or(from_file);
    let range = Duration::from_secs(1)..=Duration::from_secs(u16::MAX.into());
    let heartbeat = match broker.time("heartbeat", range) {
        Some(heartbeat) if heartbeat.value.subsec_nanos() != 0 => {
            broker.problem(format!("{}: expected whole seconds", heartbeat.said));
            HEARTBEAT_DEFAULT
        }
        heartbeat => heartbeat.map_or(HEARTBEAT_DEFAULT, |heartbeat| heartbeat.value),
    };
    BrokerConfig { urls, password, heartbeat }
}

fn urls(broker: &mut Section) -> Vec<BrokerUrl> {
    // Without the place of user and password: it would look like a URL that holds some.
    const EXPECTED: &str = "expected amqp://HOST:PORT/VHOST, amqps://…, or a list of these";
    let Some(given) = broker.texts("url", true, EXPECTED) else {
        return vec![BrokerUrl::new(URL_DEFAULT)];
    };
    if given.value.is_empty() {
        broker.problem(format!("{}: {EXPECTED}", given.said));
    }
    for url in &given.value {
        let host = url.strip_prefix("amqp://").or_else(|| url.strip_prefix("amqps://"));
        if host.is_none_or(str::is_empty) {
            broker.problem(format!("{}: {EXPECTED}", given.said));
        } else if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
            broker.problem(format!(
                "{}: a blank or control character stands in it: write it percent-encoded, a blank as %20",
                given.said
            ));
        }
    }
    given.value.into_iter().map(BrokerUrl::new).collect()
}

/// The file's text without one newline at its end.
fn password(broker: &mut Section, file: &Given<String>) -> Option<Secret> {
    let read = || {
        let length = fs::metadata(&file.value)?.len();
        if length > PASSWORD_BYTES_MAX {
            let error = format!("it has {length} bytes, a password has at most {PASSWORD_BYTES_MAX}");
            return Err(std::io::Error::other(error));
        }
        fs::read_to_string(&file.value)
    };
    match read() {
        Ok(text) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.is_empty() {
                broker.problem(format!("{}: the file is empty: write the password into it", file.said));
            }
            Some(Secret::new(text))
        }
        Err(error) => {
            broker.problem(format!("{}: the file cannot be read ({error})", file.said));
            None
        }
    }
}
