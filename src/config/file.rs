//! Reading the configuration file: its text becomes a table, or one sentence.

use std::{
    fs::File,
    io::{ErrorKind, Read},
};

use toml::Table;

use super::problem::quoted;

/// Far more than any configuration needs; a larger file is some other file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// # Errors
///
/// One sentence that names the file and, for bad TOML, line and column; never a piece of its text.
pub(super) fn read(path: &str) -> Result<Table, String> {
    let mut bytes = Vec::new();
    let length = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let path = quoted(path);
    match length {
        Ok(length) if length as u64 > FILE_BYTES_MAX => {
            return Err(format!("the configuration file {path} is larger than 1 MiB: name another file"));
        }
        Ok(_) => {}
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::NotFound => {
                    format!("the configuration file {path} does not exist: check its name")
                }
                ErrorKind::IsADirectory => {
                    format!("the configuration file {path} is a directory: name a file in it")
                }
                _ => format!("the configuration file {path} cannot be read: {error}"),
            });
        }
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        format!("the configuration file {path} is not UTF-8 (line {line}): save it as UTF-8")
    })?;
    parse(&text).map_err(|error| format!("the configuration file {path} is not valid TOML: {error}"))
}

fn parse(text: &str) -> Result<Table, String> {
    text.parse::<Table>().map_err(|error| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        format!("line {line}, column {column}: {message}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_names_line_and_column_but_not_the_text() {
        let error = parse("[broker]\nurl = \"amqp://u:hidden@h\nprefetch = 1\n").unwrap_err();
        assert!(error.starts_with("line 2, column "), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}
