//! The worker's state machine and its ledger under a simulated broker, clock and script of faults.
//!
//! Goal: whatever goes wrong, what is promised holds at each step, and nothing is lost in the end. One seed
//! decides everything of a run: policy, messages, how handlers take them, and all faults. So
//!
//! ```console
//! $ ACKONCE_MODEL_SEED=42 cargo test --test model one_seed -- --nocapture     # one run, with all that happened
//! $ ACKONCE_MODEL_SEEDS=10000 cargo test --release --test model seeds         # a campaign
//! ```
//!
//! - `plan`: what a seed stands for; `faults`: what goes wrong, at random or at exactly the n-th chance.
//! - `broker`, `process`, `store`: the simulated broker, the worker processes, and the ledger that they share.
//! - `world`: the clock, and what happens next; `invariants`: what must hold at each step.
//! - `counting`: one fault at each chance there is, one after the other.

mod broker;
mod counting;
mod faults;
mod invariants;
mod plan;
mod process;
mod seeds;
mod store;
mod trace;
mod world;
