//! Whoever is told how the workers are: who asks over HTTP, a supervisor, and whoever reads the log or sits at the
//! terminal.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::super::observed::{self, Observed, Telling};
use crate::{
    broker::{Endpoint, Outlet},
    cli::Failure,
    config::ListenConfig,
    ledger::sqlite::SqliteLedger,
    listen::{Access, Listener, Listening, Watched},
    notify::{Notifying, Supervisor, Told},
    worker::{Policy, Stop, outcome::Counts, signs::Signs},
};

/// From the drain timeout to the end: handlers are stopped, then sessions and children closed.
const DRAIN_REST: Duration = Duration::from_secs(30);

/// The listener's socket, and who may ask what there: taken before anything else is begun.
pub(super) struct Door {
    listener: Listener,
    access: Access,
}

impl Door {
    /// # Errors
    ///
    /// The token's file says no token, or the address cannot be had.
    pub(super) fn open(config: &ListenConfig) -> Result<Self, Failure> {
        let access = Access::new(config.hosts.clone(), config.token_file.as_deref());
        let access = access.map_err(Failure::usage)?;
        let listener = Listener::bind(config.address).map_err(Failure::failed)?;
        Ok(Self { listener, access })
    }
}

/// See the module; told nothing yet.
pub(super) struct Onlookers {
    http: Option<(Listener, Watched)>,
    supervisor: Option<Supervisor>,
    told: Vec<Told>,
    observed: Vec<Observed>,
}

impl Onlookers {
    pub(super) fn new(door: Option<Door>, ledger: &SqliteLedger, endpoints: &[Endpoint]) -> Self {
        let http = door.map(|Door { listener, access }| {
            let watched = Watched::new(Arc::new(ledger.reader()), endpoints.to_vec(), access);
            let commits = watched.commits();
            ledger.watch_commits(move |commit| commits.add(commit.messages, commit.took));
            (listener, watched)
        });
        let supervisor = Supervisor::of_this_process();
        Self { http, supervisor, told: Vec::new(), observed: Vec::new() }
    }

    /// Adds a worker, which is to write the returned signs.
    pub(super) fn add(
        &mut self,
        policy: &Arc<Policy>,
        counts: watch::Receiver<Counts>,
        outlet: Arc<Outlet>,
    ) -> Arc<Signs> {
        let signs = match &mut self.http {
            Some((_, watched)) => watched.worker(policy, counts.clone(), outlet),
            // Its watchdog is about loops that turn.
            None if self.supervisor.is_some() => Arc::new(Signs::new(|_, _| {})),
            None => Arc::new(Signs::untimed()),
        };
        self.told.push(Told { queue: policy.queue.clone(), signs: signs.clone() });
        self.observed.push(Observed::new(policy.queue.clone(), counts, signs.clone()));
        signs
    }

    /// Tells them from now on: that all is set up, how the workers are, and while the configuration is read again.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub(super) fn tell(
        self,
        stop: &watch::Sender<Stop>,
        reloading: watch::Receiver<bool>,
        drain_timeout: Duration,
    ) -> Result<ToldAll, Failure> {
        let listening = self.http.map(|(listener, watched)| listener.start(watched));
        let limit = drain_timeout + DRAIN_REST;
        let start = |supervisor: Supervisor| supervisor.start(self.told, stop.subscribe(), reloading, limit);
        let notifying = self.supervisor.map(start);
        Ok(ToldAll {
            _listening: listening.transpose().map_err(Failure::failed)?,
            _notifying: notifying.transpose().map_err(Failure::failed)?,
            telling: observed::tell(self.observed),
        })
    }
}

/// They are told until this ends.
pub(super) struct ToldAll {
    _listening: Option<Listening>,
    _notifying: Option<Notifying>,
    telling: Telling,
}

impl ToldAll {
    pub(super) async fn end(self) {
        self.telling.end().await;
    }
}
