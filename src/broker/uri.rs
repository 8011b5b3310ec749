//! Broker URLs: `amqp://user:password@host:port/vhost?heartbeat=20`, read strictly.
//!
//! What is refused is refused with a hint and never quoted back: a URL that was split wrongly may
//! show a piece of the password in any of its parts.

use std::{fmt, net::Ipv6Addr, path::PathBuf, time::Duration};

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Seconds between heartbeats unless somebody says otherwise: two missed ones end a connection.
const HEARTBEAT_DEFAULT_SECS: u16 = 20;
/// RabbitMQ 4.1 refuses connections that ask for smaller frames.
const FRAME_MAX_SAFE_BYTES: u32 = 8192;
/// The smallest frame size that AMQP 0-9-1 allows.
const FRAME_MIN_BYTES: u32 = 4096;
/// AMQP short strings, such as a vhost's name.
const SHORT_BYTES: usize = 255;

const FORM: &str = "write amqp://user:password@host:5672/vhost";
/// What needs no escape when a user or vhost is shown in a URL.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where a broker is and as whom to log in. Neither `Debug` nor `Display` shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    tls: bool,
    user: String,
    password: String,
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
        parse(url.trim()).map_err(UriError)
    }

    /// The same endpoint with a password that was given separately; one in the URL is overridden.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
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
                userinfo: AMQPUserInfo { username: self.user.clone(), password: self.password.clone() },
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

fn parse(url: &str) -> Result<Endpoint, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("it is not a URL: {FORM}"));
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "amqp" => false,
        "amqps" => true,
        _ => return Err("its scheme is unknown: amqp:// and amqps:// (TLS) are spoken here".into()),
    };
    if rest.contains('#') {
        return Err("it holds an unencoded '#': in a password write %23".into());
    }
    let (rest, query) = match rest.split_once('?') {
        Some((_, query)) if query.contains('@') => {
            return Err("it holds an unencoded '?' before '@': in a password write %3F".into());
        }
        Some((rest, query)) => (rest, query),
        None => (rest, ""),
    };
    let (authority, path) = match rest.split_once('/') {
        Some((_, path)) if path.contains('@') => {
            return Err("it holds an unencoded '/' before '@': in a password write %2F".into());
        }
        Some((authority, path)) => (authority, Some(path)),
        None => (rest, None),
    };
    let (userinfo, hostport) = match authority.rsplit_once('@') {
        Some((userinfo, _)) if userinfo.contains('@') => {
            return Err("it holds more than one '@': in a user or password write %40".into());
        }
        Some((userinfo, hostport)) => (Some(userinfo), hostport),
        None => (None, authority),
    };
    let (user, password) = parse_userinfo(userinfo)?;
    let (host, port) = parse_host(hostport)?;
    let mut endpoint = Endpoint {
        tls,
        user,
        password,
        host,
        port: port.unwrap_or(if tls { 5671 } else { 5672 }),
        vhost: parse_vhost(path)?,
        heartbeat_secs: None,
        heartbeat_default_secs: HEARTBEAT_DEFAULT_SECS,
        frame_max: None,
        channel_max: None,
        connect_timeout: None,
        mechanism: SASLMechanism::default(),
        tls_files: TlsFiles::default(),
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        parse_parameter(&mut endpoint, pair)?;
    }
    match (&endpoint.tls_files.certfile, &endpoint.tls_files.keyfile) {
        (Some(_), None) | (None, Some(_)) => {
            Err("certfile and keyfile are given together or not at all".into())
        }
        _ => Ok(endpoint),
    }
}

fn parse_userinfo(userinfo: Option<&str>) -> Result<(String, String), String> {
    let Some(userinfo) = userinfo else {
        return Ok(("guest".into(), "guest".into()));
    };
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    if user.is_empty() {
        return Err(format!("it names no user before '@': {FORM}"));
    }
    Ok((decode(user, "user")?, decode(password, "password")?))
}

