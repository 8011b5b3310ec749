//! Fault counting: the first chance of a fault is taken, then the second, and so on until a run comes to its
//! end untouched. So each chance that there is has been taken once.

use std::{collections::HashMap, time::Duration};

use ackonce::worker::{
    Policy,
    policy::{DeadLetter, Retry},
};

use crate::{
    faults::{Faults, POINTS, Point, Target},
    plan::{Plan, QUEUE, Sent, Sort, Temper},
    store::Kind,
    trace::{Failure, Trace},
    world::World,
};

/// A bit of everything: copies, another body, no key; a success, retries that wait here and in a delay queue, a
/// message that is given up, one that always fails.
fn plan(sort: Sort, dead_letter: DeadLetter) -> Plan {
    let bodies = [
        (Some("copies"), "copies/0", Temper::Succeeds, 3),
        (Some("mismatch"), "mismatch/0", Temper::Succeeds, 1),
        (Some("mismatch"), "mismatch/1", Temper::Succeeds, 1),
        (None, "none/0", Temper::Succeeds, 1),
        (Some("retry"), "retry/0", Temper::FailsFirst(3), 2),
        (Some("hopeless"), "hopeless/0", Temper::GivesUpAfter(0), 1),
        (Some("fails"), "fails/0", Temper::Fails, 1),
        (Some("away"), "away/0", Temper::CannotStart(1), 1),
    ];
    let mut messages = Vec::new();
    let mut tempers = HashMap::new();
    for (key, body, temper, copies) in bodies {
        tempers.insert(body.to_owned(), temper);
        for copy in 0..copies {
            let at = Duration::from_millis(40 * copy);
            messages.push(Sent { at, key: key.map(str::to_owned), body: body.to_owned() });
        }
    }
    let retry = Retry {
        max_attempts: 4,
        initial_interval: Duration::from_secs(2),
        multiplier: 2.0,
        max_interval: Duration::from_secs(8),
        jitter: 0.0,
    };
    let policy = Policy { concurrency: 2, prefetch: 6, retry, dead_letter, ..Policy::new(QUEUE) };
    Plan {
        policy,
        sort,
        workers: 2,
        messages,
        tempers,
        retention: Duration::from_secs(86_400),
        slow: Duration::from_secs(3),
        heals_at: Duration::from_secs(30),
    }
}

/// Of what is left to chance beside the fault: how long things take.
const SEED: u64 = 1;

/// How many chances there are, if each is survived.
fn count(point: Point, kind: Kind, plan: &Plan) -> Result<u64, Failure> {
    for n in 1.. {
        let run = |trace| {
            let faults = Faults::at(vec![Target::new(point, n)]);
            World::new(plan.clone(), faults, kind, SEED, trace).run()
        };
        let (result, faults, _) = run(Trace::default());
        if let Err(why) = result {
            let setting = format!("{kind:?}, {:?}, chance {n} of {point:?}", plan.sort);
            let again = format!("ACKONCE_MODEL_POINT={point:?} each_single");
            return Err(Failure { why, again, setting, trace: run(Trace::kept()).2 });
        }
        if faults.targets().iter().all(|target| !target.was_hit()) {
            return Ok(n - 1);
        }
    }
    unreachable!("some run comes to its end untouched")
}

fn count_all(kind: Kind, sort: Sort, dead_letter: DeadLetter) -> HashMap<Point, u64> {
    let plan = plan(sort, dead_letter);
    let only = std::env::var("ACKONCE_MODEL_POINT").ok();
    let counts: HashMap<_, _> = POINTS
        .into_iter()
        .filter(|point| only.as_ref().is_none_or(|only| format!("{point:?}") == *only))
        .map(|point| (point, count(point, kind, &plan).unwrap_or_else(|failure| panic!("{failure}"))))
        .collect();
    println!("{kind:?}, {sort:?}, {dead_letter:?}: {counts:?}");
    counts
}

#[test]
fn each_single_fault_is_survived_on_the_reference_model() {
    for sort in [Sort::Claimed, Sort::Applying] {
        for dead_letter in [DeadLetter::Publish, DeadLetter::Reject] {
            let counts = count_all(Kind::Memory, sort, dead_letter);
            // Each was reached, and what may befall a process at any moment, often.
            assert!(counts.values().all(|count| *count > 0), "{counts:?}");
            assert!(counts.get(&Point::Crash).is_none_or(|count| *count > 50), "{counts:?}");
        }
    }
}

#[test]
fn each_single_fault_is_survived_on_sqlite() {
    for sort in [Sort::Claimed, Sort::Applying] {
        let counts = count_all(Kind::Sqlite, sort, DeadLetter::Publish);
        assert!(counts.values().all(|count| *count > 0), "{counts:?}");
    }
}
