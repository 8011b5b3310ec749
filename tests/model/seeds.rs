//! Many seeds, each a run of its own.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use fastrand::Rng;

use crate::{
    faults::Faults,
    invariants::Tally,
    plan::Plan,
    store::Kind,
    trace::{Failure, Trace},
    world::World,
};

/// One seed's run. Some are on SQLite, if `sqlite` says so.
fn run(seed: u64, kind: Kind, trace: Trace) -> (Result<Tally, String>, Trace, String) {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::random(&mut rng);
    let faults = Faults::random(&mut rng);
    let setting = format!("{kind:?} {plan:#?} {faults:?}");
    let world = catch_unwind(AssertUnwindSafe(|| World::new(plan, faults, kind, seed, trace).run()));
    match world {
        Ok((result, _, trace)) => (result, trace, setting),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            (Err(format!("it panicked: {}", said.unwrap_or_default())), Trace::default(), setting)
        }
    }
}

/// The same again, for people to read.
fn explain(seed: u64, kind: Kind, why: String) -> Failure {
    let (_, trace, setting) = run(seed, kind, Trace::kept());
    let sqlite = if kind == Kind::Sqlite { "sqlite" } else { "" };
    let again = format!("ACKONCE_MODEL_LEDGER={sqlite} ACKONCE_MODEL_SEED={seed} one_seed");
    Failure { why: format!("seed {seed}: {why}"), again, setting, trace }
}

/// All seeds of a range on all cores; the first failures in full.
fn campaign(first: u64, count: u64, kind: Kind) -> Tally {
    let next = AtomicU64::new(first);
    let work = || {
        let (mut tally, mut failures) = (Tally::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                return (tally, failures);
            }
            match run(seed, kind, Trace::default()).0 {
                Ok(of_one) => tally += of_one,
                Err(why) => failures.push((seed, why)),
            }
        }
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (of_thread, failed) = thread.join().unwrap();
            tally += of_thread;
            failures.extend(failed);
        }
    });
    failures.sort();
    println!("{count} seeds from {first} on {kind:?}, {} failed: {tally}", failures.len());
    if let Some((seed, why)) = failures.first() {
        let all: Vec<_> = failures.iter().take(20).map(|(seed, why)| format!("{seed}: {why}")).collect();
        panic!("{}\n{} of {count} seeds failed: {all:#?}", explain(*seed, kind, why.clone()), failures.len());
    }
    tally
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: '{text}'")))
}

/// How many seeds, where nobody asks for more.
const SEEDS: u64 = 4000;
/// Each commits to a file of its own.
const SEEDS_SQLITE: u64 = 150;

#[test]
fn seeds_hold_on_the_reference_model() {
    let tally = campaign(0, number("ACKONCE_MODEL_SEEDS").unwrap_or(SEEDS), Kind::Memory);
    // The campaign goes where it is meant to go.
    assert!(tally.windows > 0 && tally.takeovers > 0 && tally.lost_claims > 0 && tally.dead > 0, "{tally}");
    assert!(tally.pruned > 0, "{tally}");
}

#[test]
fn seeds_hold_on_sqlite() {
    let count = number("ACKONCE_MODEL_SEEDS").map_or(SEEDS_SQLITE, |seeds| seeds / 20);
    let tally = campaign(1_000_000, count, Kind::Sqlite);
    assert!(tally.takeovers > 0 && tally.dead > 0, "{tally}");
}

/// Shows the run of `ACKONCE_MODEL_SEED` (on SQLite with `ACKONCE_MODEL_LEDGER=sqlite`); without it, checks that one
/// seed is one run.
#[test]
fn one_seed_is_one_run() {
    let sqlite = env::var("ACKONCE_MODEL_LEDGER").is_ok_and(|ledger| ledger == "sqlite");
    let kind = if sqlite { Kind::Sqlite } else { Kind::Memory };
    if let Some(seed) = number("ACKONCE_MODEL_SEED") {
        let (result, trace, setting) = run(seed, kind, Trace::kept());
        println!("{setting}");
        trace.lines().iter().for_each(|line| println!("{line}"));
        println!("{result:?}");
        assert!(result.is_ok());
        return;
    }
    for seed in 0..30 {
        let (one, trace, _) = run(seed, kind, Trace::kept());
        let (other, again, _) = run(seed, kind, Trace::kept());
        assert_eq!(one, other, "{seed}");
        for (line, same) in trace.lines().iter().zip(again.lines()) {
            assert_eq!(without_names(line), without_names(same), "{seed}");
        }
        assert_eq!(trace.lines().len(), again.lines().len(), "{seed}");
    }
}

/// Owners and made-up keys have names that never come again.
fn without_names(line: &str) -> String {
    let of_a_name = |word: &&str| !word.contains("memory-") && !word.contains("generated:");
    line.split([' ', '"']).filter(of_a_name).collect::<Vec<_>>().join(" ")
}
