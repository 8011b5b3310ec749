//! Where health, readiness and metrics are served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::section::Section;

const EXPECTED: &str =
    "expected a port, which is then opened on 127.0.0.1, or IP:PORT, as in \"0.0.0.0:9464\" for everybody";

/// A port alone is for this host only: what is served says a lot about the work.
pub(super) fn read(top: &mut Section) -> Option<SocketAddr> {
    let given = top.text("listen", EXPECTED)?;
    let text = given.value.trim();
    let port = || Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), text.parse().ok()?));
    let address = text.parse().ok().or_else(port);
    if address.is_none() {
        top.problem(format!("{}: {EXPECTED}", given.said));
    }
    address
}
