//! One table of settings, read key by key: wrong types and unknown keys become problems.

mod typed;

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::problem::{Problems, nearest, quoted};

/// Where a setting was written; its sentence begins so.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    File,
    Flag(&'static str),
    Env(String),
}

/// What was written.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    Toml(Value),
    /// One text: an environment variable, or a flag with one value.
    Text(String),
    /// The values of a flag that takes several.
    Texts(Vec<String>),
}

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub origin: Origin,
    pub raw: Raw,
}

/// A value that was given, and how to begin a sentence about it: `[[worker]] #2: prefetch = 0`.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub value: T,
    pub said: String,
}

/// The settings of one table. What is never asked for is unknown.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// `[broker]`, `[[worker]] #2`; empty at the top level.
    place: String,
    settings: BTreeMap<String, Setting>,
    asked: Vec<&'static str>,
    problems: Problems,
}

impl Section {
    pub(super) fn new(place: impl Into<String>, table: Table) -> Self {
        let setting = |value| Setting { origin: Origin::File, raw: Raw::Toml(value) };
        Self {
            place: place.into(),
            settings: table.into_iter().map(|(key, value)| (key, setting(value))).collect(),
            asked: Vec::new(),
            problems: Problems::default(),
        }
    }

    /// Replaces what was given for `key`.
    pub(super) fn set(&mut self, key: &str, setting: Setting) {
        self.settings.insert(key.to_owned(), setting);
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.settings.remove(key);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    pub(super) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Whether `key` was given, and not in the file.
    pub(super) fn is_override(&self, key: &str) -> bool {
        self.settings.get(key).is_some_and(|setting| !matches!(setting.origin, Origin::File))
    }

    /// Whether `key` was given as exactly that text.
    pub(super) fn is_text(&self, key: &str, text: &str) -> bool {
        match self.settings.get(key).map(|setting| &setting.raw) {
            Some(Raw::Toml(Value::String(given)) | Raw::Text(given)) => given == text,
            _ => false,
        }
    }

    /// Makes a key known without reading it.
    pub(super) fn know(&mut self, key: &'static str) {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
    }

    /// How a sentence about this whole table, or a key that is not there, begins.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn problem(&mut self, sentence: impl AsRef<str>) {
        self.problems.push(sentence);
    }

    /// A problem of this table as a whole.
    pub(super) fn problem_here(&mut self, sentence: &str) {
        let sentence = self.here(sentence);
        self.problems.push(sentence);
    }

    /// Hands over the problems, with one for each key that nobody asked for.
    pub(super) fn finish(mut self, problems: &mut Problems) {
        let unknown: Vec<_> = self.settings.keys().cloned().collect();
        for key in unknown {
            let known = self.asked.iter().copied();
            let hint = match nearest(&key, known.clone()) {
                Some(near) => format!("(did you mean '{near}'?)"),
                None => format!("(known here: {})", known.collect::<Vec<_>>().join(", ")),
            };
            let key = quoted(&key);
            self.problem_here(&format!("unknown key '{}' {hint}", key.trim_matches('"')));
        }
        problems.append(self.problems);
    }

    fn take(&mut self, key: &'static str) -> Option<Setting> {
        self.know(key);
        self.settings.remove(key)
    }

    fn given<T>(&self, key: &str, setting: &Setting, value: T) -> Given<T> {
        Given { value, said: self.said(key, setting) }
    }

    fn refuse<T>(&mut self, key: &str, setting: &Setting, expected: &str) -> Option<T> {
        let said = self.said(key, setting);
        self.problems.push(format!("{said}: {expected}"));
        None
    }

    fn said(&self, key: &str, setting: &Setting) -> String {
        // Whatever stands in a URL's place may be a password, and a header may be a token.
        let secret = matches!(key, "url" | "password" | "http" | "http_headers");
        let value = if secret { "***".to_owned() } else { shown(&setting.raw) };
        match &setting.origin {
            Origin::File => self.here(&format!("{key} = {value}")),
            Origin::Flag(flag) => format!("--{flag} {value}"),
            Origin::Env(name) => format!("{name}={value}"),
        }
    }

    fn here(&self, sentence: &str) -> String {
        if self.place.is_empty() { sentence.to_owned() } else { format!("{}: {sentence}", self.place) }
    }
}

fn shown(raw: &Raw) -> String {
    match raw {
        Raw::Text(text) | Raw::Toml(Value::String(text)) => quoted(text),
        Raw::Texts(texts) => texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" "),
        Raw::Toml(Value::Array(_)) => "[…]".to_owned(),
        Raw::Toml(Value::Table(_)) => "{…}".to_owned(),
        Raw::Toml(Value::Integer(number)) => number.to_string(),
        Raw::Toml(Value::Float(number)) => format!("{number:?}"),
        Raw::Toml(Value::Boolean(on)) => on.to_string(),
        Raw::Toml(Value::Datetime(time)) => time.to_string(),
    }
}
