//! `ackonce dead show`

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{ArgGroup, Args};
use serde_json::{Map, Value as Json, json};

use super::{Place, selection::parse_key};
use crate::{
    cli::{Failure, ledger::output},
    key::Key,
    message::{Properties, table_json},
    worker::desk::{DeadLetter, Desk},
};

#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("which").args(["key", "message_id"]).required(true))]
pub(super) struct ShowArgs {
    /// The letter's key, as listed
    #[arg(value_parser = parse_key)]
    key: Option<Key>,

    /// The message id, where that is not the key
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,

    /// Write the raw body and nothing else
    #[arg(long, conflicts_with = "json")]
    body: bool,

    #[command(flatten)]
    place: Place,
}

/// Prints the first letter that is meant.
pub(super) async fn run(args: ShowArgs) -> Result<(), Failure> {
    let mut desk = args.place.open().await?;
    let found = find(&mut desk, &args).await;
    let closed = desk.close().await;
    let Some(text) = found? else {
        return Err(Failure::failed("there is no such letter: keys are compared byte by byte"));
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(Failure::failed(format!("cannot print: {error}")));
        }
        _ => {}
    }
    closed?;
    Ok(())
}

/// Reads up to the letter. Returns what is to be printed.
async fn find(desk: &mut Desk, args: &ShowArgs) -> Result<Option<Vec<u8>>, Failure> {
    let is_meant = |letter: &&DeadLetter| match (&args.key, &args.message_id) {
        (Some(key), _) => letter.notes.key.as_deref() == Some(key.as_str()),
        (None, id) => letter.message_id() == id.as_deref(),
    };
    loop {
        let letters = desk.next(u64::MAX).await?;
        if letters.is_empty() {
            return Ok(None);
        }
        let found = letters.iter().find(is_meant).map(|letter| {
            if args.body {
                letter.message.body.clone()
            } else if args.place.json {
                format!("{}\n", whole_json(letter)).into_bytes()
            } else {
                text(letter).into_bytes()
            }
        });
        desk.keep(letters).await;
        if found.is_some() {
            return Ok(found);
        }
    }
}

/// UTF-8 as it is, anything else as base64: the encoding and the text.
fn encoded(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) => ("utf-8", text.to_owned()),
        Err(_) => ("base64", STANDARD.encode(body)),
    }
}

fn whole_json(letter: &DeadLetter) -> Json {
    let mut json = letter.json();
    let (encoding, body) = encoded(&letter.message.body);
    json["properties"] = Json::Object(properties(&letter.message.properties));
    json["headers"] = headers(letter);
    json["body_encoding"] = encoding.into();
    json["body"] = body.into();
    json
}

fn headers(letter: &DeadLetter) -> Json {
    letter.message.properties.headers.as_ref().map_or(Json::Null, table_json)
}

/// What is set, but the headers.
fn properties(properties: &Properties) -> Map<String, Json> {
    let all = [
        ("content_type", json!(properties.content_type)),
        ("content_encoding", json!(properties.content_encoding)),
        ("delivery_mode", json!(properties.delivery_mode)),
        ("priority", json!(properties.priority)),
        ("correlation_id", json!(properties.correlation_id)),
        ("reply_to", json!(properties.reply_to)),
        ("expiration", json!(properties.expiration)),
        ("message_id", json!(properties.message_id)),
        ("timestamp", json!(properties.timestamp)),
        ("type", json!(properties.kind)),
        ("user_id", json!(properties.user_id)),
        ("app_id", json!(properties.app_id)),
        ("cluster_id", json!(properties.cluster_id)),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Field by field; the body comes last, after an empty line.
fn text(letter: &DeadLetter) -> String {
    let notes = &letter.notes;
    let shown = |text: &Option<String>| text.as_deref().map(output::printable);
    // Further lines of an error stand under its first.
    let error = notes.error.as_deref();
    let error = error
        .map(|error| error.lines().map(output::printable).collect::<Vec<_>>().join("\n                "));
    let by = letter.by().map(|by| format!(" (says the {by})")).unwrap_or_default();
    let fields = [
        ("key", shown(&notes.key)),
        ("reason", shown(&notes.reason).map(|reason| reason + &by)),
        ("error", error),
        ("attempts", notes.attempts.map(|attempts| attempts.to_string())),
        ("first_seen", notes.first_seen_ms.map(output::iso)),
        ("dead", notes.dead_ms.map(output::iso)),
        ("queue", shown(&notes.queue)),
        ("exchange", shown(&notes.exchange)),
        ("routing_key", shown(&notes.routing_key)),
    ];
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15} {value}", format!("{name}:"));
    };
    for (name, value) in fields {
        line(name, value.as_deref().unwrap_or("-"));
    }
    for (name, value) in properties(&letter.message.properties) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line(&name, &output::printable(&value));
    }
    for (name, value) in headers(letter).as_object().into_iter().flatten() {
        line("header", &output::printable(&format!("{name}: {value}")));
    }
    let (encoding, body) = encoded(&letter.message.body);
    line("body", &format!("{} bytes, {encoding}", letter.message.body.len()));
    text.push('\n');
    for part in body.split_inclusive('\n') {
        match part.strip_suffix('\n') {
            Some(line) => text.push_str(&(output::printable(line) + "\n")),
            None => text.push_str(&(output::printable(part) + "\n")),
        }
    }
    text
}
