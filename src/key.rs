//! What identifies a message: where its key is taken from, and the key itself.

use std::{fmt, str::FromStr, sync::Arc};

use serde_json::Value as Json;

use crate::message::{Message, Properties, Value};

/// What identifies a message within its scope. Compared bytewise; never empty or blank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Longer keys are replaced by their hash, so that an index entry stays small.
pub const KEY_BYTES_MAX: usize = 1024;

impl Key {
    /// `None` if the text is empty or blank: that is a missing key, not a key.
    ///
    /// A text of more than [`KEY_BYTES_MAX`] bytes becomes `blake3:` and its hash.
    pub fn new(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            None
        } else if text.len() > KEY_BYTES_MAX {
            Some(Self(format!("blake3:{}", blake3::hash(text.as_bytes()).to_hex()).into()))
        } else {
            Some(Self(text.into()))
        }
    }

    /// The key that `on_mismatch = "process"` runs another body under: this one, a `+`, and the
    /// body's fingerprint.
    pub fn with_fingerprint(&self, fingerprint: Fingerprint) -> Self {
        Self(format!("{}+{fingerprint}", self.0).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 16 bytes of a body's BLAKE3 hash: tells two bodies under one key apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    pub fn of(body: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&blake3::hash(body).as_bytes()[..16]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Where keys come from: one source, or several that identify a message together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec(Vec<KeySource>);

/// One source of (a part of) a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The property `message_id`.
    MessageId,
    /// The header of that exact name. A number or boolean counts as its text, bytes as their text
    /// if they are UTF-8 and as `hex:…` otherwise; tables and lists are no key.
    Header(String),
    Property(Property),
    /// A JSON pointer (RFC 6901) into a JSON body, at a string, number or boolean.
    Json(String),
    /// `body:` and the BLAKE3 hash of the whole body.
    Body,
}

/// A property a key can be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    CorrelationId,
    Type,
    Timestamp,
    ReplyTo,
    AppId,
    UserId,
    MessageId,
    RoutingKey,
    Exchange,
}

impl Property {
    const NAMES: [(&str, Property); 9] = [
        ("correlation-id", Property::CorrelationId),
        ("type", Property::Type),
        ("timestamp", Property::Timestamp),
        ("reply-to", Property::ReplyTo),
        ("app-id", Property::AppId),
        ("user-id", Property::UserId),
        ("message-id", Property::MessageId),
        ("routing-key", Property::RoutingKey),
        ("exchange", Property::Exchange),
    ];

    fn of(self, message: &Message) -> Option<String> {
        let properties: &Properties = &message.properties;
        match self {
            Property::CorrelationId => properties.correlation_id.clone(),
            Property::Type => properties.kind.clone(),
            Property::Timestamp => properties.timestamp.map(|t| t.to_string()),
            Property::ReplyTo => properties.reply_to.clone(),
            Property::AppId => properties.app_id.clone(),
            Property::UserId => properties.user_id.clone(),
            Property::MessageId => properties.message_id.clone(),
            Property::RoutingKey => Some(message.routing_key.clone()),
            Property::Exchange => Some(message.exchange.clone()),
        }
    }
}

impl Default for KeySpec {
    fn default() -> Self {
        Self(vec![KeySource::MessageId])
    }
}

impl KeySpec {
    /// One or more sources, as written in a configuration.
    ///
    /// # Errors
    ///
    /// One sentence for the first source that cannot be read, or for an empty list.
    pub fn parse<'a>(sources: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let sources = sources.into_iter().map(str::parse).collect::<Result<Vec<KeySource>, _>>()?;
        if sources.is_empty() {
            return Err(format!("an empty key identifies nothing: {EXPECTED}"));
        }
        Ok(Self(sources))
    }

    /// The key of a message; one part alone is taken as it is, several become a JSON list of texts,
    /// which no two different lists of parts share.
    ///
    /// # Errors
    ///
    /// The source that is missing, empty, blank or of no use, named for the log.
    pub fn extract(&self, message: &Message) -> Result<Key, MissingKey> {
        let part = |source: &KeySource| -> Result<String, MissingKey> {
            let text = source.extract(message)?;
            if text.trim().is_empty() { Err(MissingKey(format!("{source} is empty"))) } else { Ok(text) }
        };
        let text = match self.0.as_slice() {
            [source] => part(source)?,
            sources => {
                let parts = sources.iter().map(part).collect::<Result<Vec<_>, _>>()?;
                Json::from(parts).to_string()
            }
        };
        Key::new(&text).ok_or_else(|| MissingKey(format!("{self} is empty")))
    }
}

