//! The only place that speaks AMQP.
//!
//! - [`uri`]: a broker's URL becomes an [`Endpoint`], which never shows its password.
//! - [`connect`]: one connection, with a time limit on every step, that can be cut.
//! - [`error`]: what went wrong, in one sentence with a hint, and whether trying again can help.
//! - [`convert`]: lapin's messages and tables to ours and back.
//! - [`topology`]: the queues a worker needs, and looking them up.
//! - [`raw`]: the least that a consumer can do, to measure against.
//! - [`route`]: where a queue's rejected messages go.
//! - [`session`]: consuming a queue, from the first delivery to the last ack.
//! - [`password`]: one that can be exchanged while it is in use.
//! - [`publisher`]: confirmed publishing, on a connection of its own.
//! - [`dead_letters`]: looking at dead letters, and taking some.
//! - [`outlet`]: where copies of messages go: dead letters and delay queues.

pub mod connect;
pub mod convert;
pub mod dead_letters;
pub mod error;
pub mod outlet;
pub mod password;
pub mod publisher;
pub mod raw;
pub mod route;
pub mod session;
mod settle;
pub mod topology;
pub mod uri;

pub use connect::Connection;
pub use dead_letters::{DeadLetters, ReturnLimit};
pub use error::{BrokerError, Kind};
pub use outlet::{Destination, Outlet};
pub use password::Password;
pub use publisher::{Outgoing, PublishError, Publisher};
pub use route::Route;
pub use session::{Declare, Rejects, Session, Source};
pub use uri::Endpoint;
