//! Deep stacks for every thread, because a message can ask for them.
//!
//! lapin 4.12 reads nested header tables by recursion, on a thread whose stack only the variable
//! `RUST_MIN_STACK` sets. A few kilobytes of tables within tables overflow the usual 2 MiB, which
//! aborts the process; the broker then hands the same message to the next one. With 64 MiB the deepest
//! table that fits into a frame is read. It is address space, not memory: only what is used is taken.

use std::{env, os::unix::process::CommandExt, process::Command};

use crate::handler::program::{STACK_IS_OURS, STACK_VARIABLE};

const BYTES: &str = "67108864";

/// Starts this program again in its own place (the same process, arguments and files), with deep
/// stacks, unless somebody has set the variable already. If that cannot be done, it goes on as it is.
pub fn deepen() {
    if env::var_os(STACK_VARIABLE).is_some() {
        return;
    }
    if let Ok(program) = env::current_exe() {
        let mut arguments = env::args_os();
        let mut command = Command::new(program);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        // Only returns if it fails.
        let _ = command.args(arguments).env(STACK_VARIABLE, BYTES).env(STACK_IS_OURS, "1").exec();
    }
}
