//! Settling deliveries: acks coalesced into as few frames as AMQP allows, written in order.

use std::{collections::VecDeque, time::Duration};

use futures::future::try_join_all;
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions},
};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    crash_point::{CrashPoint, reach},
    message::Settlement,
};

use super::{BrokerError, Kind};

/// A frame that cannot be written for so long means that the connection is dead.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Delivery tags with what is to be said about them.
pub(super) type Batch = Vec<(u64, Settlement)>;

/// Writes what it is sent until the sender is gone and all is written.
///
/// # Errors
///
/// The first frame that could not be written. Nothing after it is tried: the session is over, and
/// the broker hands every unsettled delivery over again.
pub(super) async fn settle(
    channel: Channel,
    mut queue: mpsc::UnboundedReceiver<Batch>,
) -> Result<(), BrokerError> {
    let mut unsettled = Unsettled::default();
    while let Some(mut batch) = queue.recv().await {
        while let Ok(more) = queue.try_recv() {
            batch.extend(more);
        }
        reach(CrashPoint::AckWriting);
        // The frames are handed over in order when first polled, and awaited together.
        let writes = unsettled.frames(batch).into_iter().map(|frame| write(&channel, frame));
        match timeout(WRITE_TIMEOUT, try_join_all(writes)).await {
            Ok(result) => result.map(drop).map_err(|error| BrokerError::from_lapin(&error))?,
            Err(_) => return Err(BrokerError::new(Kind::Timeout, "an acknowledgement could not be written")),
        }
        reach(CrashPoint::AckWritten);
    }
    Ok(())
}

async fn write(channel: &Channel, frame: Frame) -> lapin::Result<()> {
    match frame {
        Frame::Ack { tag, multiple } => channel.basic_ack(tag, BasicAckOptions { multiple }).await,
        Frame::Reject { tag } => channel.basic_reject(tag, BasicRejectOptions { requeue: false }).await,
        Frame::Return { tag } => {
            channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true }).await
        }
    }
}

/// One AMQP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Ack {
        tag: u64,
        /// With everything before it that is not settled yet.
        multiple: bool,
    },
    Reject {
        tag: u64,
    },
    Return {
        tag: u64,
    },
}

/// Which tags of this channel are settled. Tags count from 1 without gaps (AMQP 0-9-1, section 1.8.3.14).
#[derive(Debug)]
struct Unsettled {
    /// Everything before this tag is settled.
    first: u64,
    /// Whether `first`, `first + 1`, … is settled, as far as known.
    settled: VecDeque<bool>,
}

impl Default for Unsettled {
    fn default() -> Self {
        Self { first: 1, settled: VecDeque::new() }
    }
}

impl Unsettled {
    /// The frames that settle a batch. Each tag comes once in a channel's life.
    ///
    /// Rejects and returns go first, each by itself. Then all acks up to the first tag that is
    /// still open go as one `ack(multiple)`, and the rest one by one, so that no ack waits.
    fn frames(&mut self, batch: Batch) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut acks = Vec::with_capacity(batch.len());
        for (tag, settlement) in batch {
            match settlement {
                Settlement::Ack => acks.push(tag),
                Settlement::Reject => frames.push(Frame::Reject { tag }),
                Settlement::Return => frames.push(Frame::Return { tag }),
            }
            self.mark(tag);
        }
        while self.settled.front() == Some(&true) {
            self.settled.pop_front();
            self.first += 1;
        }
        acks.sort_unstable();
        let together = acks.partition_point(|tag| *tag < self.first);
        if let Some(last) = acks[..together].last() {
            frames.push(Frame::Ack { tag: *last, multiple: together > 1 });
        }
        frames.extend(acks[together..].iter().map(|tag| Frame::Ack { tag: *tag, multiple: false }));
        frames
    }

    fn mark(&mut self, tag: u64) {
        let index = usize::try_from(tag.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if index >= self.settled.len() {
            self.settled.resize(index + 1, false);
        }
        self.settled[index] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(tag: u64) -> (u64, Settlement) {
        (tag, Settlement::Ack)
    }

    fn single(tag: u64) -> Frame {
        Frame::Ack { tag, multiple: false }
    }

    fn up_to(tag: u64) -> Frame {
        Frame::Ack { tag, multiple: true }
    }

    #[test]
    fn the_finished_prefix_is_one_frame_and_the_rest_single() {
        let mut unsettled = Unsettled::default();
        assert_eq!(unsettled.frames(vec![ack(3), ack(1), ack(2), ack(5)]), [up_to(3), single(5)]);
        assert_eq!(unsettled.frames(vec![ack(4)]), [single(4)]);
        assert_eq!(unsettled.frames(vec![ack(6), ack(7)]), [up_to(7)]);
    }

    #[test]
    fn an_open_delivery_is_never_acked_with_others() {
        let mut unsettled = Unsettled::default();
        assert_eq!(unsettled.frames(vec![ack(2), ack(3)]), [single(2), single(3)]);
        assert_eq!(unsettled.frames(vec![ack(1)]), [single(1)]);
    }

    #[test]
    fn what_was_rejected_or_returned_is_settled_before_acks_pass_over_it() {
        let mut unsettled = Unsettled::default();
        let batch = vec![ack(1), (2, Settlement::Reject), (3, Settlement::Return), ack(4)];
        assert_eq!(unsettled.frames(batch), [Frame::Reject { tag: 2 }, Frame::Return { tag: 3 }, up_to(4)]);
    }

    #[test]
    fn whatever_the_order_each_tag_is_settled_exactly_once() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let count = random.u64(1..60);
            let mut tags: Vec<u64> = (1..=count).collect();
            random.shuffle(&mut tags);
            let mut unsettled = Unsettled::default();
            let mut open: std::collections::BTreeSet<u64> = (1..=count).collect();
            let mut sent = std::collections::BTreeSet::new();
            while !tags.is_empty() {
                let batch: Vec<u64> = tags.drain(..random.usize(1..=tags.len())).collect();
                sent.extend(batch.iter().copied());
                for frame in unsettled.frames(batch.into_iter().map(ack).collect()) {
                    let Frame::Ack { tag, multiple } = frame else { panic!("{frame:?}") };
                    let settled: Vec<u64> =
                        if multiple { open.range(..=tag).copied().collect() } else { vec![tag] };
                    assert!(!settled.is_empty(), "the broker closes the channel for an unknown tag");
                    for tag in settled {
                        assert!(open.remove(&tag) && sent.contains(&tag), "{tag} settled unasked");
                    }
                }
            }
            assert!(open.is_empty());
        }
    }
}
