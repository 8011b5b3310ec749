//! Named moments between a message's delivery and its ack at which a test makes the process die.
//!
//! Without the feature `crash-points`, which only the tests' own build has, [`reach`] is empty: the
//! program that is shipped has no such points. With it, `CRASH_AT_STEP=N` aborts the process at the N-th point that
//! it reaches, and each point reached is appended, as one line, to the file that `CRASH_TRACE` names.
//!
//! `abort` and not a panic: a panic is caught by the task it happens in, and unwinding closes files. An aborted
//! process does nothing more, as one that is killed.

/// One moment. Where two points stand beside each other, what lies between them is what is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// Deliveries were handed over; nothing is known of them yet.
    Delivered,
    /// Their keys are known, and claims are about to be asked for.
    ClaimAsked,
    /// The ledger has the claims before it, and has not begun.
    ClaimQueued,
    /// Claims are written, not committed.
    ClaimWritten,
    /// Claims are committed, not answered.
    ClaimCommitted,
    /// The handler is about to start.
    HandlerStarting,
    /// The handler has said what became of its message.
    HandlerReturned,
    /// The ledger is about to be told.
    FinishAsked,
    /// The ledger has the finishes before it, and has not begun.
    FinishQueued,
    /// Finishes are written, not committed.
    FinishWritten,
    /// Finishes are committed, not answered.
    FinishCommitted,
    /// Claim, run and finish are about to be asked for as one transaction.
    EffectAsked,
    /// The ledger has them before it, and has not begun.
    EffectQueued,
    /// Inside the savepoint: the handler has written its effect, and its row is not `done`.
    EffectWritten,
    /// Outside the savepoint: effect and row are written, not committed.
    EffectRecorded,
    /// Effect and row are committed, not answered.
    EffectCommitted,
    /// A dead letter or a delayed copy is about to be published.
    CopySending,
    /// The broker has confirmed the copy; the row does not say so yet.
    CopyConfirmed,
    /// The ledger's part is over: the ack is about to be handed to the session.
    AckAsked,
    /// The ack is about to be written.
    AckWriting,
    /// The ack is written, as far as this process can tell.
    AckWritten,
}

impl CrashPoint {
    /// In the order in which one message meets them.
    pub const ALL: [Self; 21] = [
        Self::Delivered,
        Self::ClaimAsked,
        Self::ClaimQueued,
        Self::ClaimWritten,
        Self::ClaimCommitted,
        Self::HandlerStarting,
        Self::HandlerReturned,
        Self::FinishAsked,
        Self::FinishQueued,
        Self::FinishWritten,
        Self::FinishCommitted,
        Self::EffectAsked,
        Self::EffectQueued,
        Self::EffectWritten,
        Self::EffectRecorded,
        Self::EffectCommitted,
        Self::CopySending,
        Self::CopyConfirmed,
        Self::AckAsked,
        Self::AckWriting,
        Self::AckWritten,
    ];
}

/// Marks a point.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn reach(_: CrashPoint) {}

/// Marks a point: traces it, and dies if this is the step to die at.
#[cfg(feature = "crash-points")]
pub(crate) fn reach(point: CrashPoint) {
    armed::reach(point);
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::{
        env,
        fs::{File, OpenOptions},
        io::Write,
        process,
        sync::{Mutex, OnceLock, PoisonError},
    };

    use super::CrashPoint;

    /// What the environment asks for.
    struct Plan {
        at_step: Option<u64>,
        trace: Option<File>,
        steps: u64,
    }

    static PLAN: OnceLock<Option<Mutex<Plan>>> = OnceLock::new();

    fn plan() -> Option<Mutex<Plan>> {
        let at_step = env::var("CRASH_AT_STEP").ok().and_then(|step| step.parse().ok());
        let trace = env::var_os("CRASH_TRACE")
            .and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
        (at_step.is_some() || trace.is_some()).then(|| Mutex::new(Plan { at_step, trace, steps: 0 }))
    }

    /// Under the lock until the end, so that no other thread gets a step further meanwhile.
    pub(super) fn reach(point: CrashPoint) {
        let Some(plan) = PLAN.get_or_init(plan) else { return };
        let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.steps += 1;
        if let Some(trace) = &mut plan.trace {
            // The test that reads the trace misses the line.
            let _ = writeln!(trace, "{point:?}");
        }
        if plan.at_step == Some(plan.steps) {
            process::abort();
        }
    }
}
