//! Whatever a sender puts into a message, its command runs, and is told by documented rules.

use lapin::{
    BasicProperties,
    types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString},
};
use serde_json::{Value as Json, json};

use super::done;
use crate::harness::World;

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

fn table(entries: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(ShortString::from(name), value);
    }
    table
}

fn properties(id: &str, headers: FieldTable) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into()).with_headers(headers)
}

const SHOW: &str = r#"printf '%s' "$ACKONCE_HEADERS" > "headers-$ACKONCE_KEY"; env > env"#;

async fn headers(world: &World, key: &str) -> Json {
    let text = std::fs::read_to_string(world.path(&format!("headers-{key}"))).expect("headers");
    serde_json::from_str(&text).expect("JSON")
}

/// K34: a timestamp is a number, however absurd; the next message is handled as well.
#[tokio::test(flavor = "multi_thread")]
async fn absurd_timestamps_are_numbers() {
    let world = World::new("timestamps").await;
    let times = [0, 1 << 63, u64::MAX, 1_772_000_000_000];
    let list = times.map(AMQPValue::Timestamp).to_vec();
    let headers_in = table([("t", AMQPValue::FieldArray(FieldArray::from(list)))]);
    world.publish_with(b"x", properties("a", headers_in).with_timestamp(u64::MAX)).await;
    world.publish("b", b"x").await;
    let worker = world.worker(&["--concurrency", "1", "--shell", SHOW]);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(headers(&world, "a").await, json!({ "t": times }));
    assert_eq!(headers(&world, "b").await, json!({}));
}

/// K35: every type of header, nested. (NaN and the infinities have no Erlang term: the broker itself refuses
/// them from a publisher. Their form is pinned where `Value` is.)
#[tokio::test(flavor = "multi_thread")]
async fn every_type_of_header_has_its_form() {
    let world = World::new("types").await;
    let all = || {
        table([
            ("t", AMQPValue::Boolean(true)),
            ("b", AMQPValue::ShortShortInt(i8::MIN)),
            ("B", AMQPValue::ShortShortUInt(u8::MAX)),
            ("s", AMQPValue::ShortInt(i16::MIN)),
            ("u", AMQPValue::ShortUInt(u16::MAX)),
            ("I", AMQPValue::LongInt(i32::MIN)),
            ("i", AMQPValue::LongUInt(u32::MAX)),
            ("l", AMQPValue::LongLongInt(i64::MIN)),
            ("f", AMQPValue::Float(0.5)),
            ("d", AMQPValue::Double(f64::MAX)),
            ("D", AMQPValue::DecimalValue(DecimalValue { scale: 3, value: 12 })),
            ("S", text("añb")),
            ("S-bytes", AMQPValue::LongString(LongString::from(&[0xff, 0x00][..]))),
            ("A", AMQPValue::FieldArray(FieldArray::default())),
            ("T", AMQPValue::Timestamp(7)),
            ("F", AMQPValue::FieldTable(FieldTable::default())),
            ("x", AMQPValue::ByteArray(ByteArray::from(&[0xfe, 0x0a][..]))),
            ("V", AMQPValue::Void),
        ])
    };
    let mut outer = all();
    let list = vec![AMQPValue::FieldTable(all()), AMQPValue::FieldArray(vec![text("deep")].into())];
    outer.insert(
        "nested".into(),
        AMQPValue::FieldTable(table([("list", AMQPValue::FieldArray(list.into()))])),
    );
    world.publish_with(b"x", properties("a", outer)).await;
    world.publish("b", b"x").await;
    let worker = world.worker(&["--shell", SHOW]);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let expected = json!({
        "t": true, "b": -128, "B": 255, "s": -32768, "u": 65535, "I": i32::MIN, "i": u32::MAX, "l": i64::MIN,
        "f": 0.5, "d": f64::MAX, "D": "0.012",
        "S": "añb", "S-bytes": "hex:ff00", "A": [], "T": 7, "F": {}, "x": "hex:fe0a", "V": null,
    });
    let mut whole = expected.clone();
    whole["nested"] = json!({ "list": [expected, ["deep"]] });
    assert_eq!(headers(&world, "a").await, whole);
}

/// The client's own reader is recursive, and in a debug build 200 levels are more than its thread's stack holds;
/// what is ours is tested with 200 where `Value` is.
const NESTING: usize = 100;

