//! The status page: what is answered to whom, and how it works in a real browser.

mod access;
mod browser;
mod keyboard;
mod markup;
mod reading;
mod views;

use crate::{
    harness::{LIMIT, Process, World, until},
    listen::client::{exchange, get, port},
};

/// The token of these tests' workers.
const TOKEN: &str = "0123456789abcdef-page";

/// A worker with the status page and a token, and its port.
async fn watched(world: &World, further: &[&str], handler: &[&str]) -> (Process, u16) {
    std::fs::write(world.path("token"), format!("{TOKEN}\n")).expect("a file");
    let token = world.path("token").display().to_string();
    let listen = ["--listen", "127.0.0.1:0", "--listen-token-file", &token];
    let worker = world.worker(&[&listen, further, handler].concat());
    let port = port(&worker).await;
    until("it is ready", LIMIT, async || get(port, "/readyz").await.0 == 200).await;
    (worker, port)
}

/// A handler that gives up what is called `bad…` until the file `repaired` is there.
fn fussy(world: &World, says: &str) -> String {
    let test = "case \"$ACKONCE_KEY\" in bad*) [ -e repaired ] ||";
    world.handler(&format!("{test} {{ cat '{says}' >&2; exit 65; }};; esac"), "")
}

/// What came back for one request.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its sentence, if it is a refusal.
    fn error(&self) -> String {
        self.json()["error"].as_str().expect("a sentence").to_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends a request as it is given, headers and all, and reads the whole answer.
async fn send(port: u16, line: &str, headers: &[&str], body: &str) -> Answer {
    let mut request = format!("{line} HTTP/1.1\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let request = format!("{request}\r\n{body}");
    let (text, ended) = exchange(port, request.as_bytes(), LIMIT).await;
    assert!(ended, "{line}: no end of the answer: {text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// As a browser would on this host, without the token.
async fn read(port: u16, path: &str) -> Answer {
    send(port, &format!("GET {path}"), &["Host: localhost"], "").await
}

/// `Authorization` with this token.
fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}
