//! A real broker that is killed, restarted, frozen, and more, with load running: nothing is lost, nothing
//! takes effect twice, and no worker ends before it is asked to.
//!
//! `ACKONCE_FAULT_ROUNDS=4` repeats all faults so often (default: 1), and `ACKONCE_RESTART_ROUNDS=10` kills and
//! restarts the broker so often afterwards (default: 0); `scripts/campaign` sets both.

mod fault;
mod lane;
mod load;

use std::time::Duration;

use crate::harness::{LIMIT, Node, Path, World, until};
use fault::Fault;
use lane::{Kind, Lane};
use load::Load;

/// The version that the machine's own package has; Debian 12's is 3.10.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_faults_of_rabbitmq_3() {
    survive(Node::start_new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_broker_faults_of_rabbitmq_4() {
    match Node::start_new_4() {
        Some(node) => survive(node).await,
        None => eprintln!("SKIPPED: RabbitMQ 4 runs in a chroot, which takes root"),
    }
}

/// All faults, with classic and quorum queues at once, each with a command and with SQL.
async fn survive(node: Node) {
    let (rounds, restarts) = (count("ACKONCE_FAULT_ROUNDS", 1), count("ACKONCE_RESTART_ROUNDS", 0));
    let version = node.ctl(&["eval", "rabbit_misc:version()."]).trim().trim_matches('"').to_owned();
    let address = node.url.trim_start_matches("amqp://").to_owned();
    let path = Path::to(address).await;
    let mut lanes = Vec::new();
    for queue_type in ["classic", "quorum"] {
        for kind in [Kind::Command, Kind::Sql] {
            lanes.push(Lane::start(&node.url, &path, queue_type, kind).await);
        }
    }
    let load = Load::start(&node.url, lanes.iter().map(|lane| lane.queue().to_owned()).collect());
    goes_on("before the first fault", &mut lanes).await;
    let all = (0..rounds).flat_map(|_| Fault::ALL);
    let order: Vec<Fault> = all.chain((0..restarts).flat_map(|_| Fault::RESTARTS)).collect();
    for fault in &order {
        fault.happen(&node, &path, &lanes, &load).await;
        goes_on(&format!("after {fault:?}"), &mut lanes).await;
    }
    let sent = load.stop().await;
    for lane in &mut lanes {
        lane.until_done(sent).await;
    }
    // What is left is acked at a clean stop, or a copy of what is done.
    let probe = World::at(&node.url, "probe").await;
    for lane in lanes {
        until(&format!("{} is empty", lane.queue()), LIMIT, async || probe.ready(lane.queue()).await == 0)
            .await;
        lane.stop_and_check(sent, &probe).await;
    }
    // Said of an ack that crosses sessions, which settles another message or closes the channel.
    assert!(!node.log().contains("unknown delivery tag"), "{}", node.log());
    let counted: Vec<String> = Fault::ALL
        .into_iter()
        .map(|fault| format!("{fault:?} {}", order.iter().filter(|happened| **happened == fault).count()))
        .collect();
    println!(
        "RabbitMQ {version}: {}; {sent} messages to each of 4 queues: none lost, none doubled",
        counted.join(", ")
    );
}

fn count(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |count| count.parse().expect("a number"))
}

/// A worker is back within seconds, unless the whole machine stands still.
const PATIENCE: Duration = Duration::from_secs(240);

/// More is done than now, by every worker, and none has ended.
async fn goes_on(when: &str, lanes: &mut [Lane]) {
    for lane in lanes {
        let more = lane.done() + 10;
        let what = format!("{} goes on {when}", lane.queue());
        until(&what, PATIENCE, async || {
            assert!(lane.is_running(), "{what}: the worker has ended");
            tokio::time::sleep(Duration::from_millis(50)).await;
            lane.done() >= more
        })
        .await;
    }
}
