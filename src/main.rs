//! Temporary: only what the tests of `publish` need.

use std::process::ExitCode;

use ackonce::cli::publish::{self, PublishArgs};
use clap::Parser;

#[derive(Debug, clap::Parser)]
#[command(name = "ackonce", version)]
enum Cli {
    Publish(Box<PublishArgs>),
}

fn main() -> ExitCode {
    let Cli::Publish(args) = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(publish::run(*args));
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.code)
        }
    }
}
