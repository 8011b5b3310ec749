//! Carries the state machine's commands out and feeds back what came of them.

mod commands;
mod copies;
mod link;

use std::time::Duration;

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use tokio::{
    select,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use crate::{
    broker::{BrokerError, Session},
    crash_point::{CrashPoint, reach},
    handler::Verdict,
    ledger::Owner,
    message::{Delivery, SessionId},
};

use self::commands::returned;
use super::{
    core::{Core, Event, GroupId},
    outage::Outage,
    outcome::Counts,
    run::{Stop, Worker, WorkerError},
    signs::{Step, Stopwatch},
};

/// From the drain deadline, when handlers are told to stop, to giving up on them.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// How long a loop that has nothing to do sleeps, if somebody wants to see that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Driver {
    pub(super) worker: Worker,
    owner: Owner,
    core: Core,
    session: Option<Session>,
    sessions: SessionId,
    opened: Option<Instant>,
    connecting: OptionFuture<BoxFuture<'static, Result<Session, BrokerError>>>,
    ever_connected: bool,
    broker: Outage,
    /// Claims, finishes, copies, probes, and runs that do no waiting.
    work: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Runs that do no waiting, called and not polled yet.
    brief: Vec<BoxFuture<'static, Event>>,
    /// All other runs: a task each.
    runs: JoinSet<(GroupId, Verdict)>,
    stop_runs: watch::Sender<bool>,
    /// When handlers are told to stop, once draining.
    deadline: Option<Instant>,
}

impl Driver {
    pub(super) fn new(worker: Worker, owner: Owner) -> Self {
        let policy = worker.policy.clone();
        let mut driver = Self {
            core: worker.handler.core(policy),
            worker,
            owner,
            session: None,
            sessions: 0,
            opened: None,
            connecting: None.into(),
            ever_connected: false,
            broker: Outage::new(Duration::from_millis(200), Duration::from_secs(5)),
            work: FuturesUnordered::new(),
            brief: Vec::new(),
            runs: JoinSet::new(),
            stop_runs: watch::channel(false).0,
            deadline: None,
        };
        driver.connect(Duration::ZERO);
        driver
    }

    /// The loop: each turn waits for one thing, takes in all that is ready, and carries out what follows.
    pub(super) async fn turn(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), WorkerError> {
        loop {
            self.carry_out_all()?;
            let counts = self.core.counts();
            self.worker.counts.send_if_modified(|told| std::mem::replace(told, counts) != counts);
            self.show();
            if self.core.is_drained() {
                return Ok(());
            }
            let wake = self.core.next_wake();
            let deadline = self.deadline;
            let timed = self.worker.signs.as_ref().filter(|signs| signs.is_timed());
            let beat = timed.map(|_| Instant::now() + BEAT);
            select! {
                biased;
                asked = stop.wait_for(|stop| *stop != if deadline.is_some() { Stop::Drain } else { Stop::No }) => {
                    // Whoever asks is gone: that is a stop too.
                    let asked = asked.map_or(Stop::Now, |asked| *asked);
                    self.stop(asked)?;
                }
                () = until(deadline) => {
                    if !self.stop_overdue() {
                        return Ok(());
                    }
                }
                Some(event) = self.work.next() => self.take(event),
                Some(ran) = self.runs.join_next() => self.take_run(ran),
                received = link::receive(&mut self.session), if self.core.has_use_for_deliveries() => {
                    self.take_received(received);
                }
                Some(opened) = &mut self.connecting => self.session_opened(opened)?,
                () = until(wake) => self.take(Event::Wake),
                () = until(beat) => {}
            }
            while let Some(Some(event)) = self.work.next().now_or_never() {
                self.take(event);
            }
            while let Some(ran) = self.runs.try_join_next() {
                self.take_run(ran);
            }
            // The batch that follows takes along all that has come while the one before was written.
            if self.core.has_use_for_deliveries()
                && let Some(received) = link::receive(&mut self.session).now_or_never()
            {
                self.take_received(received);
            }
        }
    }

    fn show(&self) {
        if let Some(signs) = &self.worker.signs {
            signs.turned(&self.core);
        }
    }

    fn stopwatch(&self, step: Step) -> Stopwatch {
        Stopwatch::start(self.worker.signs.as_ref(), step)
    }

    pub(super) fn take(&mut self, event: Event) {
        self.core.handle(event, Instant::now());
    }

    pub(super) fn counts(&self) -> Counts {
        self.core.counts()
    }

    fn take_received(&mut self, received: Result<Vec<Delivery>, BrokerError>) {
        match received {
            Ok(deliveries) => {
                reach(CrashPoint::Delivered);
                self.take(Event::Delivered(deliveries));
            }
            Err(why) => self.session_ended(&why),
        }
    }

    fn take_run(&mut self, ran: Result<(GroupId, Verdict), tokio::task::JoinError>) {
        // A run catches its handler's panic, and nobody aborts runs, so there is always a result.
        if let Ok((group, verdict)) = ran {
            self.take(returned(group, verdict));
        }
    }

    fn stop(&mut self, asked: Stop) -> Result<(), WorkerError> {
        if asked == Stop::Now {
            return Err(WorkerError::StoppedAtOnce { running: self.runs.len() });
        }
        info!(
            queue = &*self.worker.policy.queue,
            running = self.runs.len(),
            "stopping: no new message starts"
        );
        self.deadline = Some(Instant::now() + self.worker.drain_timeout);
        self.connecting = None.into();
        if let Some(session) = &mut self.session {
            session.stop_consuming();
        }
        self.take(Event::Drain);
        Ok(())
    }

    /// The drain deadline has passed. Handlers are told to stop; `false` when they were told before.
    fn stop_overdue(&mut self) -> bool {
        let queue = &*self.worker.policy.queue;
        if self.stop_runs.send_replace(true) {
            warn!(queue, "gave up waiting; what is not settled goes back to the queue");
            return false;
        }
        self.worker.handler.stop();
        if !self.runs.is_empty() {
            warn!(
                queue,
                running = self.runs.len(),
                "the drain timeout has passed: stopping the running handlers"
            );
        }
        self.deadline = Some(Instant::now() + STOP_GRACE);
        true
    }

    pub(super) async fn close(&mut self) {
        self.runs.shutdown().await;
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
