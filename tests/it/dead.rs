//! `ackonce dead replay`: letters are sent back as fresh runs, and none is lost on the way.

use std::process::{Output, Stdio};

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable, LongString},
};
use serde_json::{Value as Json, json};

use crate::harness::{LIMIT, Process, World, ackonce, publish, until};

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "'{text}' is not in: {}", self.err);
        self
    }

    pub fn json(&self) -> Vec<Json> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Its last line of each kind.
    pub fn end(&self) -> String {
        format!("{} {}", self.out.lines().last().unwrap_or_default(), self.err)
    }

    /// The keys of the lines.
    pub fn keys(&self) -> Vec<String> {
        self.json().iter().map(|line| line["key"].as_str().unwrap_or("-").to_owned()).collect()
    }
}

pub fn command(world: &World, verb: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = ackonce();
    command
        .args(["dead", verb, "--url", &world.url, "--queue", &world.queue])
        .args(arguments)
        .current_dir(world.folder.path())
        .stdin(Stdio::null());
    command
}

pub fn dead(world: &World, verb: &str, arguments: &[&str]) -> Said {
    command(world, verb, arguments).output().expect("it runs").into()
}

pub fn dead_queue(world: &World) -> String {
    format!("{}.dead", world.queue)
}

pub fn id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

pub fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// The same ids as they lie in a queue, straight there.
pub async fn put_letters(world: &World, count: u32) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    for name in &ids {
        publish(&world.channel, "", &dead_queue(world), name.as_bytes(), id(name)).await;
    }
    ids
}

/// Handles all that is in the queue, and gives each up with exit status 65.
pub async fn give_up(world: &World, count: usize) -> Vec<crate::harness::Row> {
    let worker = world.worker(&["--exec", "sh", "-c", "echo 'no luck' >&2; exit 65"]);
    world.until_state("dead", count).await;
    world.stop_and_find_nothing_left(worker).await;
    world.rows()
}

/// Records each run: key, attempt, exchange, routing key.
fn records(world: &World) -> Process {
    let handler = world
        .script(r#"echo "$ACKONCE_KEY $ACKONCE_ATTEMPT $ACKONCE_EXCHANGE $ACKONCE_ROUTING_KEY" >> effects"#);
    world.worker(&["--exec", &handler])
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// A topic exchange that leads to the world's queue.
async fn exchange(world: &World) -> String {
    let name = format!("{}.x", world.queue);
    let topic = lapin::ExchangeKind::Topic;
    let (options, none) = (Default::default(), FieldTable::default());
    world.channel.exchange_declare(name.as_str().into(), topic, options, none.clone()).await.unwrap();
    let (queue, exchange) = (world.queue.as_str().into(), name.as_str().into());
    world.channel.queue_bind(queue, exchange, "#".into(), Default::default(), none).await.unwrap();
    name
}

/// K07a, K44: a failed message that is sent back runs, as a fresh one, and looks as it did at first.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_back_runs_again_from_attempt_one() {
    for kind in ["quorum", "classic"] {
        let world = World::without_queue("replay").await;
        world.declare(&world.queue, kind).await;
        let exchange = exchange(&world).await;
        let elsewhere = format!("{}.elsewhere", world.queue);
        world.declare_with(&elsewhere, FieldTable::default()).await;
        let mut headers = FieldTable::default();
        headers.insert("n".into(), AMQPValue::LongLongInt(7));
        // In the default exchange it would lead there.
        headers.insert("CC".into(), AMQPValue::FieldArray(FieldArray::from(vec![text(&elsewhere)])));
        let properties = id("a").with_headers(headers.clone()).with_expiration("600000".into());
        publish(&world.channel, &exchange, "order.created", b"x", properties).await;
        world.publish("b", b"x").await;
        give_up(&world, 2).await;
        let said = dead(&world, "replay", &["--key", "a", "--json"]).exits(0).says("1 letter replayed");
        assert_eq!(
            said.json(),
            [json!({"key": "a", "message_id": "a", "status": "replayed", "row": "reset"})]
        );
        assert_eq!(world.ready(&dead_queue(&world)).await, 1);

        let handler = world.script(
            r#"printf '%s\n' "$ACKONCE_KEY $ACKONCE_ATTEMPT $ACKONCE_EXCHANGE $ACKONCE_ROUTING_KEY $ACKONCE_HEADERS" >> effects"#,
        );
        let worker = world.worker(&["--exec", &handler]);
        world.until_state("done", 1).await;
        dead(&world, "replay", &["--all"]).exits(0);
        world.until_state("done", 2).await;
        world.stop_and_find_nothing_left(worker).await;
        let queue = &world.queue;
        let headers = format!(r#"{{"CC":["{elsewhere}"],"n":7}}"#);
        let a = format!("a 1 {exchange} order.created {headers}");
        assert_eq!(world.effects(), [a, format!("b 1  {queue} {{}}")]);
        assert_eq!(world.ready(&dead_queue(&world)).await, 0);
        assert_eq!(world.ready(&elsewhere).await, 0, "it was routed again");
    }
}

/// K07b: the same by a shovel or by hand: the letter as it is, published to the work queue.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_shovel_moves_back_runs_as_well() {
    let world = World::new("shovel").await;
    world.publish("a", b"x").await;
    world.publish("b", b"x").await;
    give_up(&world, 2).await;
    for letter in world.take_all(&dead_queue(&world)).await {
        world.publish_with(&letter.data, letter.properties).await;
    }
    let worker = records(&world);
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut effects = world.effects();
    effects.sort();
    assert_eq!(effects.iter().map(|line| &line[..3]).collect::<Vec<_>>(), ["a 1", "b 1"]);
}

/// K07: what is done already stays a duplicate when it is moved back, unless it is forced.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_stays_a_duplicate_unless_it_is_forced() {
    let world = World::new("done").await;
    world.publish("a", b"x").await;
    let worker = records(&world);
    world.until_state("done", 1).await;
    put_letters(&world, 1).await;
    publish(&world.channel, "", &dead_queue(&world), b"x", id("a")).await;
    let said = dead(&world, "replay", &["--key", "a", "--json"]).exits(0).says("--force lets them run again");
    assert_eq!(said.json()[0]["row"], "done");
    until("it is a duplicate", LIMIT, async || world.rows()[0].duplicates == 1).await;
    assert_eq!(world.effects().len(), 1);

    publish(&world.channel, "", &dead_queue(&world), b"x", id("a")).await;
    let said = dead(&world, "replay", &["--key", "a", "--force", "--json"]).exits(0);
    assert_eq!(said.json()[0]["row"], "reset");
    until("it runs again", LIMIT, async || world.effects().len() == 2).await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.ready(&dead_queue(&world)).await, 1, "the other letter stays");
}

