//! What a command's exit status says.

use serde::Deserialize;

/// A convention for exit statuses. In each, 0 is done, and 126 and 127, a shell's words for "cannot
/// run" and "not found", say that the command itself is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitCodes {
    /// 65 (`EX_DATAERR`) gives up; 75 (`EX_TEMPFAIL`) and any other is tried again.
    #[default]
    Sysexits,
    /// 3 (reject) and 5 (nack) give up; 4 and 6 (the same with requeue) and any other are tried again.
    RabbitmqCliConsumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Done,
    GiveUp,
    CannotStart,
    Retry,
}

impl ExitCodes {
    pub(super) fn meaning(self, code: i32) -> Meaning {
        match (self, code) {
            (_, 0) => Meaning::Done,
            (_, 126 | 127) => Meaning::CannotStart,
            (Self::Sysexits, 65) | (Self::RabbitmqCliConsumer, 3 | 5) => Meaning::GiveUp,
            (Self::Sysexits | Self::RabbitmqCliConsumer, _) => Meaning::Retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_convention_means_what_it_is_known_for() {
        use Meaning::{CannotStart, Done, GiveUp, Retry};
        for (code, sysexits, rabbitmq_cli_consumer) in [
            (0, Done, Done),
            (1, Retry, Retry),
            (3, Retry, GiveUp),
            (4, Retry, Retry),
            (5, Retry, GiveUp),
            (6, Retry, Retry),
            (65, GiveUp, Retry),
            (75, Retry, Retry),
            (126, CannotStart, CannotStart),
            (127, CannotStart, CannotStart),
        ] {
            assert_eq!(ExitCodes::Sysexits.meaning(code), sysexits, "{code}");
            assert_eq!(ExitCodes::RabbitmqCliConsumer.meaning(code), rabbitmq_cli_consumer, "{code}");
        }
    }
}
