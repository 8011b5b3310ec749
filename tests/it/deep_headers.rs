//! K36: a message whose headers are nested so deep that reading them takes a deep stack.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::harness::{World, header};

/// Deep enough to overflow a usual stack of 2 MiB in any build.
const DEPTH: usize = 2000;

#[tokio::test(flavor = "multi_thread")]
async fn headers_nested_very_deep_are_handled_and_can_be_dead_lettered() {
    let world = World::new("deep").await;
    publish_nested(&world.url, &world.queue, "deep", DEPTH);
    world.publish("b", b"x").await;
    let handler = world.script(
        r#"echo "$ACKONCE_HEADERS" > "headers-$ACKONCE_KEY"; echo "${RUST_MIN_STACK-unset}" > stack
           [ "$ACKONCE_KEY" = b ] || exit 65"#,
    );
    let worker = world.worker(&["--exec", &handler]);
    world.until_state("done", 1).await;
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert!(world.lines("headers-deep")[0].contains("..."), "cut at a bounded depth");
    assert_eq!(world.lines("stack"), ["unset"], "our own setting is not the handler's");
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(header(&letters[0], "x-ackonce-reason"), "gave-up");
}

/// Speaks AMQP by hand: no client library writes such a header.
fn publish_nested(url: &str, queue: &str, id: &str, depth: usize) {
    let address = url.rsplit(['/', '@']).find(|part| part.contains(':')).expect("host and port");
    let mut broker = Raw(TcpStream::connect(address).expect("a broker"));
    broker.0.write_all(b"AMQP\0\0\x09\x01").unwrap();
    broker.answer();
    let start_ok = [long(b""), short("PLAIN"), long(b"\0guest\0guest"), short("en_US")].concat();
    broker.method(0, 10, 11, &start_ok);
    broker.answer();
    broker.method(0, 10, 31, &[&[0, 10][..], &131_072u32.to_be_bytes(), &[0, 0]].concat());
    broker.method(0, 10, 40, &[short("/"), short(""), vec![0]].concat());
    broker.answer();
    broker.method(1, 20, 10, &short(""));
    broker.answer();
    broker.method(1, 85, 10, &[0]);
    broker.answer();
    let mut value = vec![b'V'];
    for _ in 0..depth {
        value = [vec![b'A'], long(&value)].concat();
    }
    let headers = long(&[short("deep"), value].concat());
    broker.method(1, 60, 40, &[vec![0, 0], short(""), short(queue), vec![0]].concat());
    // Class, weight, size of the body, and which properties follow: headers and message id.
    let content =
        [&[0, 60, 0, 0][..], &1u64.to_be_bytes(), &0x2080u16.to_be_bytes(), &headers, &short(id)].concat();
    broker.frame(2, 1, &content);
    broker.frame(3, 1, b"x");
    assert_eq!(broker.answer()[..4], [0, 60, 0, 80], "confirmed");
}

struct Raw(TcpStream);

impl Raw {
    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let size = u32::try_from(payload.len()).unwrap();
        let frame = [&[kind][..], &channel.to_be_bytes(), &size.to_be_bytes(), payload, &[0xce]].concat();
        self.0.write_all(&frame).unwrap();
    }

    fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        self.frame(1, channel, &[&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat());
    }

    fn answer(&mut self) -> Vec<u8> {
        let mut head = [0; 7];
        self.0.read_exact(&mut head).unwrap();
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut payload = vec![0; size as usize + 1];
        self.0.read_exact(&mut payload).unwrap();
        payload.pop();
        payload
    }
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
