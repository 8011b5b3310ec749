//! What a command is told beside the body: the documented `ACKONCE_…` variables, and nothing of ours else.

use tokio::process::Command;

use crate::message::table_json;

use super::super::Work;

/// Linux takes at most 128 KiB in one variable; more than this is left out.
const VALUE_BYTES_MAX: usize = 120 * 1024;

/// Adds the metadata, and takes our own settings and secrets out.
///
/// Absent properties are absent variables. A NUL, which no variable can hold, becomes U+FFFD;
/// headers that are too long for a variable become the object `{"ackonce_too_long":true}`.
pub(super) fn set(command: &mut Command, work: &Work) {
    for (name, _) in std::env::vars_os() {
        if name == "AMQP_URL" || name.as_encoded_bytes().starts_with(b"ACKONCE_") {
            command.env_remove(&name);
        }
    }
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
    set("ACKONCE_HEADERS", &headers(work));
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
}

fn headers(work: &Work) -> String {
    let json = match &work.message.properties.headers {
        Some(table) => table_json(table).to_string(),
        None => "{}".to_owned(),
    };
    if json.len() > VALUE_BYTES_MAX { r#"{"ackonce_too_long":true}"#.to_owned() } else { json }
}
