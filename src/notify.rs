//! What a supervisor such as systemd is told (`sd_notify(3)`): ready, how things are, stopping, and that it is alive.
//!
//! - `socket`: where it is told; `status`: how things are, in words.
//!
//! Ready means set up: the configuration is right, the ledger open, every handler found. It does not wait for a
//! broker, because a worker works on its own at getting one, for ever; a supervisor that gave up on it meanwhile
//! would make nothing better, and what depends on the unit would wait as long. The status says what it waits for.
//!
//! The watchdog is fed only while every worker's loop turns, from a thread of its own: so a stuck loop ends in a
//! restart, and one that merely waits (for a broker, a ledger, a slow command) does not.

mod socket;
mod status;

use std::{
    env,
    ffi::OsStr,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{
    runtime, select,
    sync::{oneshot, watch},
    time::{Instant, Interval, MissedTickBehavior, interval},
};
use tracing::{error, warn};

use crate::worker::{
    Stop,
    signs::{Shown, Signs},
};

use self::{socket::Socket, status::Clock};

/// How often is looked at how things are.
const LOOK: Duration = Duration::from_secs(1);
/// While it drains, so much more time is asked for at each look: enough to live through a busy machine.
const EXTENSION_USEC: u32 = 15_000_000;

/// The supervisor's end of this process, not told anything yet.
#[derive(Debug)]
pub struct Supervisor {
    socket: Socket,
    /// How long it waits for a sign of life.
    watchdog: Option<Duration>,
}

/// One worker that it is told about.
#[derive(Clone, Debug)]
pub struct Told {
    pub queue: Arc<str>,
    pub signs: Arc<Signs>,
}

impl Supervisor {
    /// The one that `NOTIFY_SOCKET` names. `None` if there is none; or one that cannot be told anything, which is
    /// logged.
    pub fn of_this_process() -> Option<Self> {
        let address = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        let found = Self::at(&address, sd_notify::watchdog_enabled());
        found
            .inspect_err(|why| {
                warn!("NOTIFY_SOCKET cannot be used, so the supervisor is told nothing: {why}")
            })
            .ok()
    }

    /// One that listens at `address`, a path or `@NAME`, and waits for a sign of life for as long as `watchdog`.
    ///
    /// # Errors
    ///
    /// No such socket can be, or be had.
    pub fn at(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        Ok(Self { socket: Socket::to(address)?, watchdog })
    }

    /// Says that we are ready, and then what changes, until the returned value is dropped.
    ///
    /// Once a stop is asked for it says so, and asks for more time as long as the drain may last: `drain_limit`. It
    /// says as well when `reloading` turns true, and when it is false again.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn start(
        self,
        workers: Vec<Told>,
        stop: watch::Receiver<Stop>,
        reloading: watch::Receiver<bool>,
        drain_limit: Duration,
    ) -> Result<Notifying, String> {
        let (end, ended) = oneshot::channel();
        let notifier =
            Notifier { supervisor: self, workers, clock: Clock::now(), status: String::new(), heard: true };
        let run = move || notifier.run(stop, reloading, drain_limit, ended);
        let thread = thread::Builder::new().name("notify".to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start the supervisor's thread: {error}"))?;
        Ok(Notifying { end: Some(end), thread: Some(thread) })
    }
}

/// Tells the supervisor until it is dropped.
#[derive(Debug)]
pub struct Notifying {
    /// Its end is the sign to stop.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Notifying {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

struct Notifier {
    supervisor: Supervisor,
    workers: Vec<Told>,
    clock: Clock,
    /// As it was told last.
    status: String,
    /// The last word reached it.
    heard: bool,
}

impl Notifier {
    fn run(
        mut self,
        stop: watch::Receiver<Stop>,
        reloading: watch::Receiver<bool>,
        drain_limit: Duration,
        ended: oneshot::Receiver<()>,
    ) {
        let runtime = match runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime,
            Err(cause) => return error!("the supervisor is told nothing: no runtime can be had: {cause}"),
        };
        runtime.block_on(async {
            select! {
                _ = ended => {}
                () = self.tell(stop, reloading, drain_limit) => {}
            }
        });
    }

    async fn tell(
        &mut self,
        mut stop: watch::Receiver<Stop>,
        mut reloading: watch::Receiver<bool>,
        drain_limit: Duration,
    ) {
        self.say(&NotifyState::Ready);
        let mut look = every(LOOK);
        // At half the time that the supervisor waits.
        let mut beat = self.supervisor.watchdog.map(|limit| every(limit / 2));
        let mut stopping: Option<Instant> = None;
        let mut reload_is_told = false;
        loop {
            select! {
                _ = stop.wait_for(|stop| *stop != Stop::No), if stopping.is_none() => {
                    stopping = Some(Instant::now());
                    self.say(&NotifyState::Stopping);
                    self.look(stopping, drain_limit);
                }
                Ok(()) = reloading.changed() => {
                    let goes_on = *reloading.borrow_and_update();
                    // It may be over by now.
                    if !reload_is_told {
                        self.say_reloading();
                    }
                    if !goes_on {
                        self.say(&NotifyState::Ready);
                    }
                    reload_is_told = goes_on;
                }
                _ = look.tick() => self.look(stopping, drain_limit),
                () = next(&mut beat) => self.beat(Instant::now()),
            }
        }
    }

    fn look(&mut self, stopping: Option<Instant>, drain_limit: Duration) {
        let now = Instant::now();
        let status = status::of(&self.workers, now, &self.clock);
        if status != self.status {
            self.say(&NotifyState::Status(&status));
            if self.heard {
                self.status = status;
            }
        }
        // Not before it knows that we stop: another limit would be extended.
        if stopping.is_some_and(|since| now.saturating_duration_since(since) < drain_limit) {
            self.say(&NotifyState::ExtendTimeoutUsec(EXTENSION_USEC));
        }
    }

    fn beat(&mut self, now: Instant) {
        // One that shows no turns at all is not known to be alive.
        let turns = |shown: &Shown| shown.ended || shown.turned.is_some() && shown.stuck(now).is_none();
        if self.workers.iter().all(|worker| turns(&worker.signs.shown())) {
            self.say(&NotifyState::Watchdog);
        }
    }

    /// The time tells one reload from another.
    fn say_reloading(&mut self) {
        let time =
            NotifyState::monotonic_usec_now().map_or_else(|_| String::new(), |time| format!("{time}\n"));
        self.send(&format!("{}\n{time}", NotifyState::Reloading));
    }

    fn say(&mut self, state: &NotifyState<'_>) {
        self.send(&format!("{state}\n"));
    }

    fn send(&mut self, text: &str) {
        let said = self.supervisor.socket.send(text);
        // Once, until it is heard again.
        if let (Err(why), true) = (&said, self.heard) {
            warn!("the supervisor cannot be told anything: {why}");
        }
        self.heard = said.is_ok();
    }
}

fn every(period: Duration) -> Interval {
    // Zero is no period.
    let mut interval = interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn next(beat: &mut Option<Interval>) {
    match beat {
        Some(beat) => {
            beat.tick().await;
        }
        None => std::future::pending().await,
    }
}
