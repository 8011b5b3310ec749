//! The http handler: one POST per attempt, and what its answer means, on real sockets.

mod connection;
mod request;
mod secrets;
mod tls;
mod verdict;

use crate::harness::{Endpoint, Process, Reply, Request, World};

fn ok(_: &Request) -> Reply {
    Reply::status("200 OK")
}

impl World {
    /// A worker that posts to that endpoint, and hardly waits between attempts.
    fn http(&self, endpoint: &Endpoint, arguments: &[&str]) -> Process {
        let url = endpoint.url();
        self.worker(&[&["--http", url.as_str(), "--initial-interval", "20ms"], arguments].concat())
    }
}
