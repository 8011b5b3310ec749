//! Walking a scenario: die at each step, go on, compare.

use std::{collections::HashSet, fs, os::unix::process::ExitStatusExt};

use ackonce::crash_point::CrashPoint::{self, *};

use super::scenario::{Handler, Scenario};
use crate::{
    harness::{LIMIT, Process, Row, World, until},
    sql::{number, write},
};

/// A walk that ends is much shorter.
const STEPS_MAX: usize = 80;
const SIGABRT: i32 = 6;

/// One scenario's world, and the message that is on its way now.
struct Walk<'a> {
    scenario: &'a Scenario,
    world: World,
    handler: Vec<String>,
    id: String,
}

/// What was there when the worker died.
struct Death {
    point: CrashPoint,
    row: Option<Row>,
    effects: usize,
    runs: usize,
}

pub async fn walk(scenario: &Scenario) {
    let world = World::new(scenario.name).await;
    let handler = handler(&world, scenario.handler);
    let mut walk = Walk { scenario, world, handler, id: String::new() };
    let mut died_at = HashSet::new();
    for step in 1..=STEPS_MAX {
        walk.id = format!("step-{step}");
        for _ in 0..scenario.copies {
            walk.world.publish(&walk.id, b"1").await;
        }
        let death = walk.die(step).await;
        let Some(death) = death else {
            walk.check(None).await;
            assert_eq!(died_at, scenario.points.iter().copied().collect());
            println!("{}: {} deaths at {} points", scenario.name, step - 1, died_at.len());
            return;
        };
        walk.recover().await;
        walk.check(Some(&death)).await;
        died_at.insert(death.point);
    }
    panic!("after {STEPS_MAX} steps no walk has ended untouched");
}

fn handler(world: &World, handler: Handler) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match handler {
        Handler::Log => words(&["--log"]),
        Handler::Command(lines) => {
            let note = r#""$ACKONCE_KEY $ACKONCE_ATTEMPT $ACKONCE_INTERRUPTED""#;
            let script = world.script(&format!("echo {note} >> runs\n{lines}\necho {note} >> effects"));
            words(&["--exec", &script])
        }
        Handler::Sql(constraint) => {
            let schema =
                format!("CREATE TABLE IF NOT EXISTS effects (key TEXT, attempt INTEGER {constraint});");
            write(world, &schema, "INSERT INTO effects VALUES (:key, :attempt);");
            words(&crate::sql::SQL)
        }
    }
}

