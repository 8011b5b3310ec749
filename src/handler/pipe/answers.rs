//! Messages, and the answers that children owe for them.

use std::collections::VecDeque;

use tokio::{sync::oneshot, time::Instant};

use super::{
    super::{Verdict, Work},
    Framing,
    codec::Replies,
};

/// One message on its way to a child.
#[derive(Debug)]
pub(super) struct Request {
    pub work: Work,
    pub answer: oneshot::Sender<Verdict>,
}

impl Request {
    pub(super) fn answer(self, verdict: Verdict) {
        // An error means that nobody waits for it any more.
        let _ = self.answer.send(verdict);
    }
}

/// A message that a child has and has not answered.
#[derive(Debug)]
pub(super) struct Held {
    pub id: u64,
    pub request: Request,
    pub deadline: Instant,
}

/// What a child has to answer, and what it says.
#[derive(Debug)]
pub(super) struct Answers {
    pub replies: Replies,
    /// In the order they were handed over, and so of their deadlines.
    pub held: VecDeque<Held>,
    /// It has answered something.
    pub proven: bool,
}

impl Held {
    pub(super) fn is_late(&self, at: Instant) -> bool {
        self.deadline <= at
    }
}

impl Answers {
    pub(super) fn new(framing: Framing) -> Self {
        Self { replies: Replies::new(framing), held: VecDeque::new(), proven: false }
    }

    /// Passes on every reply that has been read.
    ///
    /// # Errors
    ///
    /// What the child wrote instead of one.
    pub(super) fn take(&mut self) -> Result<(), String> {
        while let Some(reply) = self.replies.next() {
            let reply = reply?;
            let Some(at) = self.held.iter().position(|held| held.id == reply.id) else {
                return Err(format!("a reply to the message {}, which it does not have", reply.id));
            };
            self.proven = true;
            if let Some(held) = self.held.remove(at) {
                held.request.answer(reply.verdict);
            }
        }
        Ok(())
    }
}