/// Why a message has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MissingKey(pub String);

impl KeySource {
    fn extract(&self, message: &Message) -> Result<String, MissingKey> {
        let absent = || MissingKey(format!("{self} is absent"));
        match self {
            KeySource::MessageId => message.properties.message_id.clone().ok_or_else(absent),
            KeySource::Property(property) => property.of(message).ok_or_else(absent),
            KeySource::Header(name) => {
                let value = message.properties.header(name).ok_or_else(absent)?;
                Value::to_text(value)
                    .ok_or_else(|| MissingKey(format!("{self} is neither a text nor a number")))
            }
            KeySource::Json(pointer) => {
                let body: Json = serde_json::from_slice(&message.body)
                    .map_err(|_| MissingKey(format!("{self}: the body is not JSON")))?;
                match body.pointer(pointer) {
                    Some(Json::String(text)) => Ok(text.clone()),
                    Some(value @ (Json::Number(_) | Json::Bool(_))) => Ok(value.to_string()),
                    Some(_) => Err(MissingKey(format!("{self} is neither a text nor a number"))),
                    None => Err(absent()),
                }
            }
            KeySource::Body => Ok(body_key(&message.body)),
        }
    }
}

/// The key that a body alone gives.
pub fn body_key(body: &[u8]) -> String {
    format!("body:{}", blake3::hash(body).to_hex())
}

const EXPECTED: &str =
    "expected message-id, header:NAME, property:NAME, json:/POINTER, body, or a list of these";

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("message-id", None) => Ok(Self::MessageId),
            ("body", None) => Ok(Self::Body),
            ("header", Some("")) => Err("key 'header:' names no header: write header:NAME".to_owned()),
            ("header", Some(name)) if name.len() > 255 => {
                Err(format!("key 'header:…' has a name of {} bytes: AMQP allows 255", name.len()))
            }
            ("header", Some(name)) => Ok(Self::Header(name.to_owned())),
            ("property", Some(name)) => parse_property(name),
            ("json", Some(pointer)) => parse_pointer(pointer),
            _ => Err(format!("unknown key '{}': {EXPECTED}", shown(text))),
        }
    }
}

fn parse_property(name: &str) -> Result<KeySource, String> {
    let dashed = name.replace('_', "-");
    match Property::NAMES.into_iter().find(|(known, _)| *known == dashed) {
        Some((_, property)) => Ok(KeySource::Property(property)),
        None => {
            let names: Vec<_> = Property::NAMES.iter().map(|(name, _)| *name).collect();
            Err(format!("unknown property '{}' in key: expected one of {}", shown(name), names.join(", ")))
        }
    }
}

/// A piece of somebody's text in a sentence: its beginning, in one line, with nothing that a terminal acts on.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let more = if text.chars().nth(CHARS_MAX).is_some() { "…" } else { "" };
    let beginning = text.chars().take(CHARS_MAX);
    let beginning: String =
        beginning.flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect();
    beginning + more
}

/// RFC 6901, section 3: empty, or `/`-led tokens in which `~` is followed by `0` or `1`.
fn parse_pointer(pointer: &str) -> Result<KeySource, String> {
    let escapes_ok = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if pointer.starts_with('/') && escapes_ok {
        Ok(KeySource::Json(pointer.to_owned()))
    } else {
        Err(format!("key 'json:{}' is not a JSON pointer: write json:/field or json:/a/0/b", shown(pointer)))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageId => f.write_str("message-id"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Property(property) => {
                let name = Property::NAMES.into_iter().find(|(_, known)| known == property);
                write!(f, "property:{}", name.map_or("?", |(name, _)| name))
            }
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Body => f.write_str("body"),
        }
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, source) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" + ")?;
            }
            write!(f, "{source}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
