//! What the writer is asked for.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{super::apply::Job, ROWS_MAX};
use crate::{
    crash_point::{CrashPoint, reach},
    ledger::{Applied, Apply, Claim, ClaimRequest, Finish, Finished, LedgerError, Millis, Prune, Pruned},
};

/// One call, on its way to the writer.
pub(in super::super) enum Op {
    Claim(Call<ClaimRequest, Claim>),
    Finish(Call<Finish, Finished>),
    Apply(Call<Apply, Applied>, Job),
    Prune { prune: Prune, now: Millis, answer: Pruned, reply: Reply<Pruned> },
}

/// A claim or a finish of some rows.
pub(in super::super) struct Call<Request, Answer> {
    pub(in super::super) owner: Arc<str>,
    pub(in super::super) requests: Vec<Request>,
    pub(in super::super) now: Millis,
    /// In the order of the requests; the caller's once it is durable.
    pub(in super::super) answers: Vec<Answer>,
    pub(in super::super) reply: Reply<Vec<Answer>>,
}

pub(in super::super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

impl Op {
    pub(super) fn rows(&self) -> usize {
        match self {
            Op::Claim(call) => call.requests.len(),
            Op::Finish(call) => call.requests.len(),
            Op::Apply(call, _) => call.requests.len(),
            // A step of pruning has a transaction of its own.
            Op::Prune { .. } => ROWS_MAX,
        }
    }

    /// Claims and finishes in it; none in a step of pruning.
    pub(super) fn messages(&self) -> usize {
        match self {
            Op::Claim(_) | Op::Finish(_) | Op::Apply(..) => self.rows(),
            Op::Prune { .. } => 0,
        }
    }

    pub(super) fn queued(&self) {
        match self {
            Op::Claim(_) => reach(CrashPoint::ClaimQueued),
            Op::Finish(_) => reach(CrashPoint::FinishQueued),
            Op::Apply(..) => reach(CrashPoint::EffectQueued),
            Op::Prune { .. } => {}
        }
    }

    pub(super) fn written(&self) {
        match self {
            Op::Claim(_) => reach(CrashPoint::ClaimWritten),
            Op::Finish(_) => reach(CrashPoint::FinishWritten),
            Op::Apply(..) => reach(CrashPoint::EffectRecorded),
            Op::Prune { .. } => {}
        }
    }

    pub(super) fn committed(&self) {
        match self {
            Op::Claim(_) => reach(CrashPoint::ClaimCommitted),
            Op::Finish(_) => reach(CrashPoint::FinishCommitted),
            Op::Apply(..) => reach(CrashPoint::EffectCommitted),
            Op::Prune { .. } => {}
        }
    }

    /// Answers the caller; one that has gone away hears nothing.
    pub(super) fn reply(self, written: Result<(), LedgerError>) {
        match self {
            Op::Claim(call) => drop(call.reply.send(written.map(|()| call.answers))),
            Op::Finish(call) => drop(call.reply.send(written.map(|()| call.answers))),
            Op::Apply(call, _) => drop(call.reply.send(written.map(|()| call.answers))),
            Op::Prune { answer, reply, .. } => drop(reply.send(written.map(|()| answer))),
        }
    }
}
