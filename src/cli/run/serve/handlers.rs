//! The handlers that a configuration names, before and after the ledger is open.

use std::sync::Arc;

use super::{super::observed, sql};
use crate::{
    cli::Failure,
    config::{HandlerConfig, WorkerConfig},
    handler::{
        Handler,
        exec::Exec,
        http::{Http, HttpOptions},
        log::Log,
        pipe::{Pipe, PipeOptions},
    },
    ledger::sqlite::SqliteLedger,
    worker::Handling,
};

/// A handler before the ledger is open.
pub(super) enum Prepared {
    Claimed(Arc<dyn Handler>),
    Sql(sql::Files),
}

/// All handlers, each known to be set up so that it can start; every one that is not is reported.
pub(super) async fn prepare(workers: &[WorkerConfig]) -> Result<Vec<Prepared>, Failure> {
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
    prepare(workers).await.map(drop)
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
pub(super) async fn within(
    ledger: &Arc<SqliteLedger>,
    prepared: Vec<Prepared>,
) -> Result<Vec<Handling>, Failure> {
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
