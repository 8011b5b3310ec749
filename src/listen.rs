//! Health, readiness and metrics over HTTP: for supervisors, dashboards, and people at night.
//!
//! - `server`: the socket and its bounds; `answer`: what is served where.
//! - `state`: from what the workers show to sentences.
//! - `times`: how long things took; `metrics`: all of it as Prometheus's text.
//! - `figures`: numbers over the whole ledger, read at most so often.
//!
//! It has a thread and a runtime of its own. So it answers while a worker is stuck, and whoever asks, however
//! often, takes nothing from the workers.

mod answer;
mod figures;
mod metrics;
mod server;
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
    broker::Outlet,
    ledger::Inspect,
    worker::{outcome::Counts, signs::Signs},
};

use self::{figures::Figures, times::Times};
pub use self::{state::hindrances, times::Commits};

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
    pub fn start(self, watched: Watched) -> Result<Listening, String> {
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
    figures: Figures,
    times: Times,
    commits: Commits,
}

struct WatchedWorker {
    queue: Arc<str>,
    signs: Arc<Signs>,
    counts: watch::Receiver<Counts>,
    outlet: Arc<Outlet>,
}

impl Watched {
    /// No worker yet.
    pub fn new(ledger: Arc<dyn Inspect>) -> Self {
        Self {
            workers: Vec::new(),
            figures: Figures::new(ledger),
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
        queue: Arc<str>,
        counts: watch::Receiver<Counts>,
        outlet: Arc<Outlet>,
    ) -> Arc<Signs> {
        let times = self.times.of(&queue);
        let signs = Arc::new(Signs::new(move |step, took| times.add(step, took)));
        self.workers.push(WatchedWorker { queue, signs: signs.clone(), counts, outlet });
        signs
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
