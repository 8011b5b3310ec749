//! What only the SQLite ledger can get wrong: files, locks, processes, triggers, other programs.

mod damage;
mod effects;
mod file_faults;
mod files;
mod guarded;
mod opening;
mod others;
mod processes;
mod refusals;
mod scripts;
mod setup;
mod sql;
