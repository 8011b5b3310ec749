//! The grammar of a broker's URL, part by part. No error quotes any part.

use std::{net::Ipv6Addr, time::Duration};

use percent_encoding::percent_decode_str;

use super::{Endpoint, HEARTBEAT_DEFAULT_SECS, SASLMechanism, TlsFiles};
use crate::broker::convert::SHORT_BYTES_MAX;

/// The smallest frame size that AMQP 0-9-1 allows.
const FRAME_MIN_BYTES: u32 = 4096;

const FORM: &str = "write amqp://user:password@host:5672/vhost";

pub(super) fn parse(url: &str) -> Result<Endpoint, String> {
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
        password: password.into(),
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
    if vhost.len() > SHORT_BYTES_MAX {
        return Err(format!("its vhost has {} bytes: AMQP allows {SHORT_BYTES_MAX}", vhost.len()));
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
