//! `ackonce run`: its flags, and what a worker is started with.

mod observed;
mod reload;
pub(super) mod serve;

use std::{ffi::OsString, fmt};

use clap::Args;

use super::{Failure, logging};
use crate::{
    config::{Config, HandlerConfig, LedgerUrl, Problems, WorkerConfig},
    handler,
};

/// The flags of `run`. Their values are judged together with the file's and the environment's, so
/// that all mistakes are reported at once; here they are texts.
#[derive(Args, Clone, Default)]
#[command(
    after_help = "A flag counts more than its variable, that more than the file. In a variable, a list is \
written as words between blanks or as in the file: [\"a b\", \"c\"]. With a file of several workers, \
--queue runs only that queue's worker; without it, the flags of a worker change every worker."
)]
pub struct RunArgs {
    /// Configuration file (TOML) [env: ACKONCE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Broker, repeatable; a password is better kept in the variable or a file [env: AMQP_URL]
    /// [default: amqp://127.0.0.1:5672]
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// File that holds the broker's password, which may also be in the variable ACKONCE_PASSWORD
    /// [env: ACKONCE_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// Time between heartbeats, whole seconds [env: ACKONCE_HEARTBEAT] [default: 20s]
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<String>,
    /// Ledger: a path or sqlite:PATH [env: ACKONCE_LEDGER] [default: ackonce.db]
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
    /// How long the ledger remembers a message [env: ACKONCE_RETENTION] [default: 7d]
    #[arg(long, value_name = "TIME")]
    retention: Option<String>,
    /// Run although the ledger is on a network file system, where locks may not hold
    /// [env: ACKONCE_ALLOW_NETWORK_FILE_SYSTEM=true]
    #[arg(long)]
    allow_network_file_system: bool,
    /// Time for running handlers at a shutdown [env: ACKONCE_DRAIN_TIMEOUT] [default: 25s]
    #[arg(long, value_name = "TIME")]
    drain_timeout: Option<String>,
    /// Serve a status page, /healthz, /readyz and /metrics here: a port of 127.0.0.1, or IP:PORT
    /// [env: ACKONCE_LISTEN]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// File with the token that the status page's actions need [env: ACKONCE_LISTEN_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    listen_token_file: Option<String>,
    /// Host name by which browsers may reach the status page, repeatable [env: ACKONCE_LISTEN_HOST]
    #[arg(long, value_name = "NAME")]
    listen_host: Vec<String>,

