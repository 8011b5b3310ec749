//! K62, K63, K64: URLs with mistakes, servers that do not answer, and several to choose from.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use crate::support::{Broker, Ended, command, ended, run, shared_url, within};

fn publish_to(urls: &[&str]) -> Ended {
    let mut args = vec!["publish", "--queue", "q", "x"];
    for url in urls {
        args.extend(["--url", url]);
    }
    run(&args)
}

#[test]
fn a_mistake_in_the_url_gets_its_hint_before_anything_is_tried() {
    for (url, hint) in [
        ("amqp://u:hidden#1@h", "%23"),
        ("amqp://u:hidden/1@h", "%2F"),
        ("amqp://u:hidden@1@h", "%40"),
        ("amqp://u:hidden@h/", "empty vhost: leave the slash out, or write %2f for the default vhost"),
        ("amqp://u:hidden@h/%252f", "encoded twice"),
        ("http://u:hidden@h", "scheme"),
        ("hidden", "not a URL"),
    ] {
        let ended = publish_to(&[url]).expect(2).says(hint);
        assert!(!ended.stderr.contains("hidden"), "{ended:#?}");
    }
}

#[test]
fn a_small_frame_is_warned_about() {
    publish_to(&["amqp://127.0.0.1:1?frame_max=4096"]).expect(1).says("warning: frame_max=4096");
}

#[test]
fn where_nothing_listens_or_nothing_is_the_reason_is_told() {
    publish_to(&["amqp://127.0.0.1:1"])
        .expect(1)
        .says("nothing listens on 127.0.0.1:1: is the broker running?");
    publish_to(&["amqp://[::1]:1"]).expect(1).says("[::1]:1");
    publish_to(&["amqp://no-such-host.invalid"])
        .expect(1)
        .says("the host name 'no-such-host.invalid' is not known");
    publish_to(&["amqps://127.0.0.1:1?cacertfile=/nonexistent"])
        .expect(1)
        .says("cannot read the TLS file /nonexistent");
}

/// Accepts connections and never says a word.
#[test]
fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}", listener.local_addr().unwrap());
    let ended = within(Duration::from_secs(20), || publish_to(&[&url]));
    ended.expect(1).says("accepts connections but does not speak AMQP");
}

#[test]
fn a_server_of_another_kind_is_recognised() {
    for answer in [
        &b""[..],
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x0a",
        b"AMQP\x00\x01\x00\x00",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(answer).unwrap();
        });
        let ended = within(Duration::from_secs(20), || publish_to(&[&url])).expect(1);
        server.join().unwrap();
        assert!(ended.stderr.contains("AMQP"), "{answer:?}: {ended:#?}");
    }
}

/// Plain AMQP answered to a TLS hello, by the real broker.
#[test]
fn tls_to_a_plain_port_is_told_apart() {
    let url = shared_url().replace("amqp://", "amqps://");
    publish_to(&[&url]).expect(1).says("TLS failed").says("is it a TLS port");
}

/// An address that swallows connection attempts: its queue of connections is full.
struct Blackhole {
    address: SocketAddr,
    _listener: OwnedFd,
    _fillers: Vec<TcpStream>,
}

impl Blackhole {
    fn new() -> Self {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listen(&listener, 0).unwrap();
        let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
        let mut fillers = Vec::new();
        // The kernel lets in one or two more than asked for.
        while let Ok(filler) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            fillers.push(filler);
            assert!(fillers.len() < 64, "this kernel's queue cannot be filled");
        }
        Self { address, _listener: listener, _fillers: fillers }
    }
}

/// K64: the first URL swallows our packets, the second refuses, the third is silent, the fourth works.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_url_that_works_is_taken() {
    let broker = Broker::shared().await;
    let queue = broker.queue("urls").await;
    let blackhole = Blackhole::new();
    let hole = format!("amqp://{}", blackhole.address);
    let args = [
        "publish",
        "--queue",
        &queue,
        "x",
        "--url",
        &hole,
        "--url",
        "amqp://127.0.0.1:1",
        "--url",
        &broker.url,
    ];
    within(Duration::from_secs(10), || run(&args)).expect(0);
    assert_eq!(broker.drain(&queue).await.len(), 1);

    let ended = within(Duration::from_secs(10), || publish_to(&[&hole, "amqp://127.0.0.1:1"])).expect(1);
    ended
        .says(&format!("{} does not answer within 3s", blackhole.address))
        .says("nothing listens on 127.0.0.1:1");

    let short = format!("{hole}?connection_timeout=300");
    within(Duration::from_secs(2), || publish_to(&[&short])).expect(1).says("does not answer within 300ms");
}

/// K64: `localhost` is often two addresses, and the broker listens on one of them.
#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_a_name_is_tried() {
    let broker = Broker::shared().await;
    let queue = broker.queue("localhost").await;
    let url = broker.url.replace("127.0.0.1", "localhost");
    within(Duration::from_secs(10), || run(&["publish", "--url", &url, "--queue", &queue, "x"])).expect(0);
}

/// K63: whatever goes wrong, and with any level of logging, the password is not printed.
#[test]
fn a_password_is_never_printed() {
    let shared = shared_url();
    let address = shared.rsplit(['/', '@']).next().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hidden%secret\n").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("amqp://u:hidden%25secret@{}", silent.local_addr().unwrap());
    for url in [
        &format!("amqp://u:hidden%25secret@{address}"),
        &format!("amqp://u:hidden%25secret@{address}/nope"),
        &format!("amqps://u:hidden%25secret@{address}"),
        "amqp://u:hidden%25secret@no-such-host.invalid",
        "amqp://u:hidden%25secret@127.0.0.1:1",
        "amqp://u:hidden%secret@127.0.0.1:1",
        "amqp://u:hidden%25secret@127.0.0.1:hidden%25secret",
        &format!("amqp://u@{address}"),
        &silent,
    ] {
        for help in [false, true] {
            let mut child = command(["publish", "--queue", "q", "x", "--password-file"]);
            child
                .arg(file.path())
                .env("AMQP_URL", url)
                .env("RUST_LOG", "trace")
                .env("ACKONCE_LOG_LEVEL", "trace");
            child.env("RUST_BACKTRACE", "full");
            if help {
                child.arg("--help");
            }
            let ended = ended(child.spawn().unwrap(), url);
            assert_eq!(ended.code == Some(0), help, "{ended:#?}");
            for text in [&ended.stdout, &ended.stderr] {
                assert!(!text.contains("hidden") && !text.contains("secret"), "{ended:#?}");
            }
        }
    }
}
