//! A status page, health, readiness and metrics over HTTP: for supervisors, dashboards, and people at night.
//!
//! - `server`: the socket and its bounds; `answer`: what is served where.
//! - `page`: the status page's files; `api`: what it asks for; `access`: who may see it and act through it;
//!   `refusal`: why not.
//! - `state`: from what the workers show to sentences.
//! - `times`: how long things took; `metrics`: all of it as Prometheus's text.
//! - `figures`: what is told of the whole ledger; `sparing`: read at most so often.
//! - `history`: the last hour, in memory; `letters`: dead letters, on demand.
//!
//! It has a thread and a runtime of its own. So it answers while a worker is stuck, and whoever asks, however
//! often, takes nothing from the workers.

mod access;
mod answer;
mod api;
mod figures;
mod history;
mod letters;
mod metrics;
mod page;
mod refusal;
mod server;
mod sparing;
mod state;
mod times;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
};

use tokio::sync::{oneshot, watch};
use tracing::info;

use crate::{
    broker::{Endpoint, Outlet},
    ledger::{Inspect, Row, Stats},
    worker::{Policy, outcome::Counts, signs::Signs},
};

pub use self::{access::Access, times::Commits};
use self::{history::History, letters::Letters, sparing::Sparing, times::Times};

/// A socket that is bound, and answers nobody yet.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// # Errors
    ///
    /// One sentence: the address is in use, or not ours to open.
    pub fn bind(address: SocketAddr) -> Result<Self, String> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let local = listener.local_addr()?;
            Ok::<_, std::io::Error>((listener, local))
        };
        let (listener, local) = bind().map_err(|error| {
            format!("cannot listen on {address} ({error}): stop whatever does, or give another address with --listen")
        })?;
        info!("listening on http://{local}");
        Ok(Self(listener))
    }

    /// Where it is bound: the port that was found, if any was asked for.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn start(self, mut watched: Watched) -> Result<Listening, String> {
        let address = self.address().map_err(|error| format!("cannot tell where it listens: {error}"))?;
        watched.access.listens_at(address.ip());
        let (stop, stopped) = oneshot::channel();
        let run = move || server::run(self.0, Arc::new(watched), stopped);
        let thread = thread::Builder::new().name("listen".to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start the listener's thread: {error}"))?;
        Ok(Listening { stop: Some(stop), thread: Some(thread) })
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Listening {
    /// Its end is the sign to stop.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Everything that is told about.
pub struct Watched {
    workers: Vec<WatchedWorker>,
    ledger: Arc<dyn Inspect>,
    figures: Sparing<Stats>,
    failures: Sparing<Vec<Row>>,
    history: History,
    letters: Letters,
    access: Access,
    times: Times,
    commits: Commits,
}

struct WatchedWorker {
    queue: Arc<str>,
    scope: Arc<str>,
    signs: Arc<Signs>,
    counts: watch::Receiver<Counts>,
    outlet: Arc<Outlet>,
}

impl Watched {
    /// No worker yet. `endpoints`: where the workers' dead letters are.
    pub fn new(ledger: Arc<dyn Inspect>, endpoints: Vec<Endpoint>, access: Access) -> Self {
        Self {
            workers: Vec::new(),
            figures: figures::stats(ledger.clone()),
            failures: figures::failures(ledger.clone()),
            history: History::default(),
            letters: Letters::new(endpoints, ledger.clone()),
            ledger,
            access,
            times: Times::default(),
            commits: Commits::default(),
        }
    }

    /// What the ledger's commits are added to.
    pub fn commits(&self) -> Commits {
        self.commits.clone()
    }

    /// Adds a worker, which is to write the returned signs.
    pub fn worker(
        &mut self,
        policy: &Policy,
        counts: watch::Receiver<Counts>,
        outlet: Arc<Outlet>,
    ) -> Arc<Signs> {
        let (queue, scope) = (policy.queue.clone(), policy.scope.clone());
        let times = self.times.of(&queue);
        let signs = Arc::new(Signs::new(move |step, took| times.add(step, took)));
        self.workers.push(WatchedWorker { queue, scope, signs: signs.clone(), counts, outlet });
        signs
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
