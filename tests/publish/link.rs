//! K58: a slow link between us and the broker.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{Broker, ended, ids, within};

/// Passes bytes on in both directions, each `delay` after they came.
fn slow_link(to: String, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&to).unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            for (from, to) in [(&client, &server), (&server, &client)] {
                pass_on(from.try_clone().unwrap(), to.try_clone().unwrap(), delay);
            }
        }
    });
    address.to_string()
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    // What is on the wire; a real one holds little, and stops whoever sends more.
    let (wire, arriving) = mpsc::sync_channel::<(Instant, Vec<u8>)>(4096);
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            if wire.send((Instant::now() + delay, buffer[..bytes].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in arriving {
            // The delay is what this link is made of.
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

/// K58: confirms of 20 000 messages come late and many at once; nothing stalls, memory stays bounded.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_messages_over_a_link_with_200_ms_of_delay() {
    let broker = Broker::shared().await;
    let queue = broker.queue("slow").await;
    let address = broker.url.rsplit(['/', '@']).next().unwrap().to_owned();
    let url = broker.url.replace(&address, &slow_link(address.clone(), Duration::from_millis(100)));
    let args = ["publish", "--url", &url, "--queue", &queue, "--count", "20000", "--window", "1000"];
    let child = crate::support::command(args).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let watcher = thread::spawn(move || {
        let mut peak_kib = 0;
        // Gone once the process has ended.
        while let Ok(status) = std::fs::read_to_string(&status) {
            let Some(line) = status.lines().find(|line| line.starts_with("VmHWM")) else { break };
            peak_kib =
                line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(peak_kib);
            thread::sleep(Duration::from_millis(50));
        }
        peak_kib
    });
    let ended = within(Duration::from_secs(60), || ended(child, "slow link")).expect(0);
    assert_eq!(ended.lines().len(), 20_000);
    let peak_kib = watcher.join().unwrap();
    assert!((1..100 * 1024).contains(&peak_kib), "{peak_kib} KiB at the peak");
    let arrived = broker.drain(&queue).await;
    assert_eq!((arrived.len(), ids(&arrived).len()), (20_000, 20_000));
}
