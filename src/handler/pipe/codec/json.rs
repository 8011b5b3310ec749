//! A message as one JSON object in one line.

use std::{io, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, ser::Formatter};

use super::Work;
use crate::message::{TraceContext, table_json};

/// What a child is told. A property that is absent is null, a trace that is absent or invalid no field.
#[derive(Serialize)]
struct Told<'a> {
    id: u64,
    key: &'a str,
    message_id: Option<&'a str>,
    scope: &'a str,
    queue: &'a str,
    exchange: &'a str,
    routing_key: &'a str,
    attempt: u32,
    interrupted: bool,
    redelivered: bool,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    content_type: Option<&'a str>,
    correlation_id: Option<&'a str>,
    reply_to: Option<&'a str>,
    timestamp: Option<u64>,
    #[serde(serialize_with = "headers")]
    headers: &'a Work,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// Appends the object, with the body inside if asked: as text if it is UTF-8, else in Base64.
pub(super) fn write(id: u64, work: &Work, with_body: bool, out: &mut Vec<u8>) {
    let message = &work.message;
    let properties = &message.properties;
    let (body, body_base64) = match std::str::from_utf8(&message.body) {
        _ if !with_body => (None, None),
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(&message.body))),
    };
    let trace = work.trace_context();
    let told = Told {
        id,
        key: work.key.as_str(),
        message_id: properties.message_id.as_deref(),
        scope: &work.scope,
        queue: &work.queue,
        exchange: &message.exchange,
        routing_key: &message.routing_key,
        attempt: work.attempt,
        interrupted: work.interrupted,
        redelivered: message.redelivered,
        kind: properties.kind.as_deref(),
        content_type: properties.content_type.as_deref(),
        correlation_id: properties.correlation_id.as_deref(),
        reply_to: properties.reply_to.as_deref(),
        timestamp: properties.timestamp,
        headers: work,
        traceparent: trace.as_ref().map(TraceContext::traceparent),
        tracestate: trace.as_ref().and_then(TraceContext::tracestate),
        body,
        body_base64,
    };
    // Cannot fail: a vector takes everything, and the names are texts.
    let _ = told.serialize(&mut serde_json::Serializer::with_formatter(out, OneLine));
}

fn headers<S: Serializer>(work: &&Work, serializer: S) -> Result<S::Ok, S::Error> {
    static NONE: LazyLock<Json> = LazyLock::new(|| Json::Object(serde_json::Map::new()));
    match &work.message.properties.headers {
        Some(table) if !table.is_empty() => table_json(table).serialize(serializer),
        _ => NONE.serialize(serializer),
    }
}

/// Compact, and without the characters that some readers take for a line's end though JSON does not
/// ask for their escape (Python's `splitlines` splits at each, JavaScript's old grammar at two).
struct OneLine;

const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        mut fragment: &str,
    ) -> io::Result<()> {
        if !fragment.is_ascii() {
            while let Some(at) = fragment.find(LINE_ENDS) {
                let (before, rest) = fragment.split_at(at);
                let mut characters = rest.chars();
                let end = characters.next().map_or(0, u32::from);
                writer.write_all(before.as_bytes())?;
                write!(writer, "\\u{end:04x}")?;
                fragment = characters.as_str();
            }
        }
        writer.write_all(fragment.as_bytes())
    }
}
