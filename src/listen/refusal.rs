//! Why a request is not answered as it wished: a status and one sentence.

use hyper::StatusCode;

use crate::{
    broker::{BrokerError, Kind},
    ledger::LedgerError,
};

/// See the module. The sentence may hold what a sender chose, and is never a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) sentence: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// What the request asks for is not to be understood.
    pub(super) fn bad(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        let status = match error.kind() {
            Kind::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}
