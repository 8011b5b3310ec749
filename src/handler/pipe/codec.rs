//! What goes over a pipe: messages out, replies in.
//!
//! With lines, a message is one JSON object in one line, its body inside. With length prefixes, it is two
//! frames, the JSON object and then the body as it is; a frame is its length in four bytes, the
//! highest first, and so many bytes. A reply is one JSON object, in one line or one frame.

mod json;

use std::time::Duration;

use serde::Deserialize;

use super::{super::Verdict, super::Work, Framing};
use crate::ledger::bounded_error;

/// A longer reply is none: what it says must fit into a row's error text many times over.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// How much of what is no reply is shown.
const SHOWN_BYTES_MAX: usize = 200;
const LENGTH_BYTES: usize = 4;

/// Appends one message.
///
/// # Errors
///
/// One sentence if it fits into no frame; then nothing is appended.
pub(super) fn encode(framing: Framing, id: u64, work: &Work, out: &mut Vec<u8>) -> Result<(), String> {
    let before = out.len();
    match framing {
        Framing::Lines => {
            json::write(id, work, true, out);
            out.push(b'\n');
            Ok(())
        }
        Framing::LengthPrefixed => {
            out.extend_from_slice(&[0; LENGTH_BYTES]);
            json::write(id, work, false, out);
            let body = &work.message.body;
            match (prefix(out.len() - before - LENGTH_BYTES), prefix(body.len())) {
                (Some(head), Some(tail)) => {
                    out[before..before + LENGTH_BYTES].copy_from_slice(&head);
                    out.extend_from_slice(&tail);
                    out.extend_from_slice(body);
                    Ok(())
                }
                _ => {
                    out.truncate(before);
                    Err(format!("its body of {} bytes fits into no frame", body.len()))
                }
            }
        }
    }
}

fn prefix(length: usize) -> Option<[u8; LENGTH_BYTES]> {
    u32::try_from(length).ok().map(u32::to_be_bytes)
}

/// What a child says about one message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub id: u64,
    pub verdict: Verdict,
}

/// The stream of a child's replies, cut into them. Holds at most one reply's length and what one
/// read brought.
#[derive(Debug)]
pub(super) struct Replies {
    framing: Framing,
    buffer: Vec<u8>,
    /// Before it, all has been handed out.
    start: usize,
    /// From the start to here there is no line's end.
    searched: usize,
}

impl Replies {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// Where the next read goes.
    pub(super) fn space(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.reserve(8 * 1024);
        &mut self.buffer
    }

    /// The next whole reply that has been read, or one sentence on why this is none; after that
    /// nothing in the stream can be trusted.
    pub(super) fn next(&mut self) -> Option<Result<Reply, String>> {
        match self.framing {
            Framing::Lines => loop {
                let range = match self.next_line()? {
                    Ok(range) => range,
                    Err(why) => return Some(Err(why)),
                };
                let line = self.buffer[range].trim_ascii();
                if !line.is_empty() {
                    return Some(parse(line));
                }
            },
            Framing::LengthPrefixed => self.next_frame(),
        }
    }

    fn next_line(&mut self) -> Option<Result<std::ops::Range<usize>, String>> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = found.map_or(self.buffer.len(), |at| self.searched + at);
        if end - self.start > REPLY_BYTES_MAX {
            let shown = shown(&self.buffer[self.start..end]);
            return Some(Err(format!("a line of more than {REPLY_BYTES_MAX} bytes: {shown}")));
        }
        let range = self.start..end;
        match found {
            Some(_) => {
                self.start = end + 1;
                self.searched = self.start;
                Some(Ok(range))
            }
            None => {
                self.searched = end;
                None
            }
        }
    }

    fn next_frame(&mut self) -> Option<Result<Reply, String>> {
        let unread = &self.buffer[self.start..];
        let (prefix, rest) = unread.split_first_chunk::<LENGTH_BYTES>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > REPLY_BYTES_MAX {
            let shown = shown(prefix);
            return Some(Err(format!("a frame of {length} bytes, more than {REPLY_BYTES_MAX}: {shown}")));
        }
        let reply = parse(rest.get(..length)?);
        self.start += LENGTH_BYTES + length;
        self.searched = self.start;
        Some(reply)
    }
}

#[derive(Deserialize)]
struct Said {
    id: u64,
    result: SaidResult,
    error: Option<serde_json::Value>,
    retry_after: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SaidResult {
    Done,
    Retry,
    GiveUp,
}

fn parse(text: &[u8]) -> Result<Reply, String> {
    let Said { id, result, error, retry_after } = serde_json::from_slice(text)
        .map_err(|error| format!("something that is no reply ({error}): {}", shown(text)))?;
    let error = match error {
        Some(serde_json::Value::String(error)) => bounded_error(&error).to_owned(),
        None | Some(serde_json::Value::Null) => String::new(),
        Some(other) => bounded_error(&other.to_string()).to_owned(),
    };
    let error = if error.is_empty() { "the child gave no reason".to_owned() } else { error };
    let verdict = match result {
        SaidResult::Done => Verdict::Done,
        SaidResult::Retry => Verdict::Retry { error, after: retry_after.as_ref().and_then(seconds) },
        SaidResult::GiveUp => Verdict::GiveUp { error },
    };
    Ok(Reply { id, verdict })
}

/// A number of seconds; anything else, and what no clock can hold, is not given.
fn seconds(value: &serde_json::Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}

/// The beginning of what a child wrote, quoted.
fn shown(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let more = if beginning.len() < bytes.len() { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(beginning))
}

/// For `fuzz/`: all replies in `bytes`, read in pieces of at most `step`, as text.
#[cfg(fuzzing)]
pub fn read_replies(framing: Framing, bytes: &[u8], step: usize) -> Vec<String> {
    let mut replies = Replies::new(framing);
    let mut all = Vec::new();
    for piece in bytes.chunks(step) {
        replies.space().extend_from_slice(piece);
        while let Some(reply) = replies.next() {
            all.push(format!("{reply:?}"));
            if reply.is_err() {
                return all;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
