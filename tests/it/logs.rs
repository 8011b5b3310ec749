//! What a worker says while it runs: lines for people, lines for programs, and what a terminal shows.

mod json;
mod terminal;
