//! Everything that needs a broker, a file or the real binary. One module for each promise.

mod harness;

mod arrows;
mod crash;
mod deep_headers;
mod drain;
mod exec;
mod failure;
mod http;
mod key;
mod ledger_trouble;
mod main_job;
mod own_broker;
mod own_broker_failure;
mod pipe;
mod session;