    /// Queue to consume [env: ACKONCE_QUEUE]
    #[arg(long, value_name = "NAME", help_heading = "Worker")]
    queue: Option<String>,
    /// Handler: a program run once per message; takes the rest of the line [env: ACKONCE_EXEC]
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, help_heading = "Worker")]
    exec: Vec<String>,
    /// Handler: a command line for /bin/sh, run once per message [env: ACKONCE_SHELL]
    #[arg(long, value_name = "LINE", allow_hyphen_values = true, help_heading = "Worker")]
    shell: Option<String>,
    /// What exit statuses mean: sysexits (65 gives up) or rabbitmq-cli-consumer (3 and 5 do)
    /// [env: ACKONCE_EXIT_CODES] [default: sysexits]
    #[arg(long, value_name = "WHICH", help_heading = "Worker")]
    exit_codes: Option<String>,
    /// Handler: a program that is given many messages, as JSON on its standard input, and answers on
    /// its standard output; takes the rest of the line [env: ACKONCE_PIPE]
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, help_heading = "Worker")]
    pipe: Vec<String>,
    /// Children of --pipe [env: ACKONCE_PIPE_CHILDREN] [default: the concurrency]
    #[arg(long, value_name = "N", help_heading = "Worker")]
    pipe_children: Option<String>,
    /// Messages that a child of --pipe has at the same time [env: ACKONCE_PIPE_IN_FLIGHT] [default: 1]
    #[arg(long, value_name = "N", help_heading = "Worker")]
    pipe_in_flight: Option<String>,
    /// How messages are told apart in a pipe: lines or length_prefixed_uint32_be
    /// [env: ACKONCE_PIPE_FRAMING] [default: lines]
    #[arg(long, value_name = "HOW", help_heading = "Worker")]
    pipe_framing: Option<String>,
    /// Handler: a URL that each message is posted to [env: ACKONCE_HTTP]
    #[arg(long, value_name = "URL", help_heading = "Worker")]
    http: Option<String>,
    /// Header of every request, repeatable: 'Name: value' [env: ACKONCE_HTTP_HEADERS]
    #[arg(long, value_name = "HEADER", help_heading = "Worker")]
    http_header: Vec<String>,
    /// File whose token is sent as Authorization: Bearer [env: ACKONCE_HTTP_BEARER_TOKEN_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Worker")]
    http_bearer_token_file: Option<String>,
    /// File whose secret signs requests as Standard Webhooks [env: ACKONCE_HTTP_SIGNATURE_SECRET_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Worker")]
    http_signature_secret_file: Option<String>,
    /// Handler: a file of SQL statements, run once per message in the ledger's own transaction [env: ACKONCE_SQL]
    #[arg(long, value_name = "FILE", help_heading = "Worker")]
    sql: Option<String>,
    /// Schema for --sql: run at each start, so write IF NOT EXISTS [env: ACKONCE_SQL_SCHEMA]
    #[arg(long, value_name = "FILE", help_heading = "Worker")]
    sql_schema: Option<String>,
    /// Handler: log each message [env: ACKONCE_LOG=true]
    #[arg(long, help_heading = "Worker")]
    log: bool,
    /// What identifies a message, repeatable: message-id, header:NAME, property:NAME, json:/POINTER,
    /// body [env: ACKONCE_KEY] [default: message-id]
    #[arg(long, value_name = "KEY", help_heading = "Worker")]
    key: Vec<String>,
    /// Namespace of the keys [env: ACKONCE_SCOPE] [default: the queue's name]
    #[arg(long, value_name = "NAME", help_heading = "Worker")]
    scope: Option<String>,
    /// For a message without a key: dead-letter, hash-body or process [env: ACKONCE_ON_MISSING_KEY]
    /// [default: dead-letter]
    #[arg(long, value_name = "WHAT", help_heading = "Worker")]
    on_missing_key: Option<String>,
    /// For a known key with another body: dead-letter, ack or process [env: ACKONCE_ON_MISMATCH]
    /// [default: dead-letter]
    #[arg(long, value_name = "WHAT", help_heading = "Worker")]
    on_mismatch: Option<String>,
    /// After a crash amid a run: rerun or dead-letter [env: ACKONCE_ON_INTERRUPTED] [default: rerun]
    #[arg(long, value_name = "WHAT", help_heading = "Worker")]
    on_interrupted: Option<String>,
    /// Handlers at the same time [env: ACKONCE_CONCURRENCY] [default: 8]
    #[arg(long, value_name = "N", help_heading = "Worker")]
    concurrency: Option<String>,
    /// Unacked messages at the same time, at least the concurrency [env: ACKONCE_PREFETCH]
    /// [default: 64]
    #[arg(long, value_name = "N", help_heading = "Worker")]
    prefetch: Option<String>,
    /// Time for one run, then TERM [env: ACKONCE_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Worker")]
    timeout: Option<String>,
    /// Time between TERM and KILL [env: ACKONCE_KILL_GRACE] [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Worker")]
    kill_grace: Option<String>,
    /// Attempts in all, the first included [env: ACKONCE_MAX_ATTEMPTS] [default: 5]
    #[arg(long, value_name = "N", help_heading = "Worker")]
    max_attempts: Option<String>,
    /// Time before the second attempt [env: ACKONCE_INITIAL_INTERVAL] [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Worker")]
    initial_interval: Option<String>,
    /// Each interval is so many times the one before [env: ACKONCE_MULTIPLIER] [default: 2]
    #[arg(long, value_name = "X", help_heading = "Worker")]
    multiplier: Option<String>,
    /// Longest time between two attempts [env: ACKONCE_MAX_INTERVAL] [default: 1m]
    #[arg(long, value_name = "TIME", help_heading = "Worker")]
    max_interval: Option<String>,
    /// Share by which intervals vary, from 0 to 1 [env: ACKONCE_JITTER] [default: 0.1]
    #[arg(long, value_name = "X", help_heading = "Worker")]
    jitter: Option<String>,
    /// How a message is given up: publish (to QUEUE.dead) or reject (to the queue's own dead-letter
    /// exchange) [env: ACKONCE_DEAD_LETTER] [default: publish]
    #[arg(long, value_name = "HOW", help_heading = "Worker")]
    dead_letter: Option<String>,
    /// With --dead-letter reject: the dead-letter exchange that a policy sets
    /// [env: ACKONCE_DEAD_LETTER_EXCHANGE]
    #[arg(long, value_name = "NAME", help_heading = "Worker")]
    dead_letter_exchange: Option<String>,
    /// What is done about a missing queue: create it, only look (passive), or none
    /// [env: ACKONCE_DECLARE] [default: create]
    #[arg(long, value_name = "HOW", help_heading = "Worker")]
    declare: Option<String>,
    /// Type of a queue that is created: quorum or classic [env: ACKONCE_QUEUE_TYPE]
    /// [default: quorum]
    #[arg(long, value_name = "TYPE", help_heading = "Worker")]
    queue_type: Option<String>,
}

impl RunArgs {
    /// These flags, this process's environment and the file, put together.
    ///
    /// # Errors
    ///
    /// Every mistake in them.
    pub fn config(&self) -> Result<Config, Problems> {
        self.config_in(std::env::vars_os())
    }

