//! When which worker is killed, and when the connections are cut.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    cli::{Failure, progress::Bar},
    ledger::sqlite::SqliteReader,
};

use super::{POLL, TortureArgs, crew::Crew, path::Path};

/// Between the moment's coming and the blow, at most: so that it is not always the start of a batch.
const DELAY_MAX_US: u64 = 20_000;

/// The messages are sent in as many shares as there are faults, plus one. Each fault comes at a random moment
/// in which its share is being worked on.
pub(super) struct Faults {
    order: Vec<Fault>,
    share: u32,
    random: fastrand::Rng,
    allowed: watch::Sender<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Cut,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Happened {
    pub(super) kills: u32,
    pub(super) cuts: u32,
    /// Faults at whose moment messages of the share were not yet claimed.
    pub(super) amid_work: u32,
}

impl Faults {
    pub(super) fn new(args: &TortureArgs, seed: u64) -> Self {
        // Another stream of numbers than the sender's.
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(1));
        let kills = std::iter::repeat_n(Fault::Kill, args.kills as usize);
        let mut order: Vec<Fault> =
            kills.chain(std::iter::repeat_n(Fault::Cut, args.cuts as usize)).collect();
        random.shuffle(&mut order);
        let shares = u32::try_from(order.len()).unwrap_or(u32::MAX).saturating_add(1);
        let share = args.messages.div_ceil(shares);
        Self { order, share, random, allowed: watch::Sender::new(share) }
    }

    /// So many messages may be sent so far.
    pub(super) fn allowed(&self) -> watch::Receiver<u32> {
        self.allowed.subscribe()
    }

    /// # Errors
    ///
    /// A worker that has ended by itself, a ledger that cannot be read, and progress that does not come.
    pub(super) async fn meddle(
        mut self,
        args: &TortureArgs,
        reader: &SqliteReader,
        crew: &mut Crew,
        path: Option<&Path>,
        bar: &mut Bar,
    ) -> Result<Happened, Failure> {
        let mut happened = Happened::default();
        for (index, fault) in std::mem::take(&mut self.order).into_iter().enumerate() {
            let before = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(self.share);
            let end = before.saturating_add(self.share).min(args.messages);
            // Fewer messages than faults: the last ones come when nothing is left.
            let moment = if before < end { self.random.u32(before..end) } else { end };
            wait_until_claimed(moment, args, reader, crew, bar).await?;
            sleep(Duration::from_micros(self.random.u64(..=DELAY_MAX_US))).await;
            let claimed = reader.claimed().map_err(Failure::failed)?;
            happened.amid_work += u32::from(claimed < u64::from(end));
            match (fault, path) {
                (Fault::Cut, Some(path)) => {
                    path.cut();
                    happened.cuts += 1;
                }
                (Fault::Cut, None) => {}
                (Fault::Kill, _) => {
                    crew.kill_and_start(self.random.usize(..crew.len())).await?;
                    happened.kills += 1;
                }
            }
            self.allowed.send_replace(end.saturating_add(self.share));
        }
        self.allowed.send_replace(args.messages);
        Ok(happened)
    }
}

async fn wait_until_claimed(
    count: u32,
    args: &TortureArgs,
    reader: &SqliteReader,
    crew: &mut Crew,
    bar: &mut Bar,
) -> Result<(), Failure> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        crew.check()?;
        let claimed = reader.claimed().map_err(Failure::failed)?;
        bar.step(claimed);
        if claimed >= u64::from(count) {
            return Ok(());
        }
        if claimed != last {
            (last, moved) = (claimed, Instant::now());
        }
        if moved.elapsed() > args.patience {
            let patience = humantime::format_duration(args.patience);
            return Err(Failure::failed(format!(
                "no new message was taken for {patience}: {claimed} of {} so far",
                args.messages
            )));
        }
        sleep(POLL).await;
    }
}
