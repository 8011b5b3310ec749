//! The ways of a message that are walked, and where each may die.

use ackonce::crash_point::CrashPoint::{self, *};

/// One way of a message.
pub struct Scenario {
    pub name: &'static str,
    pub handler: Handler,
    pub arguments: &'static [&'static str],
    /// How often each message is sent. A letter's copy would be a message of its own once its row is dead.
    pub copies: i64,
    /// The row's last state.
    pub end: &'static str,
    /// The delay queue that the message passes through.
    pub delay_ms: Option<u64>,
    /// Every point that its message meets, and no other.
    pub points: &'static [CrashPoint],
}

/// What handles the message.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Shell lines, after the run has been noted in `runs` and before the effect is noted in `effects`.
    Command(&'static str),
    Log,
    /// A column constraint on the attempt in the table of effects.
    Sql(&'static str),
}

const QUICK: &[&str] = &["--initial-interval", "20ms", "--jitter", "0"];

pub const HANDLED: Scenario = Scenario {
    name: "handled",
    handler: Handler::Command(""),
    arguments: &[],
    copies: 2,
    end: "done",
    delay_ms: None,
    points: &[
        Delivered,
        ClaimAsked,
        ClaimQueued,
        ClaimWritten,
        ClaimCommitted,
        HandlerStarting,
        HandlerReturned,
        FinishAsked,
        FinishQueued,
        FinishWritten,
        FinishCommitted,
        AckAsked,
        AckWriting,
        AckWritten,
    ],
};

pub const RETRIED: Scenario = Scenario {
    name: "retried",
    handler: Handler::Command("[ \"$ACKONCE_ATTEMPT\" -gt 1 ] || exit 1"),
    arguments: QUICK,
    ..HANDLED
};

pub const LOGGED: Scenario = Scenario { name: "logged", handler: Handler::Log, ..HANDLED };

pub const GIVEN_UP: Scenario = Scenario {
    name: "givenup",
    handler: Handler::Command("exit 65"),
    arguments: &[],
    copies: 1,
    end: "dead",
    delay_ms: None,
    points: &[
        Delivered,
        ClaimAsked,
        ClaimQueued,
        ClaimWritten,
        ClaimCommitted,
        HandlerStarting,
        HandlerReturned,
        CopySending,
        CopyConfirmed,
        FinishAsked,
        FinishQueued,
        FinishWritten,
        FinishCommitted,
        AckAsked,
        AckWriting,
        AckWritten,
    ],
};

/// With a prefetch of one, no failed message is held in the worker.
pub const DELAYED: Scenario = Scenario {
    name: "delayed",
    handler: Handler::Command("[ \"$ACKONCE_ATTEMPT\" -gt 1 ] || exit 1"),
    arguments: &["--initial-interval", "100ms", "--jitter", "0", "--prefetch", "1", "--concurrency", "1"],
    end: "done",
    delay_ms: Some(100),
    ..GIVEN_UP
};

pub const SQL_DONE: Scenario = Scenario {
    name: "sqldone",
    handler: Handler::Sql(""),
    arguments: &[],
    copies: 2,
    end: "done",
    delay_ms: None,
    points: &[
        Delivered,
        EffectAsked,
        EffectQueued,
        EffectWritten,
        EffectRecorded,
        EffectCommitted,
        AckAsked,
        AckWriting,
        AckWritten,
    ],
};

pub const SQL_RETRIED: Scenario = Scenario {
    name: "sqlretried",
    handler: Handler::Sql("CHECK (attempt > 1)"),
    arguments: QUICK,
    points: &[
        Delivered,
        EffectAsked,
        EffectQueued,
        EffectWritten,
        EffectRecorded,
        EffectCommitted,
        FinishAsked,
        FinishQueued,
        FinishWritten,
        FinishCommitted,
        AckAsked,
        AckWriting,
        AckWritten,
    ],
    ..SQL_DONE
};

pub const SQL_EXHAUSTED: Scenario = Scenario {
    name: "sqlexhausted",
    handler: Handler::Sql("CHECK (attempt > 9)"),
    arguments: &["--max-attempts", "1"],
    copies: 1,
    end: "dead",
    points: &[
        Delivered,
        EffectAsked,
        EffectQueued,
        EffectWritten,
        EffectRecorded,
        EffectCommitted,
        CopySending,
        CopyConfirmed,
        FinishAsked,
        FinishQueued,
        FinishWritten,
        FinishCommitted,
        AckAsked,
        AckWriting,
        AckWritten,
    ],
    ..SQL_DONE
};

pub const SCENARIOS: [&Scenario; 8] =
    [&HANDLED, &RETRIED, &LOGGED, &GIVEN_UP, &DELAYED, &SQL_DONE, &SQL_RETRIED, &SQL_EXHAUSTED];
