//! Parse, log, dispatch, exit code.

#![forbid(unsafe_code)]

use std::{
    io::{self, Write},
    process::ExitCode,
};

use ackonce::{
    cli::{Cli, Failure, init, logging, stack},
    config::without_credentials,
};
use clap::Parser;

fn main() -> ExitCode {
    stack::deepen();
    logging::init_panics();
    match init::run().map_or_else(run, |code| code.map(ExitCode::from)) {
        Ok(code) => code,
        Err(failure) => {
            logging::last_words(&failure);
            ExitCode::from(failure.code)
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            // The argument that is complained about may be a URL with a password.
            let text = error.render().to_string();
            let _ = write!(io::stderr(), "{}", without_credentials(&text));
            return Ok(ExitCode::from(2));
        }
        Err(help) => {
            let _ = help.print();
            return Ok(ExitCode::SUCCESS);
        }
    };
    logging::init(cli.log_level.as_deref(), cli.log_format.as_deref())?;
    cli.command.execute()?;
    Ok(ExitCode::SUCCESS)
}