fn parse_host(hostport: &str) -> Result<(String, Option<u16>), String> {
    if let Some(rest) = hostport.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return Err("its IPv6 address lacks the closing ']'".into());
        };
        let address: Ipv6Addr =
            address.parse().map_err(|_| "between its brackets is no IPv6 address".to_owned())?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((address.to_string(), parse_port(port)?)),
            None if port.is_empty() => Ok((address.to_string(), None)),
            None => Err("after an IPv6 address in brackets comes ':port' or nothing".into()),
        };
    }
    let (host, port) = match hostport.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("an IPv6 address is written in brackets: amqp://[::1]:5672".into());
        }
        Some((host, port)) => (host, parse_port(port)?),
        None => (hostport, None),
    };
    if host.is_empty() {
        return Err(format!("it names no host: {FORM}"));
    }
    Ok((decode(host, "host")?, port))
}

/// Empty means the default, as in any URL. What is no port may be a password: it is not quoted.
fn parse_port(port: &str) -> Result<Option<u16>, String> {
    if port.is_empty() {
        return Ok(None);
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("after the host's ':' comes no port number; if that is a password, {FORM}"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err("its port is out of range: 1 to 65535".into()),
    }
}

fn parse_vhost(path: Option<&str>) -> Result<String, String> {
    let Some(path) = path else { return Ok("/".into()) };
    if path.is_empty() {
        return Err("empty vhost: leave the slash out, or write %2f for the default vhost".into());
    }
    if path.contains('/') {
        return Err("it holds an unencoded '/' in the vhost: write %2f".into());
    }
    let vhost = decode(path, "vhost")?;
    if vhost.to_ascii_lowercase().contains("%2f") {
        return Err("its vhost is encoded twice: write %2f, not %252f".into());
    }
    if vhost.len() > SHORT_BYTES {
        return Err(format!("its vhost has {} bytes: AMQP allows {SHORT_BYTES}", vhost.len()));
    }
    Ok(vhost)
}

fn parse_parameter(endpoint: &mut Endpoint, pair: &str) -> Result<(), String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let value = decode(value, "parameter")?;
    fn number<N: std::str::FromStr>(name: &str, value: &str, expected: &str) -> Result<N, String> {
        value.parse().map_err(|_| format!("{name} is not {expected}"))
    }
    match name {
        "heartbeat" => {
            endpoint.heartbeat_secs = Some(number(name, &value, "a number of seconds up to 65535")?);
        }
        "frame_max" => {
            let bytes: u32 = number(name, &value, "a number of bytes")?;
            if bytes != 0 && bytes < FRAME_MIN_BYTES {
                return Err(format!("frame_max is below {FRAME_MIN_BYTES}, the least that AMQP allows"));
            }
            endpoint.frame_max = Some(bytes);
        }
        "channel_max" => endpoint.channel_max = Some(number(name, &value, "a number up to 65535")?),
        "connection_timeout" => {
            let timeout = Duration::from_millis(number(name, &value, "a number of milliseconds")?);
            endpoint.connect_timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        }
        "auth_mechanism" => {
            endpoint.mechanism =
                value.parse().map_err(|_| "auth_mechanism is one of plain, amqplain, external".to_owned())?;
        }
        "cacertfile" => endpoint.tls_files.cacertfile = Some(value.into()),
        "certfile" => endpoint.tls_files.certfile = Some(value.into()),
        "keyfile" => endpoint.tls_files.keyfile = Some(value.into()),
        _ => {
            return Err(
                "it has an unknown parameter after '?': known are heartbeat, frame_max, channel_max, \
                        connection_timeout, auth_mechanism, cacertfile, certfile and keyfile"
                    .into(),
            );
        }
    }
    Ok(())
}

fn decode(text: &str, part: &str) -> Result<String, String> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        if !is_hex(bytes.get(at + 1)) || !is_hex(bytes.get(at + 2)) {
            return Err(format!("a '%' in its {part} is not followed by two hex digits: write %25"));
        }
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(format!("its {part} is not UTF-8 once decoded")),
    }
}

#[cfg(test)]
mod tests;
