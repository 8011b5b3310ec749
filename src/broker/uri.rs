//! Broker URLs: `amqp://user:password@host:port/vhost?heartbeat=20`, read strictly.
//!
//! What is refused is refused with a hint and never quoted back: a URL that was split wrongly may
//! show a piece of the password in any of its parts.

mod parse;

use std::{fmt, path::PathBuf, time::Duration};

use super::Password;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Seconds between heartbeats unless somebody says otherwise: two missed ones end a connection.
const HEARTBEAT_DEFAULT_SECS: u16 = 20;
/// RabbitMQ 4.1 refuses connections that ask for smaller frames.
const FRAME_MAX_SAFE_BYTES: u32 = 8192;
/// What needs no escape when a user or vhost is shown in a URL.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where a broker is and as whom to log in. Neither `Debug` nor `Display` shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    tls: bool,
    user: String,
    password: Password,
    host: String,
    port: u16,
    vhost: String,
    /// As the URL says.
    heartbeat_secs: Option<u16>,
    heartbeat_default_secs: u16,
    frame_max: Option<u32>,
    channel_max: Option<u16>,
    connect_timeout: Option<Duration>,
    mechanism: SASLMechanism,
    pub(super) tls_files: TlsFiles,
}

/// PEM files for TLS: whom to trust besides the system's authorities, and who we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) cacertfile: Option<PathBuf>,
    pub(super) certfile: Option<PathBuf>,
    pub(super) keyfile: Option<PathBuf>,
}

/// Why a URL cannot be used: one sentence with a hint, without any part of the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broker URL: {0}")]
pub struct UriError(String);

impl Endpoint {
    /// Reads a URL. Without a user it is `guest`; without a path, the default vhost `/`.
    ///
    /// # Errors
    ///
    /// One sentence with a hint for the first thing that is wrong.
    pub fn parse(url: &str) -> Result<Self, UriError> {
        parse::parse(url.trim()).map_err(UriError)
    }

    /// The same endpoint with a password that was given separately; one in the URL is overridden. Clones of one
    /// [`Password`] stay the same one.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<Password>) -> Self {
        self.password = password.into();
        self
    }

    /// The same endpoint with another time between heartbeats, where its URL names none. Fractions
    /// of a second are dropped.
    #[must_use]
    pub fn with_heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat_default_secs = u16::try_from(heartbeat.as_secs()).unwrap_or(u16::MAX);
        self
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    /// A name or an address; an IPv6 address comes without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn vhost(&self) -> &str {
        &self.vhost
    }

    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// What works but is likely not meant, one sentence each, for a log at start.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(bytes) = self.frame_max.filter(|bytes| *bytes != 0 && *bytes < FRAME_MAX_SAFE_BYTES) {
            warnings.push(format!(
                "frame_max={bytes} in the broker URL: RabbitMQ 4.1 and later refuse less than \
                 {FRAME_MAX_SAFE_BYTES}; leave it out to take the broker's"
            ));
        }
        warnings
    }

    /// The time limit for each TCP connect that the URL asks for.
    pub(super) fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// For lapin. Holds the password, and lapin's `Display` shows it: pass it on, never print it.
    pub(super) fn to_lapin(&self) -> AMQPUri {
        AMQPUri {
            scheme: if self.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username: self.user.clone(), password: self.password.text() },
                host: self.host.clone(),
                port: self.port,
            },
            vhost: self.vhost.clone(),
            query: AMQPQueryString {
                frame_max: self.frame_max,
                channel_max: self.channel_max,
                heartbeat: Some(self.heartbeat_secs.unwrap_or(self.heartbeat_default_secs)),
                connection_timeout: None,
                auth_mechanism: Some(self.mechanism),
            },
        }
    }
}

/// As a URL without the password.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}@{}/{}",
            if self.tls { "amqps" } else { "amqp" },
            utf8_percent_encode(&self.user, SHOWN),
            self.authority(),
            utf8_percent_encode(&self.vhost, SHOWN),
        )
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

#[cfg(test)]
mod tests;
