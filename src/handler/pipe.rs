//! Long-lived children.

use serde::Deserialize;

/// How messages and replies are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Framing {
    #[default]
    #[serde(rename = "lines")]
    Lines,
    #[serde(rename = "length_prefixed_uint32_be")]
    LengthPrefixed,
}
