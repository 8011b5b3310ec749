//! Message ids.

use uuid::{Builder, Uuid};

/// How they are made.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Keys {
    /// They grow.
    Uuid7,
    /// Random.
    Uuid4,
}

impl Keys {
    pub(crate) fn make(self) -> String {
        match self {
            Keys::Uuid7 => Uuid::now_v7().to_string(),
            Keys::Uuid4 => {
                Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid().to_string()
            }
        }
    }
}
