//! Properties and headers from the command line.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::{
    cli::Failure,
    message::{Properties, Table, Value},
};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Properties")]
pub(super) struct PropertyArgs {
    /// A header with a text value; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,

    /// Headers of any type: a file with one JSON object
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,

    /// What kind of message this is
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    #[arg(long, value_name = "TYPE", help = "The body's media type, such as application/json")]
    content_type: Option<String>,

    #[arg(long, value_name = "ID", help = "What this message belongs to")]
    correlation_id: Option<String>,

    #[arg(long, value_name = "QUEUE", help = "Where answers go")]
    reply_to: Option<String>,

    /// How long it may wait in a queue: milliseconds, or 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_expiration)]
    expiration: Option<String>,

    #[arg(long, value_name = "0-255", help = "For queues with priorities")]
    priority: Option<u8>,

    #[arg(long, value_name = "ID", help = "The program that sends it")]
    app_id: Option<String>,
}

impl PropertyArgs {
    /// Persistent, and with everything that was given.
    pub(super) fn properties(&self) -> Result<Properties, Failure> {
        Ok(Properties {
            content_type: self.content_type.clone(),
            headers: self.table()?,
            delivery_mode: Some(2),
            priority: self.priority,
            correlation_id: self.correlation_id.clone(),
            reply_to: self.reply_to.clone(),
            expiration: self.expiration.clone(),
            kind: self.kind.clone(),
            app_id: self.app_id.clone(),
            ..Properties::default()
        })
    }

    fn table(&self) -> Result<Option<Table>, Failure> {
        let mut table = match &self.header_file {
            Some(path) => read_table(path)?,
            None => Table::new(),
        };
        let mut given = Table::new();
        for header in &self.headers {
            let (name, value) = match header.split_once('=') {
                Some(("", _)) => return Err(Failure::usage("--header: the name before '=' is empty")),
                Some(pair) => pair,
                None => {
                    return Err(Failure::usage(format!("--header '{header}' has no '=': write NAME=VALUE")));
                }
            };
            if given.insert(name.to_owned(), Value::text(value)).is_some() {
                return Err(Failure::usage(format!("--header '{name}' is given twice")));
            }
        }
        table.extend(given);
        Ok((!table.is_empty()).then_some(table))
    }
}

fn read_table(path: &Path) -> Result<Table, Failure> {
    let wrong = |why: String| Failure::usage(format!("the header file {}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let json: Json =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    match value(&json).map_err(wrong)? {
        Value::Table(table) => Ok(table),
        _ => Err(wrong("it holds no JSON object".to_owned())),
    }
}

fn value(json: &Json) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(*v),
        Json::Number(number) => match (number.as_i64(), number.is_f64(), number.as_f64()) {
            (Some(v), _, _) => Value::I64(v),
            (None, true, Some(v)) => Value::F64(v),
            _ => return Err(format!("the number {number} is too large for a header: write it as a string")),
        },
        Json::String(v) => Value::text(v.as_str()),
        Json::Array(items) => Value::List(items.iter().map(value).collect::<Result<_, _>>()?),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, json)| Ok((name.clone(), value(json)?)));
            Value::Table(fields.collect::<Result<_, String>>()?)
        }
    })
}

/// AMQP wants milliseconds as a decimal number, of at most 32 bits as RabbitMQ reads it.
fn parse_expiration(text: &str) -> Result<String, String> {
    let ms = match text.parse::<u64>() {
        Ok(ms) => u128::from(ms),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?.as_millis(),
    };
    if ms > u128::from(u32::MAX) {
        return Err(format!("it is {ms} ms: brokers take {} at most, 49 days", u32::MAX));
    }
    Ok(ms.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        properties: PropertyArgs,
    }

    fn given(args: &[&str]) -> Result<Properties, Failure> {
        Cli::parse_from([&["x"], args].concat()).properties.properties()
    }

    #[test]
    fn headers_are_text_and_may_hold_anything_after_the_first_equals_sign() {
        let properties = given(&["--header", "a=b=c", "--header", "e="]).unwrap();
        assert_eq!(properties.header("a"), Some(&Value::text("b=c")));
        assert_eq!(properties.header("e"), Some(&Value::text("")));
        assert_eq!(given(&[]).unwrap().headers, None);
    }

    #[test]
    fn wrong_headers_are_wrong_usage() {
        for (args, words) in [
            (vec!["--header", "novalue"], "has no '='"),
            (vec!["--header", "=v"], "is empty"),
            (vec!["--header", "a=1", "--header", "a=2"], "twice"),
            (vec!["--header-file", "/nonexistent"], "/nonexistent"),
        ] {
            let failure = given(&args).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains(words), "{failure}");
        }
    }

    #[test]
    fn a_header_file_gives_types() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, r#"{"n":-1,"f":1.5,"b":true,"z":null,"l":["x",{"k":2}],"s":"t"}"#).unwrap();
        let properties = given(&["--header-file", path, "--header", "s=over"]).unwrap();
        let inner = Value::Table(Table::from([("k".into(), Value::I64(2))]));
        assert_eq!(properties.header("n"), Some(&Value::I64(-1)));
        assert_eq!(properties.header("f"), Some(&Value::F64(1.5)));
        assert_eq!(properties.header("b"), Some(&Value::Bool(true)));
        assert_eq!(properties.header("z"), Some(&Value::Null));
        assert_eq!(properties.header("l"), Some(&Value::List(vec![Value::text("x"), inner])));
        assert_eq!(properties.header("s"), Some(&Value::text("over")), "a flag overrides the file");
        for (text, words) in [("[1]", "no JSON object"), ("{", "not JSON"), (r#"{"n":1e20}"#, "")] {
            std::fs::write(path, text).unwrap();
            match given(&["--header-file", path]) {
                Ok(properties) => assert_eq!(properties.header("n"), Some(&Value::F64(1e20))),
                Err(failure) => assert!(failure.message.contains(words), "{failure}"),
            }
        }
        std::fs::write(path, r#"{"n":18446744073709551615}"#).unwrap();
        assert!(given(&["--header-file", path]).unwrap_err().message.contains("too large"));
    }

    #[test]
    fn an_expiration_is_in_milliseconds_on_the_wire() {
        assert_eq!(parse_expiration("250"), Ok("250".into()));
        assert_eq!(parse_expiration("30s"), Ok("30000".into()));
        assert!(parse_expiration("abc").is_err());
        assert!(parse_expiration("60days").is_err());
    }
}
