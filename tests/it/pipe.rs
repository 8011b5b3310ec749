//! Long-lived children: what they are told, what they say, and that each message is done once.

mod ends;
mod trouble;

use std::{fs, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};
use serde_json::{Value as Json, json};

use crate::harness::{LIMIT, Process, World, header, until};

/// The beginning of a child: `answer`, a line in `pids`, and then for each message its `lines`, which
/// see it as `message` and its body as `body`.
fn child(world: &World, lines: &str) -> Vec<String> {
    let program = format!(
        r#"
import json, os, signal, subprocess, sys, time

def note(name, *words):
    with open(name, "a") as file:
        print(*words, file=file)

def answer(message, result="done", **more):
    print(json.dumps({{"id": message["id"], "result": result, **more}}), flush=True)

note("pids", os.getpid())
for line in sys.stdin:
    message = json.loads(line)
    body = message.get("body")
{lines}
note("ended", os.getpid())
"#
    );
    let lines = program.lines().map(|line| format!("{line}\n"));
    let path = world.path("child.py");
    fs::write(&path, lines.collect::<String>()).expect("a program");
    vec!["--pipe".into(), python(), path.display().to_string()]
}

/// The interpreter itself: `python3` may be a script that looks for it, which takes its time.
fn python() -> String {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let asked = asked.expect("python3");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8(asked.stdout).expect("a path").trim().to_owned()
}

/// A worker with such a child, on that world.
fn worker(world: &World, arguments: &[&str], lines: &str) -> Process {
    let indented: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    let command = child(world, &indented);
    let arguments: Vec<&str> = arguments.iter().copied().chain(command.iter().map(String::as_str)).collect();
    world.worker(&arguments)
}

/// Dead letters by message id, with their errors.
async fn dead(world: &World) -> Vec<(String, String)> {
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let id = |letter: &lapin::message::Delivery| {
        letter.properties.message_id().as_ref().map_or("", |id| id.as_str()).to_owned()
    };
    let mut dead: Vec<_> =
        letters.iter().map(|letter| (id(letter), header(letter, "x-ackonce-error"))).collect();
    dead.sort();
    dead
}

/// The examples that the README shows are the files, and they work.
#[tokio::test(flavor = "multi_thread")]
async fn the_examples_work() {
    let root = env!("CARGO_MANIFEST_DIR");
    let readme = fs::read_to_string(format!("{root}/README.md")).expect("a README");
    for (program, file) in [("python3", "worker.py"), ("node", "worker.mjs")] {
        let path = format!("{root}/examples/pipe/{file}");
        let text = fs::read_to_string(&path).expect("an example");
        assert!(readme.contains(&text), "README.md shows another {file}");
        assert!(text.trim().lines().filter(|line| !line.is_empty()).count() <= 16, "{file} is long");

        let world = World::new("example").await;
        world.publish("good", "{\"amount\": \"5 \u{2028}\"}".as_bytes()).await;
        world.publish("no amount", b"{}").await;
        world.publish("no json", b"amount").await;
        let often = ["--max-attempts", "2", "--initial-interval", "1ms", "--pipe", program, &path];
        let worker = world.worker(&often);
        world.until_state("dead", 2).await;
        world.until_state("done", 1).await;
        worker.until_said("charging good: 5").await;
        let ended = worker.terminate().await;
        ended.expect_exit(0).expect_said("handled=1").expect_said("retried=1");
        assert!(!ended.said.contains("replaced"), "{}", ended.said);
        let dead = dead(&world).await;
        assert_eq!(dead.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["no amount", "no json"]);
        assert!(dead[0].1.contains("amount"), "{dead:?}");
        assert_eq!(world.rows().iter().map(|row| row.attempts).collect::<Vec<_>>(), [1, 2, 1]);
    }
}

/// Everything about a message is in its line, and none of our settings in the child's environment.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_told_everything() {
    let world = World::new("told").await;
    let mut headers = FieldTable::default();
    headers.insert("h".into(), AMQPValue::LongString(LongString::from("a\0b")));
    let properties = BasicProperties::default()
        .with_message_id("a".into())
        .with_type("paid".into())
        .with_content_type("text/plain".into())
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_timestamp(u64::MAX)
        .with_headers(headers);
    world.publish_with("zwölf\n\u{2028}".as_bytes(), properties).await;
    world.publish("b", b"\xff\x00").await;
    let lines = r#"
note("told", line.strip())
note("environment", *[name for name in os.environ if name.startswith(("ACKONCE_", "AMQP_"))])
answer(message)
"#;
    let worker = worker(&world, &["--pipe-children", "1", "--key", "property:message-id"], lines);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let told: Vec<Json> =
        world.lines("told").iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let queue = &world.queue;
    let expected = json!({
        "id": 1, "key": "a", "message_id": "a", "scope": queue, "queue": queue, "exchange": "",
        "routing_key": queue, "attempt": 1, "interrupted": false, "redelivered": false, "type": "paid",
        "content_type": "text/plain", "correlation_id": "c", "reply_to": "r", "timestamp": u64::MAX,
        "headers": { "h": "a\0b" }, "body": "zwölf\n\u{2028}",
    });
    assert_eq!(told[0], expected);
    let bare = json!({
        "id": 2, "key": "b", "message_id": "b", "scope": queue, "queue": queue, "exchange": "",
        "routing_key": queue, "attempt": 1, "interrupted": false, "redelivered": false, "type": null,
        "content_type": null, "correlation_id": null, "reply_to": null, "timestamp": null, "headers": {},
        "body_base64": "/wA=",
    });
    assert_eq!(told[1], bare);
    assert_eq!(world.lines("environment"), ["", ""]);
}