/// Letters that the broker moved, or anyone, are told by what is known of them, and can be sent back.
#[tokio::test(flavor = "multi_thread")]
async fn letters_that_are_not_ours_are_letters_too() {
    let world = World::without_queue("foreign").await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), text(""));
    arguments.insert("x-dead-letter-routing-key".into(), text(&dead_queue(&world)));
    world.declare_with(&dead_queue(&world), FieldTable::default()).await;
    world.declare_with(&world.queue, arguments).await;
    let exchange = exchange(&world).await;
    let mut headers = FieldTable::default();
    headers.insert("n".into(), AMQPValue::LongLongInt(7));
    let properties = id("a").with_expiration("0".into()).with_headers(headers);
    publish(&world.channel, &exchange, "order.created", b"x", properties).await;
    until("it has expired", LIMIT, async || world.ready(&dead_queue(&world)).await == 1).await;
    publish(&world.channel, "", &dead_queue(&world), b"x", BasicProperties::default()).await;

    let said = dead(&world, "list", &[]).exits(0);
    assert!(said.out.contains("expired") && said.out.contains("moved by the broker from"), "{}", said.out);
    let listed = dead(&world, "list", &["--json"]).exits(0).json();
    assert_eq!((&listed[0]["by"], &listed[0]["reason"]), (&json!("broker"), &json!("expired")));
    assert_eq!(listed[0]["exchange"], exchange.as_str());
    assert!(listed[0]["dead_ms"].as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!((&listed[1]["by"], &listed[1]["reason"]), (&Json::Null, &Json::Null));

    let worker = world.worker(&[
        "--on-missing-key",
        "hash-body",
        "--exec",
        &world.script(r#"echo "$ACKONCE_EXCHANGE $ACKONCE_ROUTING_KEY $ACKONCE_HEADERS" >> effects"#),
    ]);
    // The ledger is made by the worker.
    worker.until_consuming().await;
    dead(&world, "replay", &["--reason", "expired"]).exits(0).says("1 letter replayed");
    world.until_state("done", 1).await;
    dead(&world, "replay", &["--all"]).exits(0).says("1 letter replayed");
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let expected = [format!(r#"{exchange} order.created {{"n":7}}"#), format!(" {} {{}}", world.queue)];
    assert_eq!(world.effects(), expected);
}

/// A ledger that is not there is no obstacle, but said; forcing needs one.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_ledger_letters_can_still_be_sent_back() {
    let world = World::new("noledger").await;
    put_letters(&world, 2).await;
    dead(&world, "replay", &["--key", "m0", "--force"]).exits(2).says("there is no ledger");
    let said = dead(&world, "replay", &["--key", "m0", "--json"]).exits(0).says("there is no ledger");
    assert_eq!(said.json(), [json!({"key": "m0", "message_id": "m0", "status": "replayed"})]);
    assert!(!world.path("ackonce.db").exists());
    assert_eq!((world.ready(&world.queue).await, world.ready(&dead_queue(&world)).await), (1, 1));
}

/// The queue was deleted: nothing is removed, and each letter that was tried is named.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_work_queue_all_letters_stay() {
    let world = World::new("unroutable").await;
    let ids = put_letters(&world, 100).await;
    world.delete(&world.queue).await;
    let said = dead(&world, "replay", &["--all", "--json"]).exits(1).says("there is no work queue");
    assert!(said.err.contains("m0 stays: unroutable"), "{}", said.err);
    assert!(said.json().iter().all(|line| line["status"] == "stays" && line["reason"] == "unroutable"));
    assert_eq!(sorted(said.keys()), sorted(ids[..said.json().len()].to_vec()));
    assert_eq!(dead(&world, "list", &["--json"]).keys(), ids, "all of them, in order");
}

/// A full work queue refuses: exactly what it took has left.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_work_queue_refuses_stays_and_is_named() {
    let world = World::without_queue("full").await;
    world.declare_with(&dead_queue(&world), FieldTable::default()).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(3));
    arguments.insert("x-overflow".into(), text("reject-publish"));
    world.declare_with(&world.queue, arguments).await;
    let ids = put_letters(&world, 10).await;
    let said = dead(&world, "replay", &["--all", "--json"]).exits(1).says("7 stay");
    // Reported as they are confirmed, in any order.
    let with = |status: &str| {
        let lines = said.json();
        sorted(
            lines
                .iter()
                .filter(|line| line["status"] == status)
                .map(|line| line["key"].to_string())
                .collect(),
        )
    };
    assert_eq!(
        (with("replayed"), with("stays").len()),
        (sorted(ids[..3].iter().map(|id| json!(id).to_string()).collect()), 7)
    );
    assert_eq!(dead(&world, "list", &["--json"]).keys(), ids[3..]);
    assert_eq!(world.ready(&world.queue).await, 3);
}