    /// The same in another environment.
    ///
    /// # Errors
    ///
    /// Every mistake.
    pub fn config_in(
        &self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, Problems> {
        let flags = self.flags();
        let flags = flags.iter().map(|(flag, values)| (*flag, values.as_slice()));
        Config::load(flags, environment)
    }

    /// Every flag with the values that it was given; none if it was not.
    pub(super) fn flags(&self) -> Vec<(&'static str, Vec<String>)> {
        let one = |value: &Option<String>| value.iter().cloned().collect();
        let on = |given: bool| if given { vec!["true".to_owned()] } else { Vec::new() };
        vec![
            ("config", one(&self.config)),
            ("url", self.url.clone()),
            ("password-file", one(&self.password_file)),
            ("heartbeat", one(&self.heartbeat)),
            ("ledger", one(&self.ledger)),
            ("retention", one(&self.retention)),
            ("allow-network-file-system", on(self.allow_network_file_system)),
            ("drain-timeout", one(&self.drain_timeout)),
            ("listen", one(&self.listen)),
            ("listen-token-file", one(&self.listen_token_file)),
            ("listen-host", self.listen_host.clone()),
            ("queue", one(&self.queue)),
            ("exec", self.exec.clone()),
            ("shell", one(&self.shell)),
            ("exit-codes", one(&self.exit_codes)),
            ("pipe", self.pipe.clone()),
            ("pipe-children", one(&self.pipe_children)),
            ("pipe-in-flight", one(&self.pipe_in_flight)),
            ("pipe-framing", one(&self.pipe_framing)),
            ("http", one(&self.http)),
            ("http-header", self.http_header.clone()),
            ("http-bearer-token-file", one(&self.http_bearer_token_file)),
            ("http-signature-secret-file", one(&self.http_signature_secret_file)),
            ("sql", one(&self.sql)),
            ("sql-schema", one(&self.sql_schema)),
            ("log", on(self.log)),
            ("key", self.key.clone()),
            ("scope", one(&self.scope)),
            ("on-missing-key", one(&self.on_missing_key)),
            ("on-mismatch", one(&self.on_mismatch)),
            ("on-interrupted", one(&self.on_interrupted)),
            ("concurrency", one(&self.concurrency)),
            ("prefetch", one(&self.prefetch)),
            ("timeout", one(&self.timeout)),
            ("kill-grace", one(&self.kill_grace)),
            ("max-attempts", one(&self.max_attempts)),
            ("initial-interval", one(&self.initial_interval)),
            ("multiplier", one(&self.multiplier)),
            ("max-interval", one(&self.max_interval)),
            ("jitter", one(&self.jitter)),
            ("dead-letter", one(&self.dead_letter)),
            ("dead-letter-exchange", one(&self.dead_letter_exchange)),
            ("declare", one(&self.declare)),
            ("queue-type", one(&self.queue_type)),
        ]
    }
}

/// The URL may hold a password, and the command's arguments too.
impl fmt::Debug for RunArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunArgs")
            .field("config", &self.config)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Runs the workers that these flags, the environment and the file configure until they are told to stop.
///
/// # Errors
///
/// What is wrong with the configuration; why they could not start or go on.
pub async fn execute(args: RunArgs) -> Result<(), Failure> {
    let config = args.config()?;
    logging::follow_file(config.log_level.clone());
    for worker in &config.workers {
        log_effective(&config, worker);
    }
    serve::serve(config, args).await
}

/// One line with what this worker goes by; a command's arguments may hold secrets and are only counted.
fn log_effective(config: &Config, worker: &WorkerConfig) {
    let policy = &worker.policy;
    let handler = describe(&worker.handler);
    let LedgerUrl::Sqlite(ledger) = &config.ledger.url;
    tracing::info!(
        queue = %policy.queue,
        scope = %policy.scope,
        key = %policy.key,
        handler,
        concurrency = policy.concurrency,
        prefetch = policy.prefetch,
        max_attempts = policy.retry.max_attempts,
        broker = ?config.broker.urls,
        ledger = %ledger.display(),
        retention = %humantime::format_duration(config.ledger.retention),
        "worker configured"
    );
}

/// A handler in a few words, without what may be secret.
pub(super) fn describe(config: &HandlerConfig) -> String {
    match config {
        HandlerConfig::Log => "log".to_owned(),
        HandlerConfig::Http(http) => format!("http {}", handler::http::shown(http.url.expose())),
        HandlerConfig::Sql(sql) => format!("sql {}", sql.file.display()),
        HandlerConfig::Exec(exec) => format!("exec {} ({} arguments)", exec.program, exec.args.len()),
        HandlerConfig::Pipe(pipe) => {
            format!("pipe {} ({} arguments), {} children", pipe.program, pipe.args.len(), pipe.children)
        }
    }
}
