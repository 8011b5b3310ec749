//! The broker goes away, comes back, or will not have us.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use lapin::types::{AMQPValue, FieldTable};

use crate::harness::{LIMIT, World, until};

/// K30: its queue is deleted under it; a new one is found, or made by the worker itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_found_again_when_somebody_makes_it() {
    for declare in ["passive", "create"] {
        let world = World::new("deleted").await;
        let worker = world.worker(&["--declare", declare, "--exec", &world.handler("", "")]);
        worker.until_consuming().await;
        world.delete(&world.queue).await;
        worker.until_said("its queue was deleted").await;
        if declare == "passive" {
            world.declare(&world.queue, "quorum").await;
        }
        let consuming = || worker.said().matches("consuming from").count();
        until("it consumes again", LIMIT, async || consuming() >= 2).await;
        world.publish("a", b"x").await;
        world.until_state("done", 1).await;
        world.stop_and_find_nothing_left(worker).await;
        assert_eq!(world.effects(), ["a"]);
    }
}

/// What no repetition can help ends the first connect with one sentence, a hint, and exit status 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_at_the_first_connect_ends_with_one_sentence() {
    let world = World::without_queue("refused").await;
    let ended = world.worker(&["--declare", "passive", "--log"]).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("there is no queue").expect_said("--declare create");

    let mut wrong = World::without_queue("password").await;
    let (_, host) = wrong.url.split_once("://").unwrap();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    wrong.url = format!("amqp://guest:s3cret%23@{host}");
    let ended = wrong.worker(&["--log"]).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("'guest'");
    assert!(!ended.said.contains("s3cret"), "{}", ended.said);
}

/// K50: whatever arguments a queue has, it is consumed as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_other_arguments_is_consumed_as_it_is() {
    let world = World::without_queue("other").await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-expires".into(), AMQPValue::LongInt(600_000));
    arguments.insert("x-max-priority".into(), AMQPValue::LongInt(3));
    world.declare_with(&world.queue, arguments).await;
    world.publish("a", b"x").await;
    let worker = world.worker(&["--exec", &world.handler("", "")]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    world.delete(&world.queue).await;
}

/// K64: a server that accepts and never speaks, and one that is not there, are passed over.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_broker_is_tried_when_the_first_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = World::new("second").await;
    let mute = format!("amqp://{}", silent.local_addr().unwrap());
    let nobody = format!("amqp://{closed}");
    let good = world.url.clone();
    let start = Instant::now();
    let mut command = crate::harness::ackonce();
    command
        .args(["run", "--url", &mute, "--url", &nobody, "--url", &good, "--queue", &world.queue, "--log"])
        .current_dir(world.folder.path());
    let worker = crate::harness::Process::start(command, world.folder.path());
    worker.until_consuming().await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    worker.terminate().await.expect_exit(0);
}
