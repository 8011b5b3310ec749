//! The account: what became of each number.

use std::{fs, io::ErrorKind};

use crate::{
    cli::Failure,
    ledger::{State, sqlite::SqliteReader},
};

use super::plan::Evidence;

/// So many lost or doubled messages are named.
const NAMED_MAX: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Done, and where it can be seen, with an effect.
    pub(super) handled: u64,
    pub(super) dead: u64,
    /// In the ledger, but neither done nor dead.
    pub(super) unfinished: u64,
    /// Not in the ledger at all.
    pub(super) unknown: u64,
    /// Done, but without an effect.
    pub(super) without_effect: u64,
    /// Runs that were cut off, as far as the ledger tells: each is an attempt that neither failed nor was the last.
    pub(super) interrupted: u64,
    /// Effects beyond the first that were told so; `None` where effects cannot be seen.
    pub(super) doubled_inside: Option<u64>,
    /// Effects beyond the first that nobody had announced.
    pub(super) doubled_outside: Option<u64>,
    /// Some of those that should not be.
    pub(super) named: Vec<String>,
}

/// One run that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Effect {
    number: u32,
    attempt: u32,
    /// It was told that the attempt before was interrupted.
    told: bool,
}

impl Tally {
    pub(super) fn of(messages: u32, evidence: &Evidence, reader: &SqliteReader) -> Result<Self, Failure> {
        let mut effects = match evidence {
            Evidence::Lines(file) => {
                let text = match fs::read_to_string(file) {
                    Ok(text) => text,
                    Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                    Err(error) => {
                        return Err(Failure::failed(format!("cannot read {}: {error}", file.display())));
                    }
                };
                Some(text.lines().map(parse).collect::<Result<Vec<_>, _>>()?)
            }
            Evidence::Rows => {
                let mut rows = Vec::new();
                let mut strange = None;
                let note = |key: &str, attempt: u32| match key.parse() {
                    Ok(number) => rows.push(Effect { number, attempt, told: false }),
                    Err(_) => strange = Some(key.to_owned()),
                };
                reader.each_effect(note).map_err(Failure::failed)?;
                if let Some(key) = strange {
                    return Err(Failure::failed(format!(
                        "an effect of a message '{key}' that was never sent"
                    )));
                }
                Some(rows)
            }
            Evidence::LedgerOnly => None,
        };
        let mut tally = Self::default();
        let mut seen = vec![false; messages as usize];
        if let Some(effects) = &mut effects {
            tally.count_effects(effects, &mut seen);
        }
        tally.count_rows(reader, effects.is_some().then_some(&seen), messages)?;
        Ok(tally)
    }

    fn count_effects(&mut self, effects: &mut [Effect], seen: &mut [bool]) {
        effects.sort_unstable();
        let (mut inside, mut outside) = (0, 0);
        for effects in effects.chunk_by(|a, b| a.number == b.number) {
            let number = effects[0].number;
            if let Some(seen) = seen.get_mut(number as usize) {
                *seen = true;
            }
            let unannounced = effects.iter().filter(|effect| !effect.told).count().saturating_sub(1);
            let same_attempt = effects.windows(2).filter(|two| two[0].attempt == two[1].attempt).count();
            let wrong = unannounced.max(same_attempt);
            if wrong > 0 {
                self.name(format!("{number} took effect {} times", effects.len()));
            }
            outside += wrong as u64;
            inside += (effects.len() - 1 - wrong) as u64;
        }
        (self.doubled_inside, self.doubled_outside) = (Some(inside), Some(outside));
    }

    fn count_rows(
        &mut self,
        reader: &SqliteReader,
        with_effect: Option<&Vec<bool>>,
        messages: u32,
    ) -> Result<(), Failure> {
        let mut rows = 0;
        let count = |fate: crate::ledger::sqlite::Fate<'_>| {
            rows += 1;
            let number: Option<usize> = fate.key.parse().ok();
            let has_effect = match (with_effect, number) {
                (None, _) => true,
                (Some(seen), number) => number.and_then(|number| seen.get(number)) == Some(&true),
            };
            match fate.state {
                State::Done if has_effect => self.handled += 1,
                State::Done => {
                    self.without_effect += 1;
                    self.name(format!("{} is done without an effect", fate.key));
                }
                State::Dead => self.dead += 1,
                State::Processing | State::Failed => {
                    self.unfinished += 1;
                    self.name(format!("{} is {}", fate.key, fate.state.as_str()));
                }
            }
            let last = u32::from(fate.state == State::Done);
            self.interrupted += u64::from(fate.attempts.saturating_sub(last).saturating_sub(fate.failures));
        };
        reader.each_fate(count).map_err(Failure::failed)?;
        self.unknown = u64::from(messages).saturating_sub(rows);
        Ok(())
    }

    fn name(&mut self, what: String) {
        if self.named.len() < NAMED_MAX {
            self.named.push(what);
        }
    }
}

fn parse(line: &str) -> Result<Effect, Failure> {
    let mut words = line.split(' ');
    let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
    match (number(), number(), number()) {
        (Some(number), Some(attempt), Some(told)) => Ok(Effect { number, attempt, told: told == 1 }),
        _ => Err(Failure::failed(format!("the file of effects has a line '{line}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(lines: &[&str]) -> (u64, u64) {
        let mut effects: Vec<Effect> = lines.iter().map(|line| parse(line).unwrap()).collect();
        let mut tally = Tally::default();
        tally.count_effects(&mut effects, &mut [false; 9]);
        (tally.doubled_inside.unwrap(), tally.doubled_outside.unwrap())
    }

    #[test]
    fn a_second_effect_is_inside_the_window_only_if_it_was_told() {
        assert_eq!(doubled(&["1 1 0", "2 1 0"]), (0, 0));
        // However late the cut-off command's own line comes.
        assert_eq!(doubled(&["1 2 1", "1 1 0"]), (1, 0));
        assert_eq!(doubled(&["1 1 0", "1 2 1", "1 3 1"]), (2, 0));
        assert_eq!(doubled(&["1 2 1"]), (0, 0), "the first attempt was cut off before it took effect");
        assert_eq!(doubled(&["1 1 0", "1 2 0"]), (0, 1));
        assert_eq!(doubled(&["1 1 0", "1 1 0"]), (0, 1));
        assert_eq!(doubled(&["1 2 1", "1 2 1"]), (0, 1), "one attempt ran twice");
    }

    #[test]
    fn a_torn_line_is_an_error() {
        assert_eq!(parse("1 1").unwrap_err().code, 1);
    }
}
