//! The least that a client of the listener can be, so that it can also be a bad one.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{LIMIT, Process, until};

/// The port that a worker says it listens on.
pub async fn port(worker: &Process) -> u16 {
    const SAID: &str = "listening on http://127.0.0.1:";
    let mut port = 0;
    until("it listens", LIMIT, async || {
        let said = worker.said();
        let Some((_, rest)) = said.split_once(SAID) else { return false };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        port = digits.parse().unwrap_or_default();
        port != 0 && rest.len() > digits.len()
    })
    .await;
    port
}

/// Sends all of it and reads to the end; what came, and whether the end came by itself.
pub async fn exchange(port: u16, request: &[u8], limit: Duration) -> (String, bool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("somebody listens");
    // Whoever is refused amid a long request may hear of it while writing.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let ended = timeout(limit, stream.read_to_end(&mut answer)).await.is_ok();
    (String::from_utf8_lossy(&answer).into_owned(), ended)
}

/// One request: status and body. Status 0 if the connection was closed without an answer.
pub async fn get(port: u16, path: &str) -> (u16, String) {
    ask(port, "GET", path).await
}

pub(super) async fn ask(port: u16, method: &str, path: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (answer, ended) = exchange(port, request.as_bytes(), LIMIT).await;
    assert!(ended, "{method} {path}: no end of the answer: {answer}");
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return (0, answer) };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    (status, body.to_owned())
}

/// Whether nobody listens there.
pub(super) async fn gone(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_err()
}
