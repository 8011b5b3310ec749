//! `ackonce man`: manual pages, made from the flags themselves.

use std::{fs, path::PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, Failure, ledger::output};

#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Write a page for each command into this folder, which is made if it is missing; without it, the first page
    /// is printed
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints `ackonce(1)`, or writes it and a page for each command into a folder.
///
/// # Errors
///
/// The place cannot be written to.
pub fn run(args: &ManArgs) -> Result<(), Failure> {
    let pages = pages();
    match &args.dir {
        None => output::print(pages.first().map_or("", |(_, page)| page)),
        Some(dir) => {
            let cannot = |error| Failure::failed(format!("cannot write to {}: {error}", dir.display()));
            fs::create_dir_all(dir).map_err(cannot)?;
            pages.iter().try_for_each(|(name, page)| fs::write(dir.join(name), page)).map_err(cannot)
        }
    }
}

/// Each page's file name and text; the one of the program itself comes first.
fn pages() -> Vec<(String, String)> {
    // `help` says what the pages say.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages);
    pages
}

fn add_pages(command: &Command, pages: &mut Vec<(String, String)>) {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render(&mut page);
    pages.push((man.get_filename(), String::from_utf8_lossy(&page).into_owned()));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        add_pages(subcommand, pages);
    }
}
