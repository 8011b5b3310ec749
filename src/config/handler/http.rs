//! The settings of an `http` handler.

use std::{path::PathBuf, time::Duration};

use crate::config::{
    secret::{Secret, SecretPairs},
    section::Section,
};

/// An endpoint that each message is posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Begins with `http://` or `https://`.
    pub url: Secret,
    /// Names and values.
    pub headers: SecretPairs,
    pub bearer_token_file: Option<PathBuf>,
    pub signature_secret_file: Option<PathBuf>,
    /// Time for one run: connect, send, and the answer.
    pub timeout: Duration,
}

/// What is set for this handler beside its URL.
pub(in crate::config) const KEYS: [&str; 3] =
    ["http_headers", "http_bearer_token_file", "http_signature_secret_file"];

pub(super) fn read(worker: &mut Section, timeout: Duration) -> Option<HttpConfig> {
    const EXPECTED: &str = "expected http://HOST:PORT/PATH or https://…";
    const PAIRS: &str = "expected { Name = \"value\" } in the file, 'Name: value' as a flag";
    let url = worker.text("http", EXPECTED);
    let headers = worker.pairs("http_headers", PAIRS);
    let mut file =
        |key| worker.text(key, "expected the name of a file").map(|file| PathBuf::from(file.value));
    let [bearer_token_file, signature_secret_file] =
        ["http_bearer_token_file", "http_signature_secret_file"].map(&mut file);
    let url = url?;
    let host = url.value.strip_prefix("http://").or_else(|| url.value.strip_prefix("https://"));
    if host.is_none_or(str::is_empty) {
        worker.problem(format!("{}: {EXPECTED}", url.said));
        return None;
    }
    if url.value.contains(|c: char| c.is_control() || c.is_whitespace()) {
        worker.problem(format!(
            "{}: a blank or control character stands in it: write it percent-encoded, a blank as %20",
            url.said
        ));
        return None;
    }
    let headers = SecretPairs::new(headers.map(|headers| headers.value).unwrap_or_default());
    let url = Secret::new(url.value);
    Some(HttpConfig { url, headers, bearer_token_file, signature_secret_file, timeout })
}

/// Makes the settings known that were not read, and says so where they are without effect.
pub(super) fn know(worker: &mut Section) {
    for key in KEYS {
        if worker.has(key) {
            worker.problem_here(&format!("{key} is only for http handlers: take it out, or give http"));
            worker.remove(key);
        }
        worker.know(key);
    }
}
