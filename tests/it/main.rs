//! Everything that needs a broker, a file or the real binary. One module for each promise.

mod harness;

mod arrows;
mod crash;
mod drain;
mod failure;
mod http;
mod https;
mod key;
mod ledger_trouble;
mod library;
mod main_job;
mod own_broker;
mod own_broker_failure;
mod session;
mod sql;
mod sql_crash;
