//! Where the status page, health, readiness and metrics are served, and to whom.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::section::Section;

/// Where it listens, and whom it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    pub address: SocketAddr,
    /// Holds the token that the status page's actions need.
    pub token_file: Option<PathBuf>,
    /// Names by which browsers reach the status page, beside `localhost` and IP addresses; lower case.
    pub hosts: Vec<String>,
}

const EXPECTED: &str =
    "expected a port, which is then opened on 127.0.0.1, or IP:PORT, as in \"0.0.0.0:9464\" for everybody";
const HOSTS: &str = "expected host names without scheme and port, as in \"status.example\"";
/// What has no meaning without an address.
const FURTHER: [&str; 2] = ["listen_token_file", "listen_host"];

/// A port alone is for this host only: what is served says a lot about the work.
pub(super) fn read(top: &mut Section) -> Option<ListenConfig> {
    let further = FURTHER.map(|key| top.has(key).then_some(key));
    let token_file = top.text("listen_token_file", "expected the name of a file that holds the token");
    let hosts = hosts(top);
    let Some(given) = top.text("listen", EXPECTED) else {
        for key in further.into_iter().flatten() {
            top.problem_here(&format!("{key} is only for what listens: take it out, or give listen"));
        }
        return None;
    };
    let text = given.value.trim();
    let port = || Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), text.parse().ok()?));
    let Some(address) = text.parse().ok().or_else(port) else {
        top.problem(format!("{}: {EXPECTED}", given.said));
        return None;
    };
    Some(ListenConfig { address, token_file: token_file.map(|file| PathBuf::from(file.value)), hosts })
}

fn hosts(top: &mut Section) -> Vec<String> {
    let Some(given) = top.texts("listen_host", true, HOSTS) else { return Vec::new() };
    let is_name = |name: &String| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
            && !name.is_empty()
    };
    if !given.value.iter().all(is_name) {
        top.problem(format!("{}: {HOSTS}", given.said));
    }
    given.value.iter().map(|name| name.to_ascii_lowercase()).collect()
}
