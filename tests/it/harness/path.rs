//! The way to the broker, which can be cut, slowed, or fall silent.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A stretch of the way to a broker. Dropping it leaves what is connected alone.
pub struct Path {
    pub port: u16,
    way: watch::Sender<Way>,
    cuts: watch::Sender<u32>,
}

/// How it is just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Nothing is closed, and nothing arrives: as a firewall or a dead switch does it.
    Silent,
    /// Each piece takes so long.
    Slow(Duration),
}

impl Path {
    /// To `host:port`.
    pub async fn to(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (way, cuts) = (watch::Sender::new(Way::Open), watch::Sender::new(0));
        let (ways, all_cuts) = (way.clone(), cuts.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (way, mut cuts, broker) = (ways.subscribe(), all_cuts.subscribe(), broker.clone());
                tokio::spawn(async move {
                    // A broker that is away refuses, and so does the way to it.
                    let Ok(server) = TcpStream::connect(broker).await else { return };
                    let (client_in, client_out) = client.into_split();
                    let (server_in, server_out) = server.into_split();
                    let (up, down) = (
                        tokio::spawn(forward(client_in, server_out, way.clone())),
                        tokio::spawn(forward(server_in, client_out, way)),
                    );
                    // The sender outlives this.
                    let _ = cuts.changed().await;
                    up.abort();
                    down.abort();
                });
            }
        });
        Self { port, way, cuts }
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Closes all that is connected; new connections are let through.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// What was under way when the path fell silent is lost for good, as on a real one that is given up.
async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut silence = way.clone();
        let fell_silent = async {
            let _ = silence.wait_for(|way| *way == Way::Silent).await;
        };
        tokio::select! {
            () = fell_silent => return std::future::pending().await,
            read = from.read(&mut buffer) => match read {
                Ok(length @ 1..) => {
                    let slow = *way.borrow_and_update();
                    if let Way::Slow(each) = slow {
                        tokio::time::sleep(each).await;
                    }
                    if to.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}
