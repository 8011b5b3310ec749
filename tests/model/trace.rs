//! What happened, line by line, for people.

use std::time::Duration;

use crate::invariants::Tally;

/// Kept only when somebody will read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(Option<Vec<String>>);

impl Trace {
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    pub fn note(&mut self, now: Duration, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!("{:>11.6} {}", now.as_secs_f64(), line()));
        }
    }

    pub fn lines(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// What was promised and did not hold, and how to see it again.
#[derive(Debug)]
pub struct Failure {
    pub why: String,
    /// The variables and the name of the test that has it again.
    pub again: String,
    pub setting: String,
    pub trace: Trace,
}

/// So many of the last lines are shown.
const LINES_MAX: usize = 250;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.trace.lines();
        let before = lines.len().saturating_sub(LINES_MAX);
        let (variables, test) = self.again.rsplit_once(' ').unwrap_or_default();
        writeln!(f, "{}", self.why)?;
        writeln!(f, "again: {variables} cargo test --test model {test} -- --nocapture")?;
        writeln!(f, "{}\n({before} earlier lines)", self.setting)?;
        lines[before..].iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { runs, successes, windows, takeovers, acks, dead, lost_claims, pruned } = self;
        write!(
            f,
            "{runs} runs, {successes} successes, {windows} of them repeated because they were cut off before their \
             finish was recorded; {takeovers} takeovers, {lost_claims} lost claims, {dead} dead letters, {pruned} \
             rows pruned, {acks} acks"
        )
    }
}
