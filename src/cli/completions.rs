//! `ackonce completions`: what a shell completes, made from the flags themselves.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, Failure, ledger::output};

#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the shell's completions of every command.
///
/// # Errors
///
/// Standard output cannot be written to.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "ackonce", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
