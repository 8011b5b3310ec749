//! What goes wrong with a ledger, and how much of an error's text is kept.

/// A ledger that cannot be read or written, in one sentence with a hint.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LedgerError {
    pub kind: LedgerErrorKind,
    /// What, which value, what to do.
    pub message: String,
}

/// Decides what the worker does about a [`LedgerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerErrorKind {
    /// Busy, full, read-only, an I/O error: pause, probe, go on when it heals.
    Transient,
    /// Damaged, foreign or newer: no retry can help; end with exit code 1.
    Fatal,
}

impl LedgerError {
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: LedgerErrorKind::Transient, message: message.into() }
    }

    pub fn fatal(message: impl Into<String>) -> Self {
        Self { kind: LedgerErrorKind::Fatal, message: message.into() }
    }

    pub fn is_transient(&self) -> bool {
        self.kind == LedgerErrorKind::Transient
    }
}

/// Error texts are kept to this many bytes: their tail, where programs say what went wrong.
pub const ERROR_BYTES_MAX: usize = 1024;

/// The last [`ERROR_BYTES_MAX`] bytes of a text, cut at a character.
pub fn bounded_error(text: &str) -> &str {
    let text = text.trim();
    if text.len() <= ERROR_BYTES_MAX {
        return text;
    }
    let mut start = text.len() - ERROR_BYTES_MAX;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
