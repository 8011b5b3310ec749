//! A pool of long-lived children, as configured.

use std::time::Duration;

use super::{Section, command};
use crate::handler::pipe::Framing;

/// Children that are each given many messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeConfig {
    /// Never empty.
    pub program: String,
    pub args: Vec<String>,
    /// Time for one message, then its child's process group gets TERM.
    pub timeout: Duration,
    /// Time between TERM and KILL.
    pub kill_grace: Duration,
    /// At least 1.
    pub children: u16,
    /// Messages that a child has at the same time, at least 1.
    pub in_flight: u16,
    pub framing: Framing,
}

const PIPE: &str = "expected a list of texts, the program first, as in [\"python3\", \"worker.py\"]";
const NUMBER: &str = "expected a whole number from 1 to 65535";

impl PipeConfig {
    /// Messages that all children together have at the same time.
    pub fn slots(&self) -> u16 {
        self.children.saturating_mul(self.in_flight)
    }
}

/// `concurrency` is how many children there are unless `pipe_children` says otherwise.
pub(super) fn read(
    worker: &mut Section,
    timeout: Duration,
    kill_grace: Duration,
    concurrency: u16,
) -> Option<PipeConfig> {
    let range = || 1..=u32::from(u16::MAX);
    // Cannot fail: the range ends at `u16::MAX`.
    let small = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    let children = worker.whole("pipe_children", range(), NUMBER);
    let children = children.map_or(concurrency, |children| small(children.value));
    let in_flight = worker.whole("pipe_in_flight", range(), NUMBER);
    let in_flight = in_flight.map_or(1, |in_flight| small(in_flight.value));
    let framing = worker.word("pipe_framing").map(|framing| framing.value).unwrap_or_default();
    let given = worker.texts("pipe", false, PIPE)?;
    let (program, args) = command(worker, given, PIPE)?;
    Some(PipeConfig { program, args, timeout, kill_grace, children, in_flight, framing })
}
