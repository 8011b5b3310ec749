//! Reading one key of a section as a type: each method names the key and says what is expected.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, de::IntoDeserializer, de::value::Error as ValueError};
use toml::{Table, Value};

use super::{Given, Raw, Section, Setting};
use crate::config::retry::for_people;

/// Each returns `None` if the key was not given, or was wrong; then a problem says so.
impl Section {
    pub(in crate::config) fn text(&mut self, key: &'static str, expected: &str) -> Option<Given<String>> {
        let setting = self.take(key)?;
        match setting.raw {
            Raw::Toml(Value::String(ref text)) | Raw::Text(ref text) => {
                let value = text.clone();
                Some(self.given(key, &setting, value))
            }
            _ => self.refuse(key, &setting, expected),
        }
    }

    pub(in crate::config) fn whole(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        expected: &str,
    ) -> Option<Given<u32>> {
        let setting = self.take(key)?;
        let number = match &setting.raw {
            Raw::Toml(Value::Integer(number)) => Some(*number),
            Raw::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number.and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(number) => Some(self.given(key, &setting, number)),
            None => self.refuse(key, &setting, expected),
        }
    }

    pub(in crate::config) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        expected: &str,
    ) -> Option<Given<f64>> {
        let setting = self.take(key)?;
        let number = match &setting.raw {
            // Only small numbers pass the range, and those are exact.
            Raw::Toml(Value::Integer(number)) => Some(*number as f64),
            Raw::Toml(Value::Float(number)) => Some(*number),
            Raw::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(self.given(key, &setting, number)),
            None => self.refuse(key, &setting, expected),
        }
    }

    pub(in crate::config) fn time(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Given<Duration>> {
        let setting = self.take(key)?;
        let time = match &setting.raw {
            Raw::Toml(Value::String(text)) | Raw::Text(text) => humantime::parse_duration(text.trim()).ok(),
            _ => None,
        };
        let within =
            || format!("expected a time from {} to {}", for_people(*range.start()), for_people(*range.end()));
        match time {
            Some(time) if range.contains(&time) => Some(self.given(key, &setting, time)),
            Some(_) => self.refuse(key, &setting, &within()),
            None => self.refuse(key, &setting, r#"expected a time with its unit, as in "30s", "5m" or "7d""#),
        }
    }

    pub(in crate::config) fn switch(&mut self, key: &'static str, expected: &str) -> Option<Given<bool>> {
        let setting = self.take(key)?;
        let on = match &setting.raw {
            Raw::Toml(Value::Boolean(on)) => Some(*on),
            Raw::Text(text) => match text.trim() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        match on {
            Some(on) => Some(self.given(key, &setting, on)),
            None => self.refuse(key, &setting, expected),
        }
    }

    /// One word of an enum; its words are those it deserializes from.
    pub(in crate::config) fn word<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &'static str,
    ) -> Option<Given<T>> {
        let setting = self.take(key)?;
        let text = match &setting.raw {
            Raw::Toml(Value::String(text)) | Raw::Text(text) => text.trim(),
            _ => "",
        };
        match T::deserialize(IntoDeserializer::<ValueError>::into_deserializer(text)) {
            Ok(value) => Some(self.given(key, &setting, value)),
            Err(error) => {
                // "unknown variant `x`, expected `a` or `b`": the value is named already.
                let error = error.to_string();
                let words = error.rsplit_once(", expected ").map_or(error.as_str(), |(_, words)| words);
                self.refuse(key, &setting, &format!("expected {}", words.replace('`', "")))
            }
        }
    }

    /// A list of texts. `lone` says whether the file may hold a single text instead.
    pub(in crate::config) fn texts(
        &mut self,
        key: &'static str,
        lone: bool,
        expected: &str,
    ) -> Option<Given<Vec<String>>> {
        let setting = self.take(key)?;
        let texts = match &setting.raw {
            Raw::Toml(Value::String(text)) if lone => Some(vec![text.clone()]),
            Raw::Toml(Value::Array(values)) => all_texts(values),
            Raw::Toml(_) => None,
            Raw::Text(text) => words(text),
            Raw::Texts(texts) => Some(texts.clone()),
        };
        match texts {
            Some(texts) => Some(self.given(key, &setting, texts)),
            None => self.refuse(key, &setting, expected),
        }
    }

    /// Names and their values: a table of texts, or texts such as `Name: value`.
    pub(in crate::config) fn pairs(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Option<Given<Vec<(String, String)>>> {
        let setting = self.take(key)?;
        let pairs = match &setting.raw {
            Raw::Toml(value) => pairs_of_table(value),
            Raw::Texts(texts) => texts.iter().map(|text| pair(text)).collect(),
            Raw::Text(text) if text.trim_start().starts_with('{') => {
                toml_value(text).and_then(|value| pairs_of_table(&value))
            }
            Raw::Text(text) if text.trim_start().starts_with('[') => {
                words(text).and_then(|texts| texts.iter().map(|text| pair(text)).collect())
            }
            Raw::Text(text) => pair(text).map(|pair| vec![pair]),
        };
        match pairs {
            Some(pairs) => Some(self.given(key, &setting, pairs)),
            None => self.refuse(key, &setting, expected),
        }
    }

    /// A table inside this one, empty if it is not there.
    pub(in crate::config) fn table(&mut self, key: &'static str, place: String) -> Section {
        let table = match self.take(key) {
            None => Table::new(),
            Some(Setting { raw: Raw::Toml(Value::Table(table)), .. }) => table,
            Some(setting) => {
                let _: Option<()> = self.refuse(key, &setting, "expected a table of settings");
                Table::new()
            }
        };
        Section::new(place, table)
    }

    /// The tables `[[key]]`, numbered from 1 in their places.
    pub(in crate::config) fn tables(&mut self, key: &'static str) -> Vec<Section> {
        let Some(setting) = self.take(key) else { return Vec::new() };
        let expected = format!("expected tables, each begun by a line [[{key}]]");
        let Raw::Toml(Value::Array(values)) = &setting.raw else {
            let _: Option<()> = self.refuse(key, &setting, &expected);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, value) in values.iter().enumerate() {
            match value {
                Value::Table(table) => {
                    sections.push(Section::new(format!("[[{key}]] #{}", index + 1), table.clone()));
                }
                _ => {
                    let _: Option<()> = self.refuse(key, &setting, &expected);
                }
            }
        }
        sections
    }
}

/// A list in the environment: words between blanks, or a list as the file would have it.
fn words(text: &str) -> Option<Vec<String>> {
    if !text.trim_start().starts_with('[') {
        return Some(text.split_whitespace().map(str::to_owned).collect());
    }
    match toml_value(text) {
        Some(Value::Array(values)) => all_texts(&values),
        _ => None,
    }
}

/// One value, written as the file would have it.
fn toml_value(text: &str) -> Option<Value> {
    let mut table: Table = format!("value = {}", text.trim()).parse().ok()?;
    table.remove("value").filter(|_| table.is_empty())
}

fn pairs_of_table(value: &Value) -> Option<Vec<(String, String)>> {
    let pair = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    value.as_table()?.iter().map(pair).collect()
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

fn all_texts(values: &[Value]) -> Option<Vec<String>> {
    values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}