/// Killed in the middle: nothing is lost; run again, it completes, and each message runs once.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_killed_loses_nothing_and_can_be_run_again() {
    const COUNT: usize = 1000;
    let world = World::new("killed").await;
    // Long enough that a report nobody reads fills its pipe before the end.
    let ids: Vec<String> = (0..COUNT).map(|n| format!("{n:0>150}")).collect();
    for name in &ids {
        world.publish(name, b"x").await;
    }
    give_up(&world, COUNT).await;
    let mut replay = command(&world, "replay", &["--all", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    until("it stands in the middle", LIMIT, async || world.ready(&world.queue).await > 100).await;
    assert!(replay.try_wait().unwrap().is_none(), "it has ended");
    replay.kill().unwrap();
    replay.wait().unwrap();
    let there =
        async || world.ready(&world.queue).await as usize + world.ready(&dead_queue(&world)).await as usize;
    until("the broker has taken the rest back", LIMIT, async || there().await >= COUNT).await;
    assert!(world.ready(&dead_queue(&world)).await > 0);

    dead(&world, "replay", &["--all"]).exits(0);
    assert_eq!(world.ready(&dead_queue(&world)).await, 0);
    let worker = records(&world);
    world.until_state("done", COUNT).await;
    world.stop_and_find_nothing_left(worker).await;
    let runs = sorted(world.effects());
    let expected: Vec<_> = ids.iter().map(|id| format!("{id} 1  {}", world.queue)).collect();
    assert_eq!(runs.len(), COUNT, "each ran once");
    assert_eq!(runs, sorted(expected));
}

/// Letters that die again meanwhile come behind the end: each is sent back once.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_dies_again_makes_no_endless_loop() {
    let world = World::new("loop").await;
    for number in 0..200 {
        world.publish(&number.to_string(), b"x").await;
    }
    give_up(&world, 200).await;
    let worker = world.worker(&["--exec", "sh", "-c", "echo >> effects; exit 65"]);
    worker.until_consuming().await;
    dead(&world, "replay", &["--all"]).exits(0).says("200 letters replayed");
    until("all have died again", LIMIT, async || world.ready(&dead_queue(&world)).await == 200).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects().len(), 200);
}
