//! What a command is told beside the body: the documented `ACKONCE_…` variables, and the trace.

use serde_json::{Value as Json, json};
use tokio::process::Command;

use super::super::{
    Work,
    program::{TRACEPARENT, TRACESTATE},
};
use crate::message::table_json;

/// Linux takes at most 128 KiB in one variable, its name included; a longer one would keep the
/// command from starting.
const VALUE_BYTES_MAX: usize = 120 * 1024;

/// How headers are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    /// All that fit into one variable.
    Fitting,
    /// None: the environment as a whole is too large for this system.
    LeftOut,
}

/// Adds the metadata.
///
/// Absent properties are absent variables. A NUL, which no variable can hold, becomes U+FFFD.
pub(super) fn set(command: &mut Command, work: &Work, headers: Headers) {
    let message = &work.message;
    let properties = &message.properties;
    let mut set = |name: &str, value: &str| {
        command.env(name, value.replace('\0', "\u{FFFD}"));
    };
    set("ACKONCE_KEY", work.key.as_str());
    set("ACKONCE_SCOPE", &work.scope);
    set("ACKONCE_QUEUE", &work.queue);
    set("ACKONCE_EXCHANGE", &message.exchange);
    set("ACKONCE_ROUTING_KEY", &message.routing_key);
    set("ACKONCE_ATTEMPT", &work.attempt.to_string());
    set("ACKONCE_INTERRUPTED", if work.interrupted { "1" } else { "0" });
    set("ACKONCE_REDELIVERED", if message.redelivered { "1" } else { "0" });
    let table = properties.headers.as_ref().map_or_else(|| json!({}), table_json);
    set("ACKONCE_HEADERS", &bounded(table, headers));
    let optional = [
        ("ACKONCE_MESSAGE_ID", &properties.message_id),
        ("ACKONCE_TYPE", &properties.kind),
        ("ACKONCE_CONTENT_TYPE", &properties.content_type),
        ("ACKONCE_CORRELATION_ID", &properties.correlation_id),
        ("ACKONCE_REPLY_TO", &properties.reply_to),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            set(name, value);
        }
    }
    if let Some(timestamp) = properties.timestamp {
        set("ACKONCE_TIMESTAMP", &timestamp.to_string());
    }
    if let Some(trace) = work.trace_context() {
        set(TRACEPARENT, trace.traceparent());
        if let Some(state) = trace.tracestate() {
            set(TRACESTATE, state);
        }
    }
}

/// The headers as text that fits into a variable: the longest values give way to
/// `{"ackonce_too_long": BYTES}` until it does, or in the end all of them do.
fn bounded(mut table: Json, headers: Headers) -> String {
    let text = table.to_string();
    let max = match headers {
        Headers::Fitting => VALUE_BYTES_MAX,
        Headers::LeftOut => 0,
    };
    if text.len() <= max || text == "{}" {
        return text;
    }
    if let (Headers::Fitting, Json::Object(values)) = (headers, &mut table) {
        let mut left = text.len();
        let mut sizes: Vec<_> = values.values_mut().map(|value| (value.to_string().len(), value)).collect();
        sizes.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        for (size, value) in sizes {
            let marker = too_long(size);
            let (marked, marker_size) = (size, marker.to_string().len());
            if left <= max || marked <= marker_size {
                break;
            }
            left = left - marked + marker_size;
            *value = marker;
        }
        if left <= max {
            return table.to_string();
        }
    }
    too_long(text.len()).to_string()
}

fn too_long(bytes: usize) -> Json {
    json!({ "ackonce_too_long": bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_headers_give_way_until_the_rest_fits() {
        let long = "x".repeat(130_000);
        let table = json!({ "a": long, "b": "short", "c": 1, "d": "y".repeat(60_000) });
        let text = bounded(table.clone(), Headers::Fitting);
        let back: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(back["a"], json!({ "ackonce_too_long": 130_002 }));
        assert_eq!((&back["b"], &back["c"], &back["d"]), (&table["b"], &table["c"], &table["d"]));

        assert_eq!(bounded(json!({ "b": 1 }), Headers::LeftOut), r#"{"ackonce_too_long":7}"#);
        assert_eq!(bounded(json!({}), Headers::LeftOut), "{}");
        let many: serde_json::Map<String, Json> =
            (0..30_000).map(|number| (format!("h{number}"), json!(1))).collect();
        let text = bounded(Json::Object(many), Headers::Fitting);
        assert!(text.starts_with(r#"{"ackonce_too_long":"#) && text.len() < 40, "{}", text.len());
    }
}
