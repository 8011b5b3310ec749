//! ackonce: run a handler once per RabbitMQ message.
//!
//! # The map
//!
//! Arrows point one way: `main → cli → worker → {broker, ledger, handler} → {key, message}`.
//!
//! - [`message`]: what a delivery carries; no broker library's types.
//! - [`key`]: what identifies a message, and where that is taken from.
//! - [`handler`]: the user's work: the trait and its kinds.
//! - [`ledger`]: what became of each message: the traits, SQLite, and the in-memory reference model.
//! - [`broker`]: the only place that speaks AMQP: sessions, settling, publishing, topology.
//! - [`worker`]: the heart: intake → claim → handler → finish → settle.
//! - [`config`]: file, environment and flags become one validated configuration.
//! - [`cli`]: one file per subcommand.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations, unreachable_pub, unused_qualifications)]

pub mod broker;
pub mod cli;
pub mod config;
pub mod handler;
pub mod key;
pub mod ledger;
pub mod message;
pub mod worker;
