//! Builds what a configuration names, and runs it until a signal or until nothing can help.

mod handlers;
mod ledger;
mod onlookers;
mod sql;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tracing::{error, info, warn};

use crate::{
    broker::{Endpoint, Outlet, Publisher, Rejects, Source},
    cli::Failure,
    config::{BrokerConfig, BrokerUrl, Config, WorkerConfig},
    ledger::{Ledger, prune::Pruner},
    telemetry::Telemetry,
    worker::{Handling, Stop, Worker, WorkerError, outcome::Counts, policy::DeadLetter},
};

pub(in crate::cli) use self::handlers::{check, probe};
use self::onlookers::{Door, Onlookers};
use super::{
    RunArgs,
    reload::{self, Hangups},
};

/// For the last spans, after everything else.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Unconfirmed copies at the same time.
const PUBLISH_WINDOW: usize = 100;

/// Runs all workers of a configuration on one ledger. At a SIGHUP the configuration is read again as `args` say.
///
/// # Errors
///
/// With code 2 what is wrong with the configuration, found before anything is consumed; with code 1
/// what ended a worker. The other workers are drained then.
pub(super) async fn serve(config: Config, args: RunArgs) -> Result<(), Failure> {
    let hangups = Hangups::catch()?;
    let (endpoints, password) = reload::sharing_password(endpoints(&config.broker)?, &config.broker);
    let door = config.listen.as_ref().map(Door::open).transpose()?;
    let prepared = handlers::prepare(&config.workers).await?;
    let stop = stop_on_signals()?;
    let (reload, reloading) = watch::channel(false);
    tokio::spawn(hangups.answer(args, password, stop.clone(), reload));
    let ledger = Arc::new(ledger::open(&config.ledger).await?);
    let handlers = handlers::within(&ledger, prepared).await?;
    let telemetry = Telemetry::from_env();
    let mut onlookers = Onlookers::new(door, &ledger, &endpoints);
    let ledger: Arc<dyn Ledger> = ledger;

    let mut workers = JoinSet::new();
    for (worker_config, handler) in config.workers.iter().zip(&handlers) {
        let policy = Arc::new(worker_config.policy.clone());
        info!(queue = &*policy.queue, "{}", handler.guarantee());
        let source = source(worker_config, &endpoints);
        let publisher =
            Publisher::new(endpoints.clone(), format!("publisher for {}", policy.queue), PUBLISH_WINDOW);
        let outlet = Arc::new(Outlet::new(publisher, worker_config.declare, worker_config.queue_type));
        let counts = watch::Sender::default();
        let signs = onlookers.add(&policy, counts.subscribe(), outlet.clone());
        let queue = policy.queue.clone();
        let worker = Worker {
            handler: telemetry.traced(&queue, handler.clone()),
            policy,
            ledger: ledger.clone(),
            source: Arc::new(source),
            outlet,
            drain_timeout: config.drain_timeout,
            counts,
            signs: Some(signs),
        };
        let stop = stop.subscribe();
        workers.spawn(async move { (queue, worker.run(stop).await) });
    }
    // Until all workers have ended.
    let told = onlookers.tell(&stop, reloading, config.drain_timeout)?;
    // Ends with its sender.
    let (_pruning, stop_pruning) = watch::channel(false);
    tokio::spawn(Pruner::new(ledger, config.ledger.retention).run(stop_pruning));
    let result = wait_for_all(workers, &stop).await;
    close(&handlers, &stop).await;
    told.end().await;
    let at_once = *stop.borrow() == Stop::Now;
    telemetry.flush(if at_once { Duration::ZERO } else { FLUSH_LIMIT }).await;
    result
}

/// Where a worker's deliveries come from.
fn source(worker: &WorkerConfig, endpoints: &[Endpoint]) -> Source {
    let policy = &worker.policy;
    Source {
        endpoints: endpoints.to_vec(),
        queue: policy.queue.to_string(),
        declare: worker.declare,
        queue_type: worker.queue_type,
        prefetch: policy.prefetch,
        rejects: (policy.dead_letter == DeadLetter::Reject)
            .then(|| Rejects { exchange: worker.dead_letter_exchange.clone() }),
    }
}

/// Ends what the handlers keep running: gently, unless the end is to come at once.
async fn close(handlers: &[Handling], stop: &watch::Sender<Stop>) {
    let mut asked = stop.subscribe();
    tokio::select! {
        biased;
        _ = asked.wait_for(|stop| *stop == Stop::Now) => {}
        _ = join_all(handlers.iter().map(|handler| handler.close(false))) => {}
    }
    join_all(handlers.iter().map(|handler| handler.close(true))).await;
}

/// Waits for every worker. One that ends by itself takes the others with it: a service that does
/// half of its work looks healthy and is not.
async fn wait_for_all(
    mut workers: JoinSet<(Arc<str>, Result<Counts, WorkerError>)>,
    stop: &Arc<watch::Sender<Stop>>,
) -> Result<(), Failure> {
    let mut failure = None;
    while let Some(ended) = workers.join_next().await {
        let (queue, result) = ended.map_err(|panic| Failure::failed(format!("a worker ended: {panic}")))?;
        match result {
            Ok(counts) => info!(
                queue = &*queue,
                handled = counts.handled,
                duplicates = counts.duplicates,
                retried = counts.retried,
                dead_lettered = counts.dead_lettered,
                rejected = counts.rejected,
                returned = counts.returned,
                "stopped"
            ),
            Err(why) => {
                if failure.is_some() {
                    error!(queue = &*queue, "{why}");
                } else {
                    failure = Some(Failure::failed(format!("{queue}: {why}")));
                }
                stop.send_if_modified(|stop| {
                    let first = *stop == Stop::No;
                    if first {
                        *stop = Stop::Drain;
                    }
                    first
                });
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

pub(in crate::cli) fn endpoints(broker: &BrokerConfig) -> Result<Vec<Endpoint>, Failure> {
    let mut endpoints = Vec::new();
    for url in &broker.urls {
        let endpoint = endpoint(broker, url)?;
        for warning in endpoint.warnings() {
            warn!("{warning}");
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// One of the broker's URLs with what was configured beside it.
pub(in crate::cli) fn endpoint(broker: &BrokerConfig, url: &BrokerUrl) -> Result<Endpoint, Failure> {
    let endpoint = Endpoint::parse(url.expose()).map_err(|error| Failure::usage(error.to_string()))?;
    let endpoint = endpoint.with_heartbeat(broker.heartbeat);
    Ok(match &broker.password {
        Some(password) => endpoint.with_password(password.expose()),
        None => endpoint,
    })
}

/// The first SIGTERM (a supervisor's) or SIGINT (a terminal's) asks for a drain, the second for the
/// end at once.
fn stop_on_signals() -> Result<Arc<watch::Sender<Stop>>, Failure> {
    let cannot = |error| Failure::failed(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let stop = Arc::new(watch::Sender::new(Stop::No));
    let sender = stop.clone();
    tokio::spawn(async move {
        for asked in [Stop::Drain, Stop::Now] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_replace(asked);
        }
    });
    Ok(stop)
}
