//! What an answer says about the message.

use std::{error::Error, time::Duration};

use reqwest::{Response, StatusCode, header::RETRY_AFTER};
use tokio::time::{Instant, timeout_at};

use super::retry_after::retry_after;
use crate::handler::Verdict;

/// How much of an answer's body is read: less than this leaves the connection for the next request,
/// more closes it.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How much of it becomes the error's text; with the status it stays below what the ledger keeps.
const TEXT_BYTES_MAX: usize = 768;
/// How long the body may take once the status is known, if the run still has so much time.
const BODY_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// The status decides as soon as it is there; the body only explains it.
pub(super) async fn verdict(mut response: Response, deadline: Instant) -> Verdict {
    let status = response.status();
    let now = std::time::SystemTime::now();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now));
    let mut body = Vec::new();
    // What has come of a body that is late or breaks off is used all the same.
    let deadline = deadline.min(Instant::now() + BODY_TIMEOUT_MAX);
    let _ = timeout_at(deadline, read(&mut response, &mut body)).await;
    judge(status, after, &text(&body))
}

/// Keeps the start of the body. Stops in the middle of one that is too long; dropping the response
/// then closes its connection.
async fn read(response: &mut Response, kept: &mut Vec<u8>) {
    let mut length = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = TEXT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        length += chunk.len();
        if length > BODY_BYTES_MAX {
            return;
        }
    }
}

fn judge(status: StatusCode, after: Option<Duration>, text: &str) -> Verdict {
    let error = || {
        let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
        let text = if text.is_empty() { String::new() } else { format!(": {text}") };
        format!("HTTP {}{reason}{text}", status.as_u16())
    };
    match status.as_u16() {
        200..=299 => Verdict::Done,
        408 | 409 | 425 | 429 => Verdict::Retry { error: error(), after },
        300..=499 => Verdict::GiveUp { error: error() },
        // 5xx, and what HTTP does not define.
        _ => Verdict::Retry { error: error(), after },
    }
}

/// The body as one line of text.
fn text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let mut line = words.join(" ");
    // Each byte that is not UTF-8 has become three.
    let mut end = TEXT_BYTES_MAX.min(line.len());
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

/// An error's causes. reqwest's own sentence, which may hold the URL, is left out.
pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides() {
        let after = Some(Duration::from_secs(2));
        for code in 100..1000 {
            let status = StatusCode::from_u16(code).unwrap();
            let verdict = judge(status, after, "");
            match code {
                200..300 => assert_eq!(verdict, Verdict::Done, "{code}"),
                408 | 409 | 425 | 429 | 500..600 => {
                    assert!(matches!(verdict, Verdict::Retry { after: Some(_), .. }), "{code}: {verdict:?}");
                }
                300..500 => assert!(matches!(verdict, Verdict::GiveUp { .. }), "{code}: {verdict:?}"),
                _ => assert!(matches!(verdict, Verdict::Retry { .. }), "{code}: {verdict:?}"),
            }
        }
    }

    #[test]
    fn the_error_is_the_status_and_one_line_of_the_body() {
        let verdict = judge(StatusCode::CONFLICT, None, &text(b" a\r\n\tb\x00\x1b[31mc \xff "));
        assert_eq!(
            verdict,
            Verdict::Retry { error: "HTTP 409 Conflict: a b [31mc \u{FFFD}".into(), after: None }
        );
        assert_eq!(
            judge(StatusCode::NOT_FOUND, None, ""),
            Verdict::GiveUp { error: "HTTP 404 Not Found".into() }
        );
        assert!(text(&[0xff; TEXT_BYTES_MAX]).len() <= TEXT_BYTES_MAX);
    }
}