/// Nothing, everything, and what is not text: unchanged in either framing, though the child talks a lot.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_arrive_unchanged_in_both_framings() {
    let binary: Vec<u8> =
        (0..16usize << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bodies = [("empty", Vec::new()), ("text", "ö\r\n".repeat(1 << 20).into_bytes()), ("binary", binary)];
    let lines = r#"
sys.stderr.write("chatter\n" * 50_000)
import base64
data = body.encode() if body is not None else base64.b64decode(message["body_base64"])
open("body-" + message["key"], "wb").write(data)
answer(message)
"#;
    let frames = r#"
import json, struct, sys
def read():
    length = sys.stdin.buffer.read(4)
    return sys.stdin.buffer.read(struct.unpack(">I", length)[0]) if length else None
while (head := read()) is not None:
    message, body = json.loads(head), read()
    assert "body" not in message and "body_base64" not in message
    open("body-" + message["key"], "wb").write(body)
    answer = json.dumps({"id": message["id"], "result": "done"}).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(answer)) + answer)
    sys.stdout.buffer.flush()
"#;
    for framing in ["lines", "length_prefixed_uint32_be"] {
        let world = World::new("bodies").await;
        for (key, body) in &bodies {
            world.publish(key, body).await;
        }
        let quiet = ["--log-level", "warn", "--max-attempts", "1", "--pipe-framing", framing];
        let worker = if framing == "lines" {
            worker(&world, &quiet, lines)
        } else {
            world.worker(&[&quiet[..], &["--pipe", "python3", "-c", frames]].concat())
        };
        world.until_state("done", bodies.len()).await;
        world.stop_and_find_nothing_left(worker).await;
        for (key, body) in &bodies {
            let arrived = fs::read(world.path(&format!("body-{key}"))).expect("a body");
            assert!(arrived == *body, "{framing} {key}: {} bytes became {}", body.len(), arrived.len());
        }
    }
    // The encoding that the README names is this one.
    assert_eq!(STANDARD.encode(b"\xff\x00"), "/wA=");
}

/// Many messages, each sent twice, over few children: each is done once, and no child more is started.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_children_do_many_messages_once() {
    let world = World::new("many").await;
    for number in 0..500 {
        world.publish(&number.to_string(), b"x").await;
        world.publish(&number.to_string(), b"x").await;
    }
    let worker =
        worker(&world, &["--pipe-children", "3"], "note('effects', message['key']); answer(message)");
    until("all are settled", LIMIT, async || {
        let rows = world.rows();
        rows.len() == 500 && rows.iter().all(|row| row.state == "done" && row.duplicates == 1)
    })
    .await;
    world.stop_and_find_nothing_left(worker).await;
    let mut effects = world.effects();
    effects.sort();
    effects.dedup();
    assert_eq!((effects.len(), world.effects().len()), (500, 500));
    assert_eq!(world.lines("pids").len(), 3);
    assert_eq!(world.lines("ended").len(), 3, "each saw the end of its input");
}

/// Several messages in one child at a time, answered in another order.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_may_have_several_messages() {
    let world = World::new("several").await;
    for key in ["a", "b", "c", "d", "e"] {
        world.publish(key, b"x").await;
    }
    let lines = r#"
held = globals().setdefault("held", [])
held.append(message)
note("seen", message["key"], len(held))
if len(held) == 4 or message["key"] == "e":
    while held:
        other = held.pop()
        if other["key"] == "b" and other["attempt"] == 1:
            answer(other, "retry", error="not yet")
        else:
            answer(other)
elif message["attempt"] == 2:
    answer(held.pop())
"#;
    let several = ["--pipe-children", "1", "--pipe-in-flight", "4", "--initial-interval", "1ms"];
    let worker = worker(&world, &several, lines);
    world.until_state("done", 5).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("not yet");
    let rows = world.rows();
    assert_eq!(rows.iter().map(|row| row.attempts).collect::<Vec<_>>(), [1, 2, 1, 1, 1]);
    assert_eq!(world.lines("seen")[..4], ["a 1", "b 2", "c 3", "d 4"]);
    assert_eq!(world.lines("pids").len(), 1);
}

/// A child may say when; what is no time is not heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_may_say_when_to_try_again() {
    let world = World::new("when").await;
    world.publish("a", b"x").await;
    let lines = r#"
note("times", time.time())
wait = {1: 0.5, 2: -5, 3: "soon"}.get(message["attempt"])
answer(message) if wait is None else answer(message, "retry", error="busy", retry_after=wait)
"#;
    let worker = worker(&world, &["--initial-interval", "1ms"], lines);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let times: Vec<f64> = world.lines("times").iter().map(|line| line.parse().expect("a time")).collect();
    assert_eq!(times.len(), 4);
    assert!(times[1] - times[0] >= 0.5, "{times:?}");
}