/// K36: nesting is cut where it is shown, not followed.
#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_is_handled() {
    let world = World::new("deep").await;
    let mut deep = table([("end", AMQPValue::Boolean(true))]);
    for _ in 0..NESTING {
        deep = table([("n", AMQPValue::FieldTable(deep))]);
    }
    world.publish_with(b"x", properties("a", deep)).await;
    world.publish("b", b"x").await;
    let worker = world.worker(&["--shell", SHOW]);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let text = headers(&world, "a").await.to_string();
    assert!(text.contains("\"...\"") && text.len() < 400, "{text}");
}

/// K70: a NUL fits into no variable: U+FFFD in a property, an escape in the headers' JSON.
#[tokio::test(flavor = "multi_thread")]
async fn nul_bytes_do_not_keep_a_command_from_running() {
    let world = World::new("nul").await;
    let odd = table([
        ("n", text("a\0b")),
        ("with=sign", text("1")),
        ("a\0b", text("2")),
        ("with blank", text("3")),
    ]);
    world.publish_with(b"x", properties("x\0y", odd).with_type("t\0".into())).await;
    let line = r#"printf '%s' "$ACKONCE_HEADERS" > headers-a; env > env"#;
    let worker = world.worker(&["--max-attempts", "1", "--shell", line]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let expected = json!({ "n": "a\0b", "with=sign": "1", "a\0b": "2", "with blank": "3" });
    assert_eq!(headers(&world, "a").await, expected);
    let env = world.lines("env");
    for line in ["ACKONCE_MESSAGE_ID=x\u{FFFD}y", "ACKONCE_KEY=x\u{FFFD}y", "ACKONCE_TYPE=t\u{FFFD}"] {
        assert!(env.iter().any(|found| found == line), "{line}: {env:#?}");
    }
}

/// K71: a header that fits into no variable is left out, marked; the body does not go there at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_too_long_is_left_out_and_marked() {
    let world = World::new("long").await;
    let long = "x".repeat(130_000);
    let with_long = || table([("long", text(&long)), ("short", text("1"))]);
    world.publish_with(&vec![b'y'; 5 << 20], properties("a", with_long())).await;
    let worker = world.worker(&["--max-attempts", "1", "--shell", &format!("wc -c > size; {SHOW}")]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let expected = json!({ "long": { "ackonce_too_long": 130_002 }, "short": "1" });
    assert_eq!(headers(&world, "a").await, expected);
    assert_eq!(world.lines("size")[0].trim(), (5 << 20).to_string());
    assert_eq!(world.rows(), [done("a", 1)]);
}

/// K71: where the environment as a whole is full, the headers give way.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_environment_leaves_the_headers_out() {
    let world = World::new("full-env").await;
    let long = "x".repeat(100_000);
    world.publish_with(b"x", properties("a", table([("long", text(&long))]))).await;
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    // Linux: a quarter of the stack's limit, at most three quarters of 8 MiB.
    let limit = stack.map_or(6 << 20, |bytes| (bytes / 4).min(6 << 20)) as usize;
    let used: usize = std::env::vars_os().map(|(name, value)| name.len() + value.len() + 10).sum();
    let fill = |command: &mut std::process::Command| {
        let mut left = limit - used - 50_000;
        for number in 0.. {
            let size = left.min(100_000);
            command.env(format!("FILL_{number}"), "f".repeat(size));
            left -= size;
            if left == 0 {
                break;
            }
        }
    };
    let program = "import os; open('headers-a', 'w').write(os.environ['ACKONCE_HEADERS'])";
    let worker = world.worker_with(fill, &["--max-attempts", "1", "--exec", "python3", "-c", program]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(headers(&world, "a").await, json!({ "ackonce_too_long": 100_011 }));
}

/// K72: no header becomes a variable of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_never_names_a_variable() {
    let world = World::new("names").await;
    let names =
        ["PATH", "LD_PRELOAD", "HTTP_PROXY", "proxy", "IFS", "a-b", "a_b", "A_B", "BASH_ENV", "AMQP_URL"];
    let evil = table(names.map(|name| (name, text("/evil"))));
    world.publish_with(b"x", properties("a", evil)).await;
    let worker = world.worker(&["--exec", "sh", "-c", SHOW]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let env = world.lines("env");
    let with_evil: Vec<_> = env.iter().filter(|line| line.contains("/evil")).collect();
    assert!(with_evil.len() == 1 && with_evil[0].starts_with("ACKONCE_HEADERS={"), "{with_evil:?}");
    let path = format!("PATH={}", std::env::var("PATH").expect("a PATH"));
    assert!(env.contains(&path), "{env:#?}");
    let shown = headers(&world, "a").await;
    assert!(names.iter().all(|name| shown[name] == json!("/evil")), "{shown}");
}
