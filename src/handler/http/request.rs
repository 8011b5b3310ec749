//! One message as one request.
//!
//! What describes the message travels under names of our own, and its headers as one JSON value: a
//! sender must not be able to set an `Authorization` or a `Host`. Only its trace, which has been checked, has the
//! names that everybody knows.
//!
//! A value that no HTTP header holds as it is, is percent-encoded: every byte but the visible ASCII
//! characters and blanks between them, and the percent sign itself. So percent-decoding always gives
//! the value back, and two keys never become one.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::{
    Client, Request, Url,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap,
        HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
};

use super::signature::SigningKeys;
use crate::{
    handler::Work,
    message::{Message, table_json},
    secret_file::BearerToken,
};

/// Common servers take headers of 8 KiB in all.
const HEADERS_JSON_BYTES_MAX: usize = 4 * 1024;

const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The content codings of HTTP. What else AMQP senders write there, often a character set, would make
/// servers refuse the request.
const CODINGS: [&str; 9] =
    ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd", "aes128gcm", "identity"];

/// Headers that are sent with every request.
#[derive(Debug, Default)]
pub(super) struct StaticHeaders(HeaderMap);

/// What was read from files for this request.
pub(super) struct Secrets {
    pub(super) bearer_token: Option<Arc<BearerToken>>,
    pub(super) signing_keys: Option<Arc<SigningKeys>>,
}

impl StaticHeaders {
    /// # Errors
    ///
    /// One sentence; it shows a header's name at most.
    pub(super) fn parse(headers: &[(String, String)]) -> Result<Self, String> {
        let mut map = HeaderMap::new();
        map.insert(USER_AGENT, HeaderValue::from_static(concat!("ackonce/", env!("CARGO_PKG_VERSION"))));
        let mut given = HeaderMap::new();
        for (name, value) in headers {
            let Ok(name) = HeaderName::try_from(name) else {
                return Err("http_headers: a name is not one of HTTP's: write Name: value".to_owned());
            };
            if is_ours(&name) {
                return Err(format!("http_headers: '{name}' is set by ackonce itself: take it out"));
            }
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| format!("http_headers: '{name}': a control character stands in its value"))?;
            value.set_sensitive(true);
            if given.insert(name.clone(), value).is_some() {
                return Err(format!("http_headers: '{name}' is given twice: keep one of them"));
            }
        }
        map.extend(given);
        Ok(Self(map))
    }

    pub(super) fn authorize(&self) -> bool {
        self.0.contains_key(AUTHORIZATION)
    }
}

fn is_ours(name: &HeaderName) -> bool {
    let framing =
        [HOST, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING, CONNECTION, UPGRADE, TE, TRAILER];
    let name = name.as_str();
    framing.iter().any(|framing| framing == name)
        || matches!(name, "idempotency-key" | "traceparent" | "tracestate")
        || name.starts_with("ackonce-")
        || name.starts_with("webhook-")
}

/// A POST of the message. Its body is shared, not copied.
///
/// # Errors
///
/// None that a message is known to cause: every value is encoded.
pub(super) fn build(
    client: &Client,
    url: &Url,
    headers: &StaticHeaders,
    secrets: &Secrets,
    work: &Work,
) -> reqwest::Result<Request> {
    let body = Bytes::from_owner(Body(work.message.clone()));
    let mut all = metadata(work);
    if let Some(keys) = &secrets.signing_keys {
        // A clock before 1970 signs as of then.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = encoded(work.key.as_str());
        all.insert("webhook-signature", value(&keys.sign(&id, now, &body)));
        all.insert("webhook-timestamp", now.into());
        all.insert("webhook-id", value(&id));
    }
    all.extend(headers.0.clone());
    if let Some(token) = &secrets.bearer_token {
        let mut value = value(&format!("Bearer {}", token.0));
        value.set_sensitive(true);
        all.insert(AUTHORIZATION, value);
    }
    // hyper writes none for an empty body, and some servers refuse a POST without.
    all.insert(CONTENT_LENGTH, body.len().into());
    client.post(url.clone()).headers(all).body(body).build()
}

struct Body(Arc<Message>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0.body
    }
}

/// What describes the message. A property that is absent is no header.
fn metadata(work: &Work) -> HeaderMap {
    let message = &work.message;
    let properties = &message.properties;
    let flag = |flag| if flag { "1" } else { "0" };
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, text: &str| {
        headers.insert(HeaderName::from_static(name), value(&encoded(text)));
    };
    set("idempotency-key", work.key.as_str());
    set("ackonce-attempt", &work.attempt.to_string());
    set("ackonce-interrupted", flag(work.interrupted));
    set("ackonce-scope", &work.scope);
    set("ackonce-queue", &work.queue);
    set("ackonce-exchange", &message.exchange);
    set("ackonce-routing-key", &message.routing_key);
    set("ackonce-redelivered", flag(message.redelivered));
    let optional = [
        ("ackonce-message-id", &properties.message_id),
        ("ackonce-type", &properties.kind),
        ("ackonce-correlation-id", &properties.correlation_id),
        ("ackonce-reply-to", &properties.reply_to),
    ];
    for (name, text) in optional {
        if let Some(text) = text {
            set(name, text);
        }
    }
    if let Some(timestamp) = properties.timestamp {
        set("ackonce-timestamp", &timestamp.to_string());
    }
    let coding = properties.content_encoding.as_deref().filter(|coding| !coding.is_empty());
    match coding {
        Some(coding) if is_http_coding(coding) => set("content-encoding", coding),
        Some(other) => set("ackonce-content-encoding", other),
        None => {}
    }
    headers.insert("ackonce-headers", value(&headers_json(work)));
    if let Some(trace) = work.trace_context() {
        headers.insert("traceparent", value(trace.traceparent()));
        if let Some(state) = trace.tracestate() {
            headers.insert("tracestate", value(state));
        }
    }
    headers.insert(CONTENT_TYPE, content_type(properties.content_type.as_deref()));
    headers
}

/// The message's own, unless no header holds it.
fn content_type(given: Option<&str>) -> HeaderValue {
    let given = given.map(str::trim).filter(|given| !given.is_empty() && given.is_ascii());
    let given = given.and_then(|given| HeaderValue::from_str(given).ok());
    given.unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

fn is_http_coding(coding: &str) -> bool {
    coding.split(',').all(|one| CODINGS.iter().any(|known| known.eq_ignore_ascii_case(one.trim_matches(' '))))
}

/// See the module.
fn encoded(text: &str) -> Cow<'_, str> {
    let mut text: Cow<'_, str> = utf8_percent_encode(text, ENCODED).into();
    if text.starts_with(' ') {
        text.to_mut().replace_range(..1, "%20");
    }
    if text.ends_with(' ') {
        let last = text.len() - 1;
        text.to_mut().replace_range(last.., "%20");
    }
    text
}

/// Only for text that is visible ASCII and blanks; anything else, which would be a mistake of ours, is
/// left out rather than worth a panic.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// The message's headers as one JSON object in ASCII; `{"ackonce_too_long":true}` if they are too long.
fn headers_json(work: &Work) -> String {
    let Some(table) = &work.message.properties.headers else { return "{}".to_owned() };
    let json = ascii(&table_json(table).to_string());
    if json.len() > HEADERS_JSON_BYTES_MAX { r#"{"ackonce_too_long":true}"#.to_owned() } else { json }
}

/// JSON stays the same JSON: beyond ASCII there are only characters of its strings.
fn ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests;
