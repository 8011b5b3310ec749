//! Which of the messages under way a returned one is, and when a confirm can be believed.
//!
//! The broker returns an unroutable message before it confirms it, in the order of publishing. lapin
//! hands each return out with whichever confirm comes next, which is often another message's. So
//! returns are matched to messages here, and a confirm is believed only when no return of its own
//! can still be hidden behind it:
//!
//! Each confirm takes one waiting return along, so at any time at least as many returns have been
//! handed out as returned messages have been confirmed, oldest return first. If the return of a
//! confirmed message is still hidden, then one of the older returns, which has been handed out,
//! belongs to an older message that is not confirmed. While there is no such message, every confirm
//! is final.

use std::collections::{BTreeMap, BTreeSet};

/// Messages under way, by the number under which they were published (counting up).
#[derive(Debug)]
pub(super) struct Pending<M> {
    entries: BTreeMap<u64, Entry<M>>,
    /// Returned, but not yet confirmed.
    returned: BTreeSet<u64>,
    /// Confirmed, but not yet taken out.
    confirmed: BTreeSet<u64>,
    next: u64,
}

#[derive(Debug)]
struct Entry<M> {
    message: M,
    /// The broker's code and text, once it was returned.
    returned: Option<String>,
    /// Acked or nacked, once it was confirmed.
    confirmed: Option<Answer>,
}

/// What the broker said about one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Acked,
    Nacked,
    Unroutable(String),
}

impl<M> Default for Pending<M> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), returned: BTreeSet::new(), confirmed: BTreeSet::new(), next: 0 }
    }
}

impl<M> Pending<M> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next message in the order of publishing. Returns its number.
    pub(super) fn add(&mut self, message: M) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, Entry { message, returned: None, confirmed: None });
        number
    }

    /// A return came along with some confirm: it is the oldest one that looks like it. Between
    /// messages that look the same it does not matter.
    pub(super) fn returned(&mut self, text: String, looks_like_it: impl Fn(&M) -> bool) {
        let found = self.entries.iter_mut().find(|(_, e)| e.returned.is_none() && looks_like_it(&e.message));
        if let Some((number, entry)) = found {
            entry.returned = Some(text);
            if entry.confirmed.is_none() {
                self.returned.insert(*number);
            }
        }
    }

    pub(super) fn confirmed(&mut self, number: u64, answer: Answer) {
        self.returned.remove(&number);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.confirmed = Some(answer);
            self.confirmed.insert(number);
        }
    }

    /// Takes out one message whose fate is final.
    pub(super) fn pop_final(&mut self) -> Option<(M, Answer)> {
        let doubt_from = self.returned.first().copied().unwrap_or(u64::MAX);
        let is_returned = |number: &u64| self.entries.get(number).is_some_and(|e| e.returned.is_some());
        let number =
            self.confirmed.iter().copied().find(|number| *number < doubt_from || is_returned(number))?;
        self.confirmed.remove(&number);
        let entry = self.entries.remove(&number)?;
        let answer = match entry.returned {
            Some(text) => Answer::Unroutable(text),
            None => entry.confirmed?,
        };
        Some((entry.message, answer))
    }

    /// Takes out one message that was not published after all.
    pub(super) fn take(&mut self, number: u64) -> Option<M> {
        self.returned.remove(&number);
        self.confirmed.remove(&number);
        self.entries.remove(&number).map(|entry| entry.message)
    }

    /// Takes out everything: no answer will come any more.
    pub(super) fn take_all(&mut self) -> Vec<M> {
        self.returned.clear();
        self.confirmed.clear();
        std::mem::take(&mut self.entries).into_values().map(|entry| entry.message).collect()
    }
}

#[cfg(test)]
mod tests;
