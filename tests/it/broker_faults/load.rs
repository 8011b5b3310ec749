//! Numbered messages to all queues, for as long as a test runs: each is sent until the broker has confirmed it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

/// Between two numbers: a load that leaves the machine room for the faults.
const PACE: Duration = Duration::from_millis(100);
/// For a broker that may be frozen, or whose alarm blocks us.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Load {
    confirmed: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    sending: JoinHandle<()>,
}

impl Load {
    pub fn start(broker: &str, queues: Vec<String>) -> Self {
        let (confirmed, stop) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(false));
        let sending =
            tokio::spawn(send(format!("{broker}?heartbeat=2"), queues, confirmed.clone(), stop.subscribe()));
        Self { confirmed, stop, sending }
    }

    /// All numbers below this one are confirmed, for each queue.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(SeqCst)
    }

    /// Says how many numbers were sent.
    pub async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        self.sending.await.expect("the load goes on");
        self.confirmed.load(SeqCst)
    }
}

async fn send(broker: String, queues: Vec<String>, confirmed: Arc<AtomicU64>, stop: watch::Receiver<bool>) {
    let mut open: Option<(Connection, Channel)> = None;
    while !*stop.borrow() {
        let number = confirmed.load(SeqCst);
        let Some((_, channel)) = &open else {
            open = timeout(PATIENCE, connect(&broker)).await.ok().flatten();
            tokio::time::sleep(PACE).await;
            continue;
        };
        match timeout(PATIENCE, publish(channel, &queues, number)).await {
            Ok(true) => {
                confirmed.fetch_add(1, SeqCst);
                tokio::time::sleep(PACE).await;
            }
            // Sent again under its id: the broker may have it already.
            Ok(false) | Err(_) => open = None,
        }
    }
}

async fn connect(broker: &str) -> Option<(Connection, Channel)> {
    let connection = Connection::connect(broker, ConnectionProperties::default()).await.ok()?;
    let channel = connection.create_channel().await.ok()?;
    channel.confirm_select(ConfirmSelectOptions::default()).await.ok()?;
    Some((connection, channel))
}

/// Whether every queue has it.
async fn publish(channel: &Channel, queues: &[String], number: u64) -> bool {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties =
        BasicProperties::default().with_message_id(number.to_string().into()).with_delivery_mode(2);
    for queue in queues {
        let sent =
            channel.basic_publish("".into(), queue.as_str().into(), options, b"1", properties.clone()).await;
        let Ok(confirm) = sent else { return false };
        let Ok(confirm) = confirm.await else { return false };
        if !confirm.is_ack() || confirm.take_message().is_some() {
            return false;
        }
    }
    true
}
