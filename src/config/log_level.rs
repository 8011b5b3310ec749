//! How much is logged.

use tracing_subscriber::EnvFilter;

use super::section::Section;

/// A level, or a filter by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel {
    text: String,
    directives: String,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogLevel {
    /// A level is ours alone: the broker's library warns with whole messages and repeats our errors,
    /// so it is heard at `trace` only. Anything else is a filter, taken as it is. An empty text is the default.
    ///
    /// # Errors
    ///
    /// What is expected instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let word = text.trim().to_ascii_lowercase();
        let directives = match word.as_str() {
            // An empty variable is one that was not given.
            "" => return Ok(Self::default()),
            "trace" => "warn,ackonce=trace,lapin=debug".to_owned(),
            _ if LEVELS.contains(&word.as_str()) => format!("off,ackonce={word}"),
            _ if text.contains(['=', '[']) => text.to_owned(),
            _ => return Err(expected()),
        };
        EnvFilter::builder().parse(&directives).map_err(|_| expected())?;
        Ok(Self { text: text.trim().to_owned(), directives })
    }

    /// The same as `tracing_subscriber` writes it.
    pub fn directives(&self) -> &str {
        &self.directives
    }
}

fn expected() -> String {
    format!("expected one of {}, or a filter such as ackonce::worker=debug", LEVELS.join(", "))
}

/// `info`
impl Default for LogLevel {
    fn default() -> Self {
        Self { text: "info".to_owned(), directives: "off,ackonce=info".to_owned() }
    }
}

/// As it was written.
impl std::fmt::Display for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The file's; flag and variable are read with the command line.
pub(super) fn read(top: &mut Section) -> Option<LogLevel> {
    let given = top.text("log_level", "expected a level, such as info")?;
    LogLevel::parse(&given.value).map_err(|expected| top.problem(format!("{}: {expected}", given.said))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_told_from_typing_mistakes() {
        for level in ["off", "INFO", "", "trace", "ackonce=debug", "warn,ackonce::worker=trace"] {
            assert!(LogLevel::parse(level).is_ok(), "{level}");
        }
        for level in ["infoo", "warning", "ackonce=loud"] {
            let error = LogLevel::parse(level).unwrap_err();
            assert!(error.contains("expected one of off, error"), "{error}");
        }
    }
}
