//! K32: the path to the broker is cut without a word, as a firewall or a dead switch does it.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::harness::{LIMIT, SLOW, World, until};

/// A stretch of the way to the broker, which can fall silent: nothing is closed, nothing arrives.
struct Path {
    port: u16,
    silent: watch::Sender<bool>,
}

impl Path {
    async fn to(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = watch::Sender::new(false);
        let state = silent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (state, broker) = (state.subscribe(), broker.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(broker).await.unwrap();
                    let (client_in, client_out) = client.into_split();
                    let (server_in, server_out) = server.into_split();
                    tokio::spawn(forward(client_in, server_out, state.clone()));
                    forward(server_in, client_out, state).await;
                });
            }
        });
        Self { port, silent }
    }
}

/// What was under way when the path fell silent is lost for good, as on a real one that is given up.
async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut silent: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let fell_silent = async {
            let _ = silent.wait_for(|silent| *silent).await;
        };
        tokio::select! {
            () = fell_silent => return std::future::pending().await,
            read = from.read(&mut buffer) => match read {
                Ok(length @ 1..) if to.write_all(&buffer[..length]).await.is_ok() => {}
                _ => return,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_falls_silent_is_noticed_by_missing_heartbeats() {
    let mut world = World::new("silent").await;
    let address = world.url.rsplit(['/', '@']).find(|part| part.contains(':')).unwrap().to_owned();
    let path = Path::to(address).await;
    let direct = world.url.clone();
    world.url = format!("amqp://127.0.0.1:{}?heartbeat=2", path.port);
    let worker = world.worker(&["--exec", &world.handler(SLOW, "")]);
    world.url = direct;
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    until("the handler runs", LIMIT, async || world.lines("started").len() == 1).await;

    path.silent.send_replace(true);
    let cut = Instant::now();
    worker.until_said("no session with the broker").await;
    let noticed = cut.elapsed();
    assert!(noticed < Duration::from_secs(8), "two heartbeats of 2 s, and not more than four: {noticed:?}");
    world.touch("go");
    world.until_state("done", 1).await;
    assert_eq!(world.ready(&world.queue).await, 0, "no ack is pretended: the broker still waits for it");
    path.silent.send_replace(false);
    until("it consumes again", LIMIT, async || worker.said().matches("consuming from").count() == 2).await;
    // The broker misses heartbeats too, and hands the message over again: by now it is a duplicate.
    until("the copy is counted", LIMIT * 2, async || world.rows()[0].duplicates == 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects(), ["a"]);
}
