//! SIGHUP: what may change while workers run is read again. It disturbs nothing that is under way.
//!
//! A terminal that is closed sends the same signal. Then nobody sees the worker any more, and it is asked to
//! stop.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::spawn_blocking,
};
use tracing::{error, info, warn};

use super::RunArgs;
use crate::{
    broker::{Endpoint, Password},
    cli::{Failure, logging},
    config::{BrokerConfig, Config, Problems},
    worker::Stop,
};

/// The signal, caught from now on.
pub(super) struct Hangups {
    signal: Signal,
    had_terminal: bool,
}

impl Hangups {
    pub(super) fn catch() -> Result<Self, Failure> {
        let signal = signal(SignalKind::hangup());
        let signal =
            signal.map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
        Ok(Self { signal, had_terminal: has_terminal() })
    }

    /// Answers each with a look at the configuration that `args` name, for ever. `password` is the one in use, if
    /// it is not in a URL. `reloading` is true meanwhile.
    pub(super) async fn answer(
        mut self,
        args: RunArgs,
        password: Option<Password>,
        stop: Arc<watch::Sender<Stop>>,
        reloading: watch::Sender<bool>,
    ) {
        let args = Arc::new(args);
        while self.signal.recv().await.is_some() {
            if self.had_terminal && !has_terminal() {
                let ask =
                    |stop: &mut Stop| *stop == Stop::No && std::mem::replace(stop, Stop::Drain) == Stop::No;
                stop.send_if_modified(ask);
                continue;
            }
            let again = args.clone();
            reloading.send_replace(true);
            match spawn_blocking(move || again.config()).await {
                Ok(Ok(config)) => take_over(&config, password.as_ref()),
                Ok(Err(problems)) => refuse(&problems),
                Err(panic) => error!("the configuration cannot be read again: {panic}"),
            }
            reloading.send_replace(false);
        }
    }
}

/// The endpoints with the one password that can be exchanged, if one is given beside their URLs. (A variable's stays
/// what it is for as long as the process lives.)
pub(super) fn sharing_password(
    endpoints: Vec<Endpoint>,
    broker: &BrokerConfig,
) -> (Vec<Endpoint>, Option<Password>) {
    let Some(password) = broker.password.as_ref().map(|password| Password::new(password.expose())) else {
        return (endpoints, None);
    };
    let endpoints = endpoints.into_iter().map(|endpoint| endpoint.with_password(password.clone())).collect();
    (endpoints, Some(password))
}

fn take_over(config: &Config, password: Option<&Password>) {
    let mut news = Vec::new();
    match (password, &config.broker.password) {
        (Some(used), Some(read)) => {
            if used.replace(read.expose()) {
                news.push(
                    "the broker's password is another one, used from the next connection on".to_owned(),
                );
            }
        }
        (None, None) => {}
        _ => warn!("a password_file that is new, or gone, takes a restart"),
    }
    if logging::follow_file(config.log_level.clone()) {
        let level = config.log_level.clone().unwrap_or_default();
        news.push(format!("the log level is {level}"));
    }
    if news.is_empty() {
        news.push("nothing has changed that may change while it runs".to_owned());
    }
    info!("read the configuration again: {}", news.join("; "));
}

fn refuse(problems: &Problems) {
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    error!("read the configuration again, and everything stays as it was: {}", problems.join("; "));
}

fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}
