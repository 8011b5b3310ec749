//! Builds what a configuration names, and runs it until a signal or until nothing can help.

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
    config::{BrokerConfig, BrokerUrl, Config, HandlerConfig, LedgerUrl, WorkerConfig},
    handler::{
        Handler,
        exec::Exec,
        http::{Http, HttpOptions},
        log::Log,
        pipe::{Pipe, PipeOptions},
    },
    ledger::{
        Ledger,
        prune::Pruner,
        sqlite::{SqliteLedger, SqliteOptions},
    },
    listen::{Listener, Watched},
    telemetry::Telemetry,
    worker::{Handling, Stop, Worker, WorkerError, outcome::Counts, policy::DeadLetter, signs::Signs},
};

use super::{
    RunArgs,
    observed::{self, Observed},
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
    let listener = config.listen.map(Listener::bind).transpose().map_err(Failure::failed)?;
    let prepared = handlers(&config.workers).await?;
    let stop = stop_on_signals()?;
    tokio::spawn(hangups.answer(args, password, stop.clone()));
    let LedgerUrl::Sqlite(path) = &config.ledger.url;
    let ledger = Arc::new(open(path.clone()).await?);
    let handlers = within(&ledger, prepared).await?;
    let telemetry = Telemetry::from_env();
    let mut watched = listener.is_some().then(|| watch(&ledger));
    let ledger: Arc<dyn Ledger> = ledger;

    let mut workers = JoinSet::new();
    let mut observed = Vec::new();
    for (worker_config, handler) in config.workers.iter().zip(handlers.iter().cloned()) {
        let policy = Arc::new(worker_config.policy.clone());
        info!(queue = &*policy.queue, "{}", handler.guarantee());
        let source = source(worker_config, endpoints.clone());
        let publisher =
            Publisher::new(endpoints.clone(), format!("publisher for {}", policy.queue), PUBLISH_WINDOW);
        let outlet = Arc::new(Outlet::new(publisher, worker_config.declare, worker_config.queue_type));
        let counts = watch::Sender::default();
        let queue = policy.queue.clone();
        let signs = match &mut watched {
            Some(watched) => watched.worker(queue.clone(), counts.subscribe(), outlet.clone()),
            None => Arc::new(Signs::untimed()),
        };
        observed.push(Observed::new(queue.clone(), counts.subscribe(), signs.clone()));
        let worker = Worker {
            handler: telemetry.traced(&policy.queue, handler),
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
    // Ends when it is dropped: it answers until all workers have ended.
    let _listening = match (listener, watched) {
        (Some(listener), Some(watched)) => Some(listener.start(watched).map_err(Failure::failed)?),
        _ => None,
    };
    // Ends with its sender.
    let (_pruning, stop_pruning) = watch::channel(false);
    tokio::spawn(Pruner::new(ledger, config.ledger.retention).run(stop_pruning));
    let telling = observed::tell(observed);
    let result = wait_for_all(workers, &stop).await;
    close(&handlers, &stop).await;
    telling.end().await;
    let at_once = *stop.borrow() == Stop::Now;
    telemetry.flush(if at_once { Duration::ZERO } else { FLUSH_LIMIT }).await;
    result
}

/// Where a worker's sessions come from.
fn source(worker: &WorkerConfig, endpoints: Vec<Endpoint>) -> Source {
    let policy = &worker.policy;
    Source {
        endpoints,
        queue: policy.queue.to_string(),
        declare: worker.declare,
        queue_type: worker.queue_type,
        prefetch: policy.prefetch,
        rejects: (policy.dead_letter == DeadLetter::Reject)
            .then(|| Rejects { exchange: worker.dead_letter_exchange.clone() }),
    }
}

/// What the listener will tell about the ledger.
fn watch(ledger: &SqliteLedger) -> Watched {
    let watched = Watched::new(Arc::new(ledger.reader()));
    let commits = watched.commits();
    ledger.watch_commits(move |commit| commits.add(commit.messages, commit.took));
    watched
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

async fn open(path: std::path::PathBuf) -> Result<SqliteLedger, Failure> {
    let opening = tokio::task::spawn_blocking(move || SqliteLedger::open(path, SqliteOptions::default()));
    let opened = opening.await.map_err(|panic| Failure::failed(format!("opening the ledger: {panic}")))?;
    opened.map_err(|error| Failure::failed(error.to_string()))
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

/// A handler before the ledger is open.
enum Prepared {
    Claimed(Arc<dyn Handler>),
    Sql(sql::Files),
}

/// All handlers, each known to be set up so that it can start; every one that is not is reported.
async fn handlers(workers: &[WorkerConfig]) -> Result<Vec<Prepared>, Failure> {
    let mut handlers = Vec::new();
    let mut problems = Vec::new();
    for worker in workers {
        let prepared = handler(&worker.handler);
        if let Ok(Prepared::Claimed(handler)) = &prepared {
            problems.extend(handler.check().await.err());
        }
        match prepared {
            Ok(prepared) => handlers.push(prepared),
            Err(why) => problems.push(why),
        }
    }
    if problems.is_empty() { Ok(handlers) } else { Err(Failure::usage(problems.join("; "))) }
}

/// Whether each handler is set up so that it can start.
///
/// # Errors
///
/// As a usage failure, everything that is not.
pub(in crate::cli) async fn check(workers: &[WorkerConfig]) -> Result<(), Failure> {
    handlers(workers).await.map(drop)
}

/// Whether one handler could start now, as far as that can be seen from outside. An SQL file is only read:
/// it takes the ledger to judge its statements.
///
/// # Errors
///
/// One sentence: what is missing and what to do.
pub(in crate::cli) async fn probe(config: &HandlerConfig) -> Result<(), String> {
    match handler(config)? {
        Prepared::Sql(_) => Ok(()),
        Prepared::Claimed(handler) => {
            handler.check().await?;
            handler.probe().await
        }
    }
}

/// The handlers with the ledger they may write through.
async fn within(ledger: &Arc<SqliteLedger>, prepared: Vec<Prepared>) -> Result<Vec<Handling>, Failure> {
    let mut handlers = Vec::new();
    for prepared in prepared {
        handlers.push(match prepared {
            Prepared::Claimed(handler) => Handling::Claimed(handler),
            Prepared::Sql(files) => Handling::Transactional(Arc::new(files.effects(ledger.clone()).await?)),
        });
    }
    Ok(handlers)
}

fn handler(config: &HandlerConfig) -> Result<Prepared, String> {
    let handler: Arc<dyn Handler> = match config {
        HandlerConfig::Log => Arc::new(Log::new(observed::stdout())),
        HandlerConfig::Sql(sql) => return Ok(Prepared::Sql(sql::Files::read(sql)?)),
        HandlerConfig::Exec(exec) => {
            let command: Vec<String> = std::iter::once(&exec.program).chain(&exec.args).cloned().collect();
            Arc::new(Exec::new(&command, exec.timeout, exec.kill_grace, exec.exit_codes))
        }
        HandlerConfig::Pipe(pipe) => Arc::new(Pipe::new(PipeOptions {
            program: pipe.program.clone(),
            args: pipe.args.clone(),
            timeout: pipe.timeout,
            kill_grace: pipe.kill_grace,
            children: pipe.children.into(),
            in_flight: pipe.in_flight.into(),
            framing: pipe.framing,
        })),
        HandlerConfig::Http(http) => Arc::new(Http::new(&HttpOptions {
            url: http.url.expose(),
            headers: http.headers.expose(),
            bearer_token_file: http.bearer_token_file.as_deref(),
            signature_secret_file: http.signature_secret_file.as_deref(),
            timeout: http.timeout,
        })?),
    };
    Ok(Prepared::Claimed(handler))
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
