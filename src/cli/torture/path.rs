//! The way to the broker, which can be cut: a forwarder of TCP connections on this host.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinHandle},
};

use crate::cli::Failure;

/// Dropping it closes its port and all connections.
#[derive(Debug)]
pub(super) struct Path {
    port: u16,
    open: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: JoinHandle<()>,
}

impl Path {
    pub(super) async fn to(broker: String) -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("cannot listen on 127.0.0.1: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let connections = open.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let broker = broker.clone();
                let forwarding = tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(broker).await {
                        // However it ends, both sides see the end.
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
                let mut open = connections.lock().unwrap_or_else(PoisonError::into_inner);
                open.retain(|connection: &AbortHandle| !connection.is_finished());
                open.push(forwarding.abort_handle());
            }
        });
        Ok(Self { port, open, accepting })
    }

    /// Closes every connection; new ones are let through.
    pub(super) fn cut(&self) {
        for connection in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            connection.abort();
        }
    }

    /// The same broker URL by way of here.
    pub(super) fn url(&self, url: &str) -> String {
        through(url, self.port)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

/// A URL that was accepted before has no `@` or `/` in its user and password.
fn through(url: &str, port: u16) -> String {
    let Some((scheme, rest)) = url.trim().split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}127.0.0.1:{port}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_are_replaced() {
        assert_eq!(through("amqp://h", 7), "amqp://127.0.0.1:7");
        assert_eq!(through("amqp://u:p%40@h:1/v?heartbeat=2", 7), "amqp://u:p%40@127.0.0.1:7/v?heartbeat=2");
        assert_eq!(through("amqp://[::1]:1?heartbeat=2", 7), "amqp://127.0.0.1:7?heartbeat=2");
    }
}
