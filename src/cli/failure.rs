//! How a command ends badly: an exit code and one sentence.

/// What went wrong, for the user: `message` goes to stderr, `code` to the shell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// 1: failed while running. 2: wrong usage or configuration.
    pub code: u8,
    pub message: String,
}

impl Failure {
    /// Exit code 2: wrong usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Exit code 1: failed while running.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }
}
