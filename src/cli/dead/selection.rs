//! Which letters a command is about.

use std::collections::BTreeSet;

use clap::Args;

use crate::{cli::ledger::output::printable, key::Key, worker::desk::DeadLetter};

#[derive(Args, Clone, Debug)]
#[group(id = "selection", required = true, multiple = false)]
pub(super) struct Selection {
    /// Letters with this key; repeatable
    #[arg(long = "key", value_name = "KEY", value_parser = parse_key)]
    keys: Vec<Key>,

    /// Letters with this reason, such as max-attempts, gave-up, mismatch, or the broker's own
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// All letters
    #[arg(long)]
    all: bool,
}

/// A selection at work, which knows what it has not found yet.
pub(super) struct Chooser<'a> {
    selection: &'a Selection,
    missing: BTreeSet<&'a str>,
}

impl Selection {
    pub(super) fn chooser(&self) -> Chooser<'_> {
        Chooser { selection: self, missing: self.keys.iter().map(Key::as_str).collect() }
    }

    pub(super) fn is_all(&self) -> bool {
        self.all
    }
}

impl Chooser<'_> {
    /// The letters that are meant, at most `most`, and the others.
    pub(super) fn split(&mut self, letters: Vec<DeadLetter>, most: u64) -> [Vec<DeadLetter>; 2] {
        let mut chosen = Vec::new();
        let mut others = Vec::new();
        for letter in letters {
            if (chosen.len() as u64) < most && self.chooses(&letter) {
                chosen.push(letter);
            } else {
                others.push(letter);
            }
        }
        [chosen, others]
    }

    /// Says which keys were not there; nothing if all were.
    pub(super) fn complaint(&self) -> Option<String> {
        let keys: Vec<_> = self.missing.iter().map(|key| format!("'{}'", printable(key))).collect();
        (!keys.is_empty()).then(|| format!("no letter has the key {}", keys.join(", ")))
    }

    fn chooses(&mut self, letter: &DeadLetter) -> bool {
        let Selection { keys, reason, all } = self.selection;
        let key = letter.notes.key.as_deref();
        let has_key = key.is_some_and(|key| keys.iter().any(|wanted| wanted.as_str() == key));
        if let Some(key) = key.filter(|_| has_key) {
            self.missing.remove(key);
        }
        *all || has_key || (reason.is_some() && letter.notes.reason == *reason)
    }
}

pub(super) fn parse_key(text: &str) -> Result<Key, String> {
    Key::new(text).ok_or_else(|| "a key is not empty or blank".to_owned())
}
