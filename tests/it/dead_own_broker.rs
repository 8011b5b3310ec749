//! Dead letters on brokers that limit returns, block, and cut connections.

use std::collections::BTreeSet;

use lapin::types::{AMQPValue, FieldTable, LongString};

use crate::{
    dead::{dead, dead_queue, put_letters},
    harness::{LIMIT, Node, Process, World, ackonce, until},
};

fn quorum(limit: Option<i64>) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(LongString::from("quorum")));
    if let Some(limit) = limit {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(limit));
    }
    arguments
}

/// Looks 30 times at 50 letters. Returns the last report.
async fn look_30_times(world: &World) -> String {
    let mut said = String::new();
    let ids = put_letters(world, 50).await;
    for round in 0..30 {
        let listed = dead(world, "list", &["--json"]).exits(0);
        let (mut keys, mut all) = (listed.keys(), ids.clone());
        keys.sort();
        all.sort();
        assert_eq!(keys, all, "round {round}: {listed:?}");
        said = listed.end();
    }
    said
}

/// RabbitMQ 4 drops what was returned 20 times. Looking never gets there, whatever the queue is.
#[tokio::test(flavor = "multi_thread")]
async fn looking_30_times_loses_nothing_on_rabbitmq_4_own_broker() {
    let Some(node) = Node::start_new_4() else {
        eprintln!("not checked: RabbitMQ 4 runs in a chroot here, which takes root");
        return;
    };
    let world = World::at(&node.url, "ours").await;
    // As the worker makes it.
    let worker = world.worker(&["--log"]);
    worker.until_consuming().await;
    worker.terminate().await.expect_exit(0);
    let said = look_30_times(&world).await;
    assert!(!said.contains("warning"), "{said}");
    assert!(said.contains(r#""returns":29"#), "each look is one return: {said}");

    for (limit, warning) in [
        (None, Some("after 20 returns if this is RabbitMQ 4")),
        (Some(5), Some("after 5 returns")),
        (Some(0), Some("after 0 returns")),
        (Some(-1), None),
    ] {
        let world = World::at(&node.url, "foreign").await;
        world.declare_with(&dead_queue(&world), quorum(limit)).await;
        let said = look_30_times(&world).await;
        assert_eq!(said.contains("warning"), warning.is_some(), "{limit:?}: {said}");
        assert!(warning.is_none_or(|warning| said.contains(warning)), "{limit:?}: {said}");
    }
}

/// K54: the broker blocks publishers, then cuts the connections: all letters are where they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_or_cut_replay_loses_nothing_own_broker() {
    let node = Node::start_new();
    let world = World::at(&node.url, "blocked").await;
    world.declare(&world.queue, "quorum").await;
    let ids = put_letters(&world, 30).await;
    node.ctl(&["set_vm_memory_high_watermark", "0"]);
    let said = dead(&world, "replay", &["--all", "--timeout", "2s"]).exits(1);
    said.says("the broker does not confirm").says("m0 stays: blocked");
    assert_eq!(dead(&world, "list", &["--json"]).keys(), ids);

    let replay = || {
        let mut command = ackonce();
        command.args(["dead", "replay", "--all", "--url", &world.url, "--queue", &world.queue]);
        Process::start(command, world.folder.path())
    };
    let stopped = replay();
    let probe = World::at(&node.url, "probe").await;
    // It connects to publish when it has read its first letters.
    let publishers =
        || node.ctl(&["list_connections", "client_properties"]).matches("ackonce letters of").count();
    until("it publishes", LIMIT, async || publishers() > 0).await;
    stopped.signal(rustix::process::Signal::TERM);
    stopped.until_said("waiting for what is under way").await;
    stopped
        .terminate()
        .await
        .expect_exit(1)
        .expect_said("letters stay that may be")
        .expect_said("stopped by SIGTERM");
    until("all are back", LIMIT, async || probe.ready(&dead_queue(&world)).await == 30).await;

    // The broker may not have noticed yet that the first one is gone: it reads nothing from it.
    let before = publishers();
    let replay = replay();
    until("it publishes", LIMIT, async || publishers() > before).await;
    node.ctl(&["close_all_connections", "test"]);
    replay.ended(LIMIT).await.expect_exit(1);
    node.ctl(&["set_vm_memory_high_watermark", "0.6"]);
    let probe = World::at(&node.url, "probe").await;
    until("all are back", LIMIT, async || probe.ready(&dead_queue(&world)).await == 30).await;
    dead(&world, "replay", &["--all", "--timeout", "20s"]).exits(0).says("30 letters replayed");
    assert_eq!(probe.ready(&dead_queue(&world)).await, 0);
    // What the broker had read before it blocked may have come as well, under the same ids.
    let sent: BTreeSet<_> = probe.take_all(&world.queue).await.into_iter().map(|sent| sent.data).collect();
    assert_eq!(sent, ids.into_iter().map(String::into_bytes).collect());
}
