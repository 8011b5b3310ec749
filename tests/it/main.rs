//! Everything that needs a broker, a file or the real binary. One module for each promise.

mod harness;

mod arrows;
mod crash;
mod drain;
mod exec;
mod key;
mod ledger_trouble;
mod main_job;
mod own_broker;
mod pipe;
mod session;
