//! `ackonce dead list`, `show` and `purge`.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value as Json, json};

use crate::{
    dead::{command, dead, dead_queue, give_up, put_letters, text},
    harness::{LIMIT, World, until},
};

/// Looking changes neither what is there nor its order, however little is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn looking_takes_nothing_and_keeps_the_order() {
    let plain = FieldTable::default();
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), text("quorum"));
    let mut ours = quorum.clone();
    ours.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(i64::from(i32::MAX)));
    let mut lazy = plain.clone();
    lazy.insert("x-queue-type".into(), text("classic"));
    lazy.insert("x-max-length".into(), AMQPValue::LongLongInt(1000));
    for arguments in [plain, quorum, ours, lazy] {
        let world = World::without_queue("look").await;
        world.declare_with(&dead_queue(&world), arguments.clone()).await;
        let ids = put_letters(&world, 150).await;
        for round in 0..4 {
            let said = dead(&world, "list", &["--json", "--limit", "1000"]).exits(0);
            assert_eq!(said.keys(), ids, "round {round} of {arguments:?}");
            assert_eq!(dead(&world, "list", &["--json", "--limit", "7"]).exits(0).keys(), ids[..7]);
            assert_eq!(dead(&world, "show", &["m40", "--body"]).exits(0).out, "m40");
            let said = dead(&world, "replay", &["--all", "--dry-run", "--json", "--limit", "70"]).exits(0);
            assert_eq!(said.keys(), ids[..70]);
            dead(&world, "purge", &["--key", "m3", "--dry-run"]).exits(0).says("1 letter would be removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_listed_and_shown_with_all_that_is_known() {
    let world = World::new("show").await;
    world.publish("a", b"first\nsecond").await;
    world.publish("b", b"\xff\x00").await;
    world.publish_with(b"no key", BasicProperties::default().with_type("t\x1b[2J".into())).await;
    let worker = world.worker(&["--exec", "sh", "-c", "echo 'no luck' >&2; exit 65"]);
    world.until_state("dead", 2).await;
    until("all are dead", LIMIT, async || world.ready(&dead_queue(&world)).await == 3).await;
    world.stop_and_find_nothing_left(worker).await;

    let said = dead(&world, "list", &[]).exits(0);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!(lines.len(), 4);
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(fields(lines[0]), ["key", "reason", "attempts", "first_seen", "dead", "bytes", "error"]);
    let a = fields(lines.iter().find(|line| line.starts_with("a ")).unwrap());
    assert_eq!((&*a[1], &*a[2], &*a[5]), ("gave-up", "1", "12"));
    assert!(a[3].ends_with('Z') && a[4].ends_with('Z') && a[3] <= a[4], "{a:?}");
    assert_eq!(a[6..].join(" "), "exit status 65: no luck");
    assert!(said.out.contains("(no key)"), "{}", said.out);

    let said = dead(&world, "list", &["--reason", "missing-key", "--json"]).exits(0);
    assert_eq!((said.json().len(), &said.json()[0]["key"]), (1, &Json::Null));
    let said = dead(&world, "list", &["--limit", "1"]).exits(0).says("the first 1 of 3 letters");
    assert_eq!(said.out.lines().count(), 2);

    let shown = dead(&world, "show", &["a"]).exits(0).out;
    assert!(shown.contains("reason:         gave-up (says the worker)\n"), "{shown}");
    assert!(shown.ends_with("body:           12 bytes, utf-8\n\nfirst\nsecond\n"), "{shown}");
    let whole = dead(&world, "show", &["--message-id", "b", "--json"]).exits(0).json().remove(0);
    assert_eq!((&whole["body"], &whole["body_encoding"]), (&json!("/wA="), &json!("base64")));
    assert_eq!(whole["headers"]["x-ackonce-key"], "b");
    assert_eq!(whole["properties"]["delivery_mode"], 2);
    let raw = command(&world, "show", &["b", "--body"]).output().unwrap();
    assert_eq!((raw.status.code(), raw.stdout), (Some(0), b"\xff\x00".to_vec()));
    dead(&world, "show", &["A"]).exits(1).says("no such letter");
    assert_eq!(world.ready(&dead_queue(&world)).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_touches_nothing() {
    let world = World::new("usage").await;
    put_letters(&world, 2).await;
    dead(&world, "replay", &[]).exits(2);
    dead(&world, "replay", &["--all", "--key", "a"]).exits(2);
    dead(&world, "replay", &["--key", " "]).exits(2).says("not empty or blank");
    dead(&world, "purge", &["--all"]).exits(2).says("--yes");
    dead(&world, "show", &[]).exits(2);
    dead(&world, "list", &["--dead-queue", &world.queue]).exits(2).says("the work queue itself");
    dead(&world, "list", &["--dead-queue", "nowhere"]).exits(1).says("there is no queue 'nowhere'");
    dead(&world, "replay", &["--key", "m7"]).exits(1).says("no letter has the key 'm7'");
    assert_eq!(world.ready(&dead_queue(&world)).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn purging_removes_what_is_chosen_and_no_more() {
    let world = World::new("purge").await;
    world.publish("a", b"x").await;
    give_up(&world, 1).await;
    let ids = put_letters(&world, 100).await;
    let said = dead(&world, "purge", &["--key", "m1", "--key", "m99", "--yes", "--json"]).exits(0);
    assert_eq!(said.json()[0], json!({"key": "m1", "message_id": "m1", "status": "removed"}));
    assert_eq!(said.keys(), ["m1", "m99"]);
    dead(&world, "purge", &["--reason", "gave-up", "--yes"]).exits(0).says("1 letter removed");
    let kept: Vec<_> = ids.into_iter().filter(|id| id != "m1" && id != "m99").collect();
    assert_eq!(dead(&world, "list", &["--json"]).keys(), kept);
    let said = dead(&world, "purge", &["--all", "--dry-run", "--json"]).exits(0);
    assert_eq!((said.keys(), &said.json()[0]["status"]), (kept, &json!("would-be-removed")));
    dead(&world, "purge", &["--all", "--yes"]).exits(0).says("98 letters removed");
    assert_eq!(world.ready(&dead_queue(&world)).await, 0);
}
