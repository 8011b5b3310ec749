//! Everything that needs a broker, a file or the real binary. One module for each promise.

mod harness;

mod arrows;
mod broker_faults;
mod busy_cpus;
mod clock;
mod crash;
mod crash_points;
mod dead;
mod dead_look;
mod dead_own_broker;
mod deep_headers;
mod drain;
mod exec;
mod failure;
mod fault_counting;
mod http;
mod key;
mod ledger_compact;
mod ledger_pressure;
mod ledger_trouble;
mod library;
mod listen;
mod lost_queues;
mod main_job;
mod own_broker;
mod own_broker_failure;
mod pipe;
mod promises;
mod session;
mod silent_path;
mod sql;
mod sql_crash;
mod timeout;
mod torture;
