//! When which worker is killed, and when the connections are cut.

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    cli::{Failure, progress::Bar},
    ledger::sqlite::SqliteReader,
};

use super::{POLL, TortureArgs, crew::Crew, path::Path};

/// The messages are sent in as many shares as there are faults, plus one. The first share shows how long one takes;
/// then each fault comes at a random moment of the shortest time that a share has taken so far. So it meets work
/// nearly always, however fast this machine, the broker and the handler are.
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
    /// Faults at whose moment messages that had been sent, or were being sent, were not yet claimed.
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
        let mut watch = Watch { args, reader, bar };
        // Not counted: how long the workers take to start.
        watch.until_claimed(1, None, crew).await?;
        let begun = Instant::now();
        watch.until_claimed(self.share, None, crew).await?;
        let mut shortest = begun.elapsed();
        let mut end = self.share;
        for fault in std::mem::take(&mut self.order) {
            // With fewer messages than faults, the last ones come when nothing is left.
            let something_left = end < args.messages;
            end = end.saturating_add(self.share).min(args.messages);
            self.allowed.send_replace(end);
            let sent = Instant::now();
            let moment = sent + shortest.mul_f64(self.random.f64());
            if watch.until_claimed(end, Some(moment), crew).await? {
                happened.amid_work += 1;
            } else if something_left {
                shortest = shortest.min(sent.elapsed());
            }
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
            watch.until_claimed(end, None, crew).await?;
        }
        Ok(happened)
    }
}

/// The ledger's progress, as far as anybody waits for it.
struct Watch<'a> {
    args: &'a TortureArgs,
    reader: &'a SqliteReader,
    bar: &'a mut Bar,
}

impl Watch<'_> {
    /// Until so many messages are claimed, or the moment has come: whether some are not yet claimed then.
    async fn until_claimed(
        &mut self,
        count: u32,
        moment: Option<Instant>,
        crew: &mut Crew,
    ) -> Result<bool, Failure> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            crew.check()?;
            let claimed = self.reader.claimed().map_err(Failure::failed)?;
            self.bar.step(claimed);
            if claimed >= u64::from(count) {
                return Ok(false);
            }
            let now = Instant::now();
            if moment.is_some_and(|moment| now >= moment) {
                return Ok(true);
            }
            if claimed != last {
                (last, moved) = (claimed, now);
            }
            if moved.elapsed() > self.args.patience {
                let patience = humantime::format_duration(self.args.patience);
                return Err(Failure::failed(format!(
                    "no new message was taken for {patience}: {claimed} of {} so far",
                    self.args.messages
                )));
            }
            let next = now + POLL;
            sleep_until(moment.map_or(next, |moment| moment.min(next))).await;
        }
    }
}
