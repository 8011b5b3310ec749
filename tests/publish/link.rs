//! A link between us and the broker that is slow (K58) or breaks (K55).

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{Broker, ended, ids, run_from, within};

/// How a link treats what goes over it.
#[derive(Clone, Copy)]
struct Link {
    /// Bytes arrive so much later.
    delay: Duration,
    /// The first connection breaks after so many bytes from its client.
    breaks_after: Option<usize>,
}

/// Returns the address of a link to that address.
fn link(to: String, link: Link) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let server = TcpStream::connect(&to).unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let breaks_after = link.breaks_after.filter(|_| number == 0);
            pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), Link { breaks_after, ..link });
            pass_on(server, client, Link { breaks_after: None, ..link });
        }
    });
    address.to_string()
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, link: Link) {
    // What is on the wire; a real one holds little, and stops whoever sends more.
    let (wire, arriving) = mpsc::sync_channel::<(Instant, Vec<u8>)>(4096);
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        let mut passed = 0;
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            passed += bytes;
            if link.breaks_after.is_some_and(|limit| passed > limit) {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
            if wire.send((Instant::now() + link.delay, buffer[..bytes].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in arriving {
            // The delay is what this link is made of.
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// The same broker at the other end of a link.
fn over(broker: &Broker, kind: Link) -> String {
    let address = broker.url.rsplit(['/', '@']).next().unwrap();
    broker.url.replace(address, &link(address.to_owned(), kind))
}

/// K55: the connection breaks in the middle of 10 000 lines. What was under way is sent again under its
/// ids; each line is told as confirmed once, in order, and all of them arrive.
#[tokio::test(flavor = "multi_thread")]
async fn lines_survive_a_broken_connection() {
    let broker = Broker::shared().await;
    let queue = broker.queue("broken").await;
    let url = over(&broker, Link { delay: Duration::from_millis(5), breaks_after: Some(500_000) });
    let lines: String = (1..=10_000).map(|line| format!("line {line}\n")).collect();
    let args = ["publish", "--url", &url, "--queue", &queue, "--lines", "-", "--id-prefix", "p"];
    let ended = within(Duration::from_secs(30), || run_from(args, lines.as_bytes())).expect(0);
    let expected: Vec<String> = (1..=10_000).map(|line| format!("p-{line}")).collect();
    assert_eq!((ended.lines(), ended.stderr.as_str()), (expected.iter().map(String::as_str).collect(), ""));
    let arrived = broker.drain(&queue).await;
    assert_eq!(ids(&arrived).len(), 10_000);
    assert!(arrived.len() >= 10_000, "some may have arrived twice, under the same id");
}

/// K58: confirms of 20 000 messages come late and many at once; nothing stalls, memory stays bounded.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_messages_over_a_link_with_200_ms_of_delay() {
    let broker = Broker::shared().await;
    let queue = broker.queue("slow").await;
    let url = over(&broker, Link { delay: Duration::from_millis(100), breaks_after: None });
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
