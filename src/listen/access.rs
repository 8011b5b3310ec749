//! Who may see the status page and act through it.
//!
//! - A name that was not configured is refused as `Host`: else a foreign page could reach us under a name of its
//!   own that leads to this address, and read as if it were ours (DNS rebinding).
//! - What another site's page sends is refused by its `Origin` or `Sec-Fetch-Site`.
//! - Actions need the token. So does reading, unless both the socket and the request are of this host alone.

use std::{net::IpAddr, path::Path, str::FromStr};

use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, FORWARDED, HOST, HeaderName, ORIGIN},
    http::{request::Parts, uri::Authority},
};
use tracing::warn;

use crate::secret_file::{BearerToken, SecretFile};

use super::refusal::Refusal;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

pub(super) const TOKEN_MISSING: &str = "set a token to allow this: --listen-token-file FILE";

/// See the module. The default is for this host alone, and nobody may act.
#[derive(Default)]
pub struct Access {
    token: Option<SecretFile<BearerToken>>,
    hosts: Vec<String>,
    /// Whether others than this host can reach the socket.
    exposed: bool,
}

/// What a request has shown of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may read.
    Reader,
    /// It has the token.
    Holder,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("hosts", &self.hosts)
            .field("exposed", &self.exposed)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// `hosts`: names that are ours, in lower case.
    ///
    /// # Errors
    ///
    /// One sentence: the token cannot be read, or is too short.
    pub fn new(hosts: Vec<String>, token_file: Option<&Path>) -> Result<Self, String> {
        let token = token_file.map(SecretFile::<BearerToken>::new);
        if let (Some(file), Some(path)) = (&token, token_file)
            && file.read()?.0.len() < TOKEN_BYTES_MIN
        {
            return Err(format!(
                "the token in '{}' has less than {TOKEN_BYTES_MIN} characters: take a longer one, as from \
                 openssl rand -hex 32",
                path.display()
            ));
        }
        Ok(Self { token, hosts, exposed: false })
    }

    pub(super) fn listens_at(&mut self, address: IpAddr) {
        self.exposed = !is_loopback(address);
    }

    /// Whether it was addressed as we are called.
    pub(super) fn check_host(&self, head: &Parts) -> Result<(), Refusal> {
        let asked = host(head)?;
        let name = name(&asked);
        let is_ours = ip(name).is_some()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
        if is_ours {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "this is not served under the name '{name}': use the IP address, or start with --listen-host {name}"
            ),
        ))
    }

    /// Whether the page that sent it is ours, as far as a browser says.
    pub(super) fn check_origin(&self, head: &Parts) -> Result<(), Refusal> {
        let foreign =
            || Err(Refusal::new(StatusCode::FORBIDDEN, "another site's page has sent this request"));
        // "none" is a person who typed the address.
        if one(&head.headers, &SEC_FETCH_SITE)?.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
            return foreign();
        }
        let Some(origin) = one(&head.headers, &ORIGIN)? else { return Ok(()) };
        // A proxy in between may speak TLS, so either scheme is right.
        let sender = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let same = sender
            .is_some_and(|sender| host(head).is_ok_and(|ours| ours.as_str().eq_ignore_ascii_case(sender)));
        if same { Ok(()) } else { foreign() }
    }

    /// Whether it may read, and whether it has the token. A wrong token is refused, also where none is needed.
    pub(super) fn check_token(&self, head: &Parts) -> Result<Standing, Refusal> {
        let authorization = one(&head.headers, &AUTHORIZATION)?;
        let Some(file) = &self.token else {
            return if self.is_of_this_host(head) {
                Ok(Standing::Reader)
            } else {
                Err(Refusal::new(StatusCode::FORBIDDEN, TOKEN_MISSING))
            };
        };
        let Some(given) = authorization else {
            return if self.is_of_this_host(head) {
                Ok(Standing::Reader)
            } else {
                Err(Refusal::new(StatusCode::UNAUTHORIZED, "this needs the token"))
            };
        };
        let token = file.read().map_err(|error| {
            warn!("nobody can act through the status page: {error}");
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the token cannot be read; the worker's log says why",
            )
        })?;
        let is_right = given.strip_prefix("Bearer ").is_some_and(|given| {
            // Hashes are compared in constant time, and so neither text nor length shows.
            blake3::hash(given.as_bytes()) == blake3::hash(token.0.as_bytes())
        });
        if is_right {
            Ok(Standing::Holder)
        } else {
            Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is not right"))
        }
    }

    /// Whether the request has the token, which an action needs.
    pub(super) fn check_action(&self, head: &Parts) -> Result<(), Refusal> {
        match self.check_token(head)? {
            Standing::Holder => Ok(()),
            Standing::Reader if self.token.is_none() => {
                Err(Refusal::new(StatusCode::FORBIDDEN, TOKEN_MISSING))
            }
            Standing::Reader => Err(Refusal::new(StatusCode::UNAUTHORIZED, "this needs the token")),
        }
    }

    /// Whether there is a token, so that somebody may act.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Nobody else can have sent it: not to this socket, not by another name, not through a proxy that says so.
    fn is_of_this_host(&self, head: &Parts) -> bool {
        let local = |asked: &Authority| {
            let name = name(asked);
            name.eq_ignore_ascii_case("localhost") || ip(name).is_some_and(is_loopback)
        };
        let forwarded = head.headers.contains_key(FORWARDED) || head.headers.contains_key(X_FORWARDED_FOR);
        !self.exposed && !forwarded && host(head).is_ok_and(|asked| local(&asked))
    }
}

/// A header's value; an error if there are several, or it is no text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let unclear = || Refusal::bad(format!("the header {name} is not one word"));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| unclear()),
        (Some(_), Some(_)) => Err(unclear()),
    }
}

/// What it was addressed to. A request may name that in its first line as well, and then both must agree.
fn host(head: &Parts) -> Result<Authority, Refusal> {
    let unclear = || Refusal::bad("the request does not say clearly which host it is for");
    let named = one(&head.headers, &HOST)?.ok_or_else(unclear)?;
    let authority = Authority::from_str(named).map_err(|_| unclear())?;
    let agrees = head.uri.authority().is_none_or(|first| *first == authority);
    if agrees && !named.contains('@') { Ok(authority) } else { Err(unclear()) }
}

/// Without port and brackets.
fn name(authority: &Authority) -> &str {
    let host = authority.host();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn ip(name: &str) -> Option<IpAddr> {
    name.parse().ok()
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
