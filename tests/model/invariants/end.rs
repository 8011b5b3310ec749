//! What must hold when everything has healed and nothing is left to do, and when rows were pruned.

use std::{collections::HashMap, time::Duration};

use ackonce::ledger::{Millis, OVERDUE, Row as Shown, State};

use super::{Checked, Invariants, rows::Row};
use crate::{
    broker::{Broker, Class},
    plan::{Plan, Sort, Temper},
};

impl Invariants {
    /// Rows are gone: each was old enough, and no claim of a living owner. Its key is new again.
    pub fn pruned(&mut self, removed: &[Shown], retention: Duration, now: Millis) -> Checked {
        for shown in removed {
            let key = &shown.message_id;
            let retention_ms = retention.as_millis() as Millis;
            let kept_ms = match shown.state {
                State::Done | State::Dead => retention_ms,
                State::Failed | State::Processing => retention_ms * OVERDUE,
            };
            if now - shown.updated_ms < kept_ms {
                return Err(format!("{key}: pruned before its time: {shown:?}"));
            }
            self.tally.pruned += 1;
            let row = self.rows.remove(key).unwrap_or_default();
            if row.is_held_by_the_living(&self.living) {
                return Err(format!("{key}: pruned, while a living owner holds it"));
            }
            self.close_books(key, &row)?;
        }
        Ok(())
    }

    fn close_books(&mut self, key: &str, row: &Row) -> Checked {
        self.tally.windows += row.windows + u64::from(row.is_untold());
        row.count().map_err(|why| format!("{key}: {why}"))
    }

    /// Every message is done, or lies in the dead-letter queue; every row says so; every effect is counted.
    pub fn end(&mut self, broker: &Broker, plan: &Plan, rows: &[Shown], calm: bool) -> Checked {
        for sent in &plan.messages {
            let class = Class { key: sent.key.clone(), body: sent.body.clone() };
            let dead = broker.dead().iter().any(|stored| self.is_same(&class, &stored.class()));
            if !self.is_done(&class) && !dead {
                return Err(format!("{class:?} is lost"));
            }
            if calm {
                self.end_as_planned(&class, dead, plan)?;
            }
        }
        // A key that was made up for one delivery is left behind when that delivery comes again. And one who does
        // not know yet that its session has ended may claim what another one has dead-lettered meanwhile.
        let is_left_behind = |row: &&Shown| {
            row.message_id.starts_with("generated:") || (!calm && is_dead(broker, &row.message_id))
        };
        let unfinished = |row: &&Shown| matches!(row.state, State::Processing | State::Failed);
        if let Some(row) = rows.iter().filter(unfinished).find(|row| !is_left_behind(row)) {
            return Err(format!("nothing is left to do, and there is {row:?}"));
        }
        let books = std::mem::take(&mut self.rows);
        for (key, row) in &books {
            self.close_books(key, row)?;
        }
        if self.sort == Sort::Applying && self.tally.windows > 0 {
            return Err(format!("{} effects inside the ledger were repeated", self.tally.windows));
        }
        self.rows = books;
        Ok(())
    }

    /// Without faults there is no doubt what becomes of a key's only body.
    fn end_as_planned(&self, class: &Class, dead: bool, plan: &Plan) -> Checked {
        let bodies = |sent: &&crate::plan::Sent| sent.key == class.key && sent.body != class.body;
        if class.key.is_none() || plan.messages.iter().any(|sent| bodies(&sent)) {
            return Ok(());
        }
        let attempts_max = plan.policy.retry.max_attempts;
        let expected = match plan.tempers[&class.body] {
            Temper::Succeeds | Temper::CannotStart(_) => (true, false),
            Temper::FailsFirst(n) if n < attempts_max => (true, false),
            // Copies that come after it was dead have another `attempts_max` each.
            Temper::FailsFirst(_) | Temper::Kills(_) => return Ok(()),
            Temper::Fails | Temper::GivesUpAfter(_) => (false, true),
        };
        let is = (self.is_done(class), dead);
        if is == expected {
            Ok(())
        } else {
            Err(format!("{class:?} is (done, dead) {is:?}, not {expected:?}"))
        }
    }

    /// The effects that are in the ledger's own tables, against the books: each success once.
    pub fn effects(&self, effects: &HashMap<String, u32>) -> Checked {
        let recorded: u64 = effects.values().map(|count| u64::from(*count)).sum();
        if recorded != self.tally.successes {
            return Err(format!("{recorded} effects are there, of {} successes", self.tally.successes));
        }
        for (key, row) in self.rows.iter().filter(|(_, row)| row.is_done()) {
            if !effects.contains_key(key) {
                return Err(format!("{key}: done, without its effect: {row:?}"));
            }
        }
        Ok(())
    }
}

fn is_dead(broker: &Broker, row: &str) -> bool {
    broker.dead().iter().any(|stored| match stored.class().key {
        Some(key) => row == key || row.starts_with(&format!("{key}+")),
        None => row.starts_with("body:"),
    })
}
