//! The options that say which broker, shared by the commands that talk to one.

use std::path::{Path, PathBuf};

use crate::{broker::Endpoint, cli::Failure};

/// Where the broker is when nothing says so.
pub const DEFAULT_URL: &str = "amqp://127.0.0.1:5672";

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Broker")]
pub struct BrokerArgs {
    /// The broker's URL; several are tried in turn [default: amqp://127.0.0.1:5672]
    // Read after parsing: clap would show a wrong value, and with it the password.
    #[arg(long, value_name = "URL", env = "AMQP_URL", hide_env_values = true)]
    url: Vec<Url>,

    /// A file with the password, instead of one in the URL or in the variable ACKONCE_PASSWORD
    #[arg(long, value_name = "FILE", env = "ACKONCE_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
}

/// A URL as it was given; not shown, because it may hold a password.
#[derive(Clone)]
struct Url(String);

impl From<String> for Url {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url(…)")
    }
}

impl BrokerArgs {
    /// # Errors
    ///
    /// A usage failure for the first URL, or the file, that cannot be used.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        let given = std::env::var("ACKONCE_PASSWORD").ok().filter(|password| !password.is_empty());
        let password = match (self.password_file.as_deref(), given) {
            (Some(_), Some(_)) => {
                let both = "ACKONCE_PASSWORD: a password file is given too: take one of them out";
                return Err(Failure::usage(both));
            }
            (Some(file), None) => Some(read_password(file)?),
            (None, given) => given,
        };
        let mut urls: Vec<&str> =
            self.url.iter().map(|url| url.0.as_str()).filter(|url| !url.trim().is_empty()).collect();
        if urls.is_empty() {
            urls.push(DEFAULT_URL);
        }
        urls.into_iter()
            .map(|url| {
                let endpoint = Endpoint::parse(url).map_err(|error| Failure::usage(error.to_string()))?;
                Ok(match &password {
                    Some(password) => endpoint.with_password(password),
                    None => endpoint,
                })
            })
            .collect()
    }
}

/// The file's text without one newline at its end.
fn read_password(path: &Path) -> Result<String, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use the password file {}: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let password =
        text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if password.is_empty() {
        return Err(wrong(&"it is empty"));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        broker: BrokerArgs,
    }

    /// K63: not in our types' Debug either.
    #[test]
    fn a_password_is_not_shown() {
        let cli = Cli::parse_from(["x", "--url", "amqp://u:secret@h", "--url", "amqp://h2"]);
        assert!(!format!("{cli:?}").contains("secret"));
        let endpoints = cli.broker.endpoints().unwrap();
        assert_eq!(endpoints.len(), 2);
        assert!(!format!("{endpoints:?}").contains("secret"));
    }

    #[test]
    fn a_password_file_overrides_the_url_and_its_last_newline_is_not_part_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "p \n").unwrap();
        let path = file.path().to_str().unwrap();
        let cli = Cli::parse_from(["x", "--url", "amqp://u:other@h", "--password-file", path]);
        let expected = Endpoint::parse("amqp://u@h").unwrap().with_password("p ");
        assert_eq!(cli.broker.endpoints().unwrap(), [expected]);

        let cli = Cli::parse_from(["x", "--password-file", "/nonexistent"]);
        assert_eq!(cli.broker.endpoints().unwrap_err().code, 2);
    }
}