impl Walk<'_> {
    fn worker(&self, change: impl FnOnce(&mut std::process::Command)) -> Process {
        let handler = self.handler.iter().map(String::as_str);
        let arguments: Vec<&str> = self.scenario.arguments.iter().copied().chain(handler).collect();
        self.world.worker_with(change, &arguments)
    }

    /// A worker that dies at a step. `None` if there are not so many steps.
    async fn die(&self, step: usize) -> Option<Death> {
        let trace = self.world.path(&format!("trace-{step}"));
        let mut worker = self.worker(|command| {
            command.env("CRASH_AT_STEP", step.to_string()).env("CRASH_TRACE", &trace);
        });
        until("it dies, or all is handled", LIMIT, async || !worker.is_running() || self.is_handled()).await;
        // The ack may still be on its way, and with it the step.
        worker.ask_to_stop();
        let ended = worker.ended(LIMIT).await;
        if ended.status.signal().is_none() {
            ended.expect_exit(0);
            return None;
        }
        assert_eq!(ended.status.signal(), Some(SIGABRT), "{ended:?}");
        let trace = fs::read_to_string(trace).expect("a trace");
        assert_eq!(trace.lines().count(), step);
        let last = trace.lines().next_back().expect("a point");
        let point = CrashPoint::ALL.into_iter().find(|point| format!("{point:?}") == last).expect("a name");
        let (effects, runs) = (self.effects().len(), self.noted("runs").len());
        Some(Death { point, row: self.row(), effects, runs })
    }

    /// The row is as it ends, and every copy is counted.
    fn is_handled(&self) -> bool {
        self.row()
            .is_some_and(|row| row.state == self.scenario.end && row.duplicates + 1 >= self.scenario.copies)
    }

    /// Workers that do not die, until the queue is empty after one of them has stopped.
    async fn recover(&self) {
        for _ in 0..10 {
            let worker = self.worker(|_| {});
            worker.until_consuming().await;
            until("the rest is handled", LIMIT, async || self.is_handled() && self.is_empty().await).await;
            worker.terminate().await.expect_exit(0);
            if self.is_empty().await {
                return;
            }
        }
        panic!("{} messages are left in the queue", self.world.ready(&self.world.queue).await);
    }

    async fn is_empty(&self) -> bool {
        let world = &self.world;
        let delayed = match self.scenario.delay_ms {
            // It is made by the first message that waits.
            Some(ms) if !self.noted("runs").is_empty() => {
                world.ready(&format!("{}.retry.{ms}", world.queue)).await
            }
            _ => 0,
        };
        world.ready(&world.queue).await + delayed == 0
    }

    fn row(&self) -> Option<Row> {
        self.world.rows().into_iter().find(|row| row.key == self.id)
    }

    /// Of this message: the attempt and `interrupted` of each line.
    fn noted(&self, file: &str) -> Vec<(u32, bool)> {
        let mut found = Vec::new();
        for line in self.world.lines(file) {
            let words: Vec<&str> = line.split(' ').collect();
            let [key, attempt, interrupted] = words[..] else { panic!("{file} has the line '{line}'") };
            if key == self.id {
                found.push((attempt.parse().expect("a number"), interrupted == "1"));
            }
        }
        found
    }

    fn effects(&self) -> Vec<(u32, bool)> {
        match self.scenario.handler {
            Handler::Command(_) => self.noted("effects"),
            Handler::Log => vec![(0, true); self.printed()],
            Handler::Sql(_) => {
                let sql = format!("SELECT count(*) FROM effects WHERE key = '{}'", self.id);
                vec![(0, true); usize::try_from(number(&self.world, &sql)).expect("a count")]
            }
        }
    }

    fn printed(&self) -> usize {
        let line = format!("{}\t1\n", self.id);
        let files = fs::read_dir(self.world.folder.path()).expect("a folder").flatten();
        let printed = files.filter(|file| file.file_name().to_string_lossy().starts_with("printed-"));
        printed.map(|file| fs::read_to_string(file.path()).expect("text").matches(&line).count()).sum()
    }

    /// What is promised, after the message has been handled to its end.
    async fn check(&self, death: Option<&Death>) {
        let what = death.map_or("untouched".to_owned(), |death| {
            format!("{}, died at {:?} with the row {:?}", self.id, death.point, death.row)
        });
        let row = self.row().expect("a row");
        assert_eq!(row.state, self.scenario.end, "{what}");

        let effects = self.effects();
        let expected = match (self.scenario.end, death) {
            ("dead", _) => 0,
            (_, Some(death)) if death.effects == 1 && is_window(self.scenario.handler, death.point) => 2,
            _ => 1,
        };
        assert_eq!(effects.len(), expected, "{what}");
        assert!(effects.iter().skip(1).all(|(_, interrupted)| *interrupted), "{what}: not told: {effects:?}");
        if let (Handler::Command(_), Some(death)) = (self.scenario.handler, death) {
            self.check_told(death, &what);
        }
        self.check_letters(death, &what).await;
    }

    /// A copy for each time that the message came to its end as dead: a second one if the process died
    /// between the first one's confirm and the ack, since the redelivered message may be an operator's.
    async fn check_letters(&self, death: Option<&Death>, what: &str) {
        let letters = self.world.take_all(&format!("{}.dead", self.world.queue)).await;
        let expected = match (self.scenario.end, death.map(|death| death.point)) {
            ("done", _) => 0..=0,
            (_, Some(CopyConfirmed | AckAsked | AckWriting)) => 2..=2,
            (_, Some(FinishAsked | FinishQueued | FinishWritten | FinishCommitted)) => 2..=2,
            // Whether the broker got it, nobody here can know.
            (_, Some(AckWritten)) => 1..=2,
            _ => 1..=1,
        };
        assert!(expected.contains(&letters.len()), "{what}: {} letters", letters.len());
        assert!(letters.iter().all(|letter| letter.data == b"1"), "{what}");
    }

    /// A run is told that the one before was cut off if, and only if, the ledger cannot know better.
    fn check_told(&self, death: &Death, what: &str) {
        let after = self.noted("runs").split_off(death.runs);
        let was_processing = death.row.as_ref().is_some_and(|row| row.state == "processing");
        let told: Vec<bool> = after.iter().map(|(_, interrupted)| *interrupted).collect();
        if was_processing {
            assert_eq!(told.first(), Some(&true), "{what}: {after:?}");
        } else {
            assert!(!told.contains(&true), "{what}: {after:?}");
        }
        let state = death.row.as_ref().map_or("none", |row| row.state.as_str());
        match (state, death.point) {
            ("done", _) => assert!(after.is_empty(), "{what}: {after:?}"),
            ("dead", AckWritten) => {}
            _ => assert!(!after.is_empty(), "{what}"),
        }
        // Each run is an attempt of its own; one that was dead begins anew.
        let mut attempts = self.noted("runs");
        let life = if state == "dead" { attempts.split_off(death.runs) } else { attempts };
        assert!(life.is_sorted_by(|(a, _), (b, _)| a < b), "{what}: {life:?}");
    }
}

/// Whether a death there lets a handler take effect twice: the one window that the promise names, and
/// for `sql` none. Exhaustive, so that a new point must be judged.
fn is_window(handler: Handler, point: CrashPoint) -> bool {
    if let Handler::Sql(_) = handler {
        return false;
    }
    match point {
        HandlerReturned | FinishAsked | FinishQueued | FinishWritten => true,
        Delivered | ClaimAsked | ClaimQueued | ClaimWritten | ClaimCommitted | HandlerStarting
        | FinishCommitted | EffectAsked | EffectQueued | EffectWritten | EffectRecorded | EffectCommitted
        | CopySending | CopyConfirmed | AckAsked | AckWriting | AckWritten => false,
    }
}
