//! What happens to the broker, and to the way there.

use std::time::Duration;

use super::{lane::Lane, load::Load};
use crate::harness::{Node, Path, Way, World};

/// Each leaves everything as it was, but for what it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed,
    ConnectionsClosed,
    Frozen,
    QueuesDeleted,
    PathCut,
    PathSilent,
    PathSlow,
    MemoryAlarm,
    Restarted,
}

/// Three heartbeats of 2 s: both sides have noticed.
const LONG: Duration = Duration::from_secs(6);
const SHORT: Duration = Duration::from_secs(2);

impl Fault {
    /// In this order no queue is killed within two seconds of being made: RabbitMQ forgets such a quorum queue.
    pub const ALL: [Self; 9] = [
        Self::Killed,
        Self::ConnectionsClosed,
        Self::Frozen,
        Self::QueuesDeleted,
        Self::PathCut,
        Self::PathSilent,
        Self::PathSlow,
        Self::MemoryAlarm,
        Self::Restarted,
    ];

    pub const RESTARTS: [Self; 2] = [Self::Killed, Self::Restarted];

    /// Returns when it is over, though not its consequences. The pauses are the faults themselves.
    pub async fn happen(self, node: &Node, path: &Path, lanes: &[Lane], load: &Load) {
        match self {
            Self::Killed => {
                node.kill();
                node.start();
            }
            Self::Restarted => {
                node.stop();
                node.start();
            }
            Self::Frozen => {
                node.freeze();
                tokio::time::sleep(LONG).await;
                node.thaw();
            }
            Self::ConnectionsClosed => {
                node.ctl(&["close_all_connections", "test"]);
            }
            Self::MemoryAlarm => {
                node.ctl(&["set_vm_memory_high_watermark", "0.0001"]);
                tokio::time::sleep(SHORT).await;
                node.ctl(&["set_vm_memory_high_watermark", "0.4"]);
            }
            Self::QueuesDeleted => delete_queues(node, lanes, load).await,
            Self::PathCut => path.cut(),
            Self::PathSilent => {
                path.set(Way::Silent);
                tokio::time::sleep(LONG).await;
                path.set(Way::Open);
            }
            Self::PathSlow => {
                path.set(Way::Slow(Duration::from_millis(300)));
                tokio::time::sleep(SHORT * 2).await;
                path.set(Way::Open);
            }
        }
    }
}

/// What lay in them is gone; the ledger tells which it was, and it is sent again, as an operator would do.
async fn delete_queues(node: &Node, lanes: &[Lane], load: &Load) {
    let operator = World::at(&node.url, "operator").await;
    let sessions: Vec<usize> = lanes.iter().map(Lane::sessions).collect();
    for lane in lanes {
        operator.delete(lane.queue()).await;
    }
    for (lane, before) in lanes.iter().zip(sessions) {
        lane.until_more_sessions(before).await;
        for number in lane.not_done(load.confirmed()) {
            let id = number.to_string();
            let properties = lapin::BasicProperties::default().with_message_id(id.as_str().into());
            crate::harness::publish(&operator.channel, "", lane.queue(), b"1", properties).await;
        }
    }
}
