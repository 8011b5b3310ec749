//! Goal: what `publish` says is confirmed has arrived, what it does not confirm is named, and whatever
//! the broker, the network or the command line does, it ends within its time limit.
//!
//! Needs a broker in $AMQP_URL. The tests in `own_broker` start one of their own with the script in
//! $ACKONCE_TEST_BROKER_SCRIPT (default: scripts/broker).

mod endpoints;
mod forms;
mod library;
mod link;
mod own_broker;
mod support;
