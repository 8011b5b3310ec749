//! ackonce: run a handler once per RabbitMQ message.
//!
//! As a program, `ackonce run`; as a library, a [`Worker`] with a handler of your own:
//!
//! - [`handler::function`] makes one from an async closure. The ledger remembers that it ran to success; a
//!   crash just then runs it again (`examples/handler.rs`).
//! - [`ledger::sqlite::TransactionHandler`] writes through the ledger's own transaction: exactly once
//!   (`examples/transaction.rs`).
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//! use ackonce::{Stop, Worker, ledger::sqlite::{Attempt, Connection, HandlerError, SqliteLedger, SqliteOptions}};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let ledger = Arc::new(SqliteLedger::open("ackonce.db", SqliteOptions::default())?);
//! ledger.set_up("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, body BLOB)")?;
//! let store = |transaction: &Connection, attempt: &Attempt<'_>| -> Result<(), HandlerError> {
//!     transaction.execute("INSERT INTO orders VALUES (?1, ?2)", (attempt.key.as_str(), &attempt.message.body))?;
//!     Ok(())
//! };
//! let effects = ledger.effects(store, Duration::from_secs(30));
//! let (stop, stopped) = tokio::sync::watch::channel(Stop::No);
//! // `stop.send(Stop::Drain)` from elsewhere ends it.
//! Worker::transactional("amqp://127.0.0.1:5672", "orders", effects)?.run(stopped).await?;
//! # drop(stop);
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//!
//! Arrows point one way: `main → cli → {listen, notify, telemetry} → worker → {broker, ledger, handler} → {key, message}`.
//!
//! - [`message`]: what a delivery carries; no broker library's types.
//! - [`key`]: what identifies a message, and where that is taken from.
//! - [`handler`]: the user's work: the trait and its kinds.
//! - [`ledger`]: what became of each message: the traits, SQLite, and the in-memory reference model.
//! - [`broker`]: the only place that speaks AMQP: sessions, settling, publishing, topology.
//! - [`worker`]: the heart: intake → claim → handler → finish → settle.
//! - `secret_file`: a secret in a file, read again when it changes.
//! - [`config`]: file, environment and flags become one validated configuration.
//! - [`listen`]: health, readiness and metrics over HTTP.
//! - [`notify`]: what a supervisor such as systemd is told.
//! - [`telemetry`]: spans for OpenTelemetry (the cargo feature `otel`).
//! - [`cli`]: one file per subcommand.
//! - [`crash_point`]: named moments at which a test makes the process die; nothing in what is shipped.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations, unreachable_pub, unused_qualifications)]

pub mod broker;
pub mod cli;
pub mod config;
pub mod crash_point;
pub mod handler;
pub mod key;
pub mod ledger;
pub mod listen;
pub mod message;
pub mod notify;
mod secret_file;
pub mod telemetry;
pub mod worker;

pub use handler::{Handler, Verdict, Work};
pub use worker::{Stop, Worker, WorkerError};
