//! How a command fails: the sentence it prints, and its exit code.

use std::fmt;

use crate::config::Problems;

/// A failed command. The message is complete: main prints it once and ends with the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// 1: failed while running; 2: wrong usage or configuration.
    pub code: u8,
    pub message: String,
}

impl Failure {
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: 2, message: message.to_string() }
    }

    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: 1, message: message.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::usage(problems)
    }
}
