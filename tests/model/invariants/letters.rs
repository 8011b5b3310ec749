//! Dead letters and waiting copies: each for the reason that it names, and whole.

use ackonce::worker::{
    core::{Letter, Purpose},
    decide::Reason,
    policy::{OnInterrupted, OnMissingKey},
};

use super::{Checked, Invariants};
use crate::{broker::Class, process::Process};

impl Invariants {
    pub(super) fn letter(&mut self, letter: &Letter, process: Option<&Process>) -> Checked {
        let class = Class::of(&letter.message);
        let key = letter.key.as_ref().map(|key| key.as_str().to_owned());
        match letter.purpose {
            Purpose::Delay(_) => {
                let Some(key) = key else { return Err(format!("{class:?} has no key, and waits")) };
                self.delayed.insert((key, letter.attempt));
                Ok(())
            }
            Purpose::Dead(reason) => {
                self.tally.dead += 1;
                let checked = self.reason(reason, letter, &class, process);
                if let Some(key) = key {
                    self.buried.insert((key, letter.attempt));
                }
                checked
            }
        }
    }

    fn reason(&self, reason: Reason, letter: &Letter, class: &Class, process: Option<&Process>) -> Checked {
        let policy = &self.policy;
        let holds = match reason {
            Reason::MissingKey => class.key.is_none() && policy.on_missing_key == OnMissingKey::DeadLetter,
            Reason::Mismatch => letter.key.as_ref().is_some_and(|key| self.done_keys.contains(key.as_str())),
            Reason::MaxAttempts => letter.attempt >= policy.retry.max_attempts,
            Reason::GaveUp => self.gave_up.contains(&class.body),
            Reason::Interrupted => policy.on_interrupted == OnInterrupted::DeadLetter,
        };
        if !holds {
            return Err(format!("{class:?} was dead-lettered, and {} is not true", reason.as_str()));
        }
        // One that lost its lock may not know what became of it, and one that is dead cannot.
        let knows = process.is_some_and(|process| !process.is_zombie);
        let row = letter.key.as_ref().and_then(|key| self.rows.get(key.as_str()));
        if knows && reason != Reason::Mismatch && row.is_some_and(super::Row::is_done) {
            return Err(format!("{class:?} was dead-lettered, and is done"));
        }
        Ok(())
    }
}
