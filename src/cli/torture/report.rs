//! What a torture says in the end.

use serde::Serialize;
use tokio::time::Instant;

use crate::cli::Failure;

use super::{TortureArgs, faults::Happened, plan::Plan, tally::Tally};

/// Counts of messages, unless said otherwise.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    handler: &'static str,
    queue_type: &'static str,
    messages: u32,
    /// Copies that the broker has confirmed, all numbers together.
    sent: u64,
    workers: u32,
    kills: u32,
    cuts: u32,
    /// Kills and cuts at whose moment there was work.
    amid_work: u32,
    handled: u64,
    dead_lettered: u64,
    /// Never handled, but in the dead-letter queue: the broker's own delivery limit moves messages there.
    kept_by_broker: u64,
    lost: u64,
    /// Runs that were cut off, as far as the ledger tells.
    interrupted: u64,
    /// Second effects that were told so; null where effects cannot be seen.
    doubled_inside: Option<u64>,
    doubled_outside: Option<u64>,
    seconds: f64,
    seed: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wrong: Vec<String>,
}

/// How it came to an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Messages in the dead-letter queue.
    pub(super) letters: u32,
    /// Messages that nobody took from the queue.
    pub(super) left: u32,
    pub(super) all_ended: bool,
    pub(super) started: Instant,
}

impl Report {
    pub(super) fn new(
        args: &TortureArgs,
        plan: &Plan,
        tally: &Tally,
        sent: u64,
        happened: Happened,
        end: End,
    ) -> Self {
        let letters = u64::from(end.letters);
        let missing = tally.unknown + tally.unfinished;
        let kept_by_broker = letters.saturating_sub(tally.dead).min(missing);
        let letters_missing = tally.dead.saturating_sub(letters);
        let mut wrong = tally.named.clone();
        if letters_missing > 0 {
            wrong.push(format!("{letters_missing} dead messages are not in the dead-letter queue"));
        }
        if end.left > 0 {
            wrong.push(format!("{} messages are left in the queue", end.left));
        }
        if !end.all_ended {
            wrong.push("nothing moved any more before all was handled".to_owned());
        }
        Self {
            handler: plan.handler,
            queue_type: plan.queue_type.as_str(),
            messages: args.messages,
            sent,
            workers: args.workers,
            kills: happened.kills,
            cuts: happened.cuts,
            amid_work: happened.amid_work,
            handled: tally.handled,
            dead_lettered: tally.dead - letters_missing,
            kept_by_broker,
            lost: missing - kept_by_broker + tally.without_effect + letters_missing,
            interrupted: tally.interrupted,
            doubled_inside: tally.doubled_inside,
            doubled_outside: tally.doubled_outside,
            seconds: end.started.elapsed().as_secs_f64(),
            seed: plan.seed,
            wrong,
        }
    }

    pub(super) fn print(&self, json: bool) {
        if json {
            // Numbers, texts and lists of them always serialise.
            println!("{}", serde_json::to_string(self).unwrap_or_default());
            return;
        }
        let line = |name: &str, count: u64, rest: &str| println!("{name:<20}{count:>10}{rest}");
        line(
            "messages",
            self.messages.into(),
            &format!(", {} copies sent to a {} queue", self.sent, self.queue_type),
        );
        line("kills", self.kills.into(), &format!(" of {} workers ({} handler)", self.workers, self.handler));
        if self.cuts > 0 {
            line("cuts", self.cuts.into(), " of all connections");
        }
        line("amid work", self.amid_work.into(), " of these");
        line("handled", self.handled, "");
        line("dead-lettered", self.dead_lettered, "");
        if self.kept_by_broker > 0 {
            line("kept by broker", self.kept_by_broker, " in the dead-letter queue: its delivery limit");
        }
        line("interrupted runs", self.interrupted, "");
        match (self.doubled_inside, self.doubled_outside) {
            (Some(inside), Some(outside)) => {
                line("doubled", inside + outside, &format!(", {outside} of them outside the window"));
            }
            _ => println!("{:<20}{:>10}", "doubled", "unseen"),
        }
        line("lost", self.lost, "");
        println!("{:<20}{:>10.1} s", "time", self.seconds);
        println!("{:<20}{:>10}", "seed", self.seed);
    }

    /// # Errors
    ///
    /// What broke the promise.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let doubled = self.doubled_outside.unwrap_or_default();
        if self.lost == 0 && doubled == 0 && self.wrong.is_empty() {
            return Ok(());
        }
        let wrong = self.wrong.join("; ");
        Err(Failure::failed(format!("{} lost, {doubled} doubled outside the window: {wrong}", self.lost)))
    }
}
