//! Other processes: this test program, started again as a worker that holds a claim.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ackonce::ledger::{
    Claim, Inspect, Ledger,
    sqlite::{SqliteLedger, SqliteOptions},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::setup::{Place, claim, finish, granted, handle};

/// Tells the child what to do; unset in a normal run of the tests.
const ROLE: &str = "ACKONCE_TEST_ROLE";
const LEDGER: &str = "ACKONCE_TEST_LEDGER";

/// Killed when dropped.
struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(role: &str, ledger: &Path) -> Self {
        Self::spawn(&mut Self::command(role, ledger))
    }

    /// As a user to whom permissions apply: root has them all.
    fn start_unprivileged(role: &str, ledger: &Path) -> Self {
        const NOBODY: u32 = 65534;
        let mut command = Self::command(role, ledger);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Self::spawn(&mut command)
    }

    fn command(role: &str, ledger: &Path) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "processes::as_another_process", "--nocapture"])
            .env(ROLE, role)
            .env(LEDGER, ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// What it says next, apart from the test harness's own lines.
    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the worker ended");
            if let Some((_, said)) = line.trim_end().split_once("worker: ") {
                return said.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a check: what the started process does. In a normal run there is nothing to do.
#[tokio::test]
async fn as_another_process() {
    let (Ok(role), Ok(path)) = (env::var(ROLE), env::var(LEDGER)) else { return };
    let options = SqliteOptions { busy_timeout: Duration::from_secs(60), ..Default::default() };
    let ledger = match SqliteLedger::open(path, options) {
        Ok(ledger) => ledger,
        Err(error) => return println!("worker: {error}"),
    };
    let owner = ledger.enroll().await.unwrap();
    match role.as_str() {
        "hold" => {
            let ticket = granted(claim(&ledger, &owner, "a").await.unwrap());
            println!("worker: attempt {}", ticket.attempt);
            // Until the parent closes the pipe, or kills.
            let _ = std::io::stdin().read(&mut [0]);
        }
        "work" => {
            let mut handled = 0;
            for n in 0..200 {
                let key = format!("key {n}");
                if let Claim::Claimed(ticket) = claim(&ledger, &owner, &key).await.unwrap() {
                    finish(&ledger, &owner, &key, &ticket, ackonce::ledger::Ending::Done).await.unwrap();
                    handled += 1;
                }
            }
            println!("worker: handled {handled}");
        }
        other => panic!("unknown role {other}"),
    }
}

/// K02: killed in the middle of a run, it is dead at once and its claim is free.
#[tokio::test]
async fn a_killed_workers_claim_is_taken_over_at_once() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let mut worker = Worker::start("hold", &place.path());
    assert_eq!(worker.says(), "attempt 1");
    let Claim::InFlight { owner: holder } = claim(&ledger, &owner, "a").await.unwrap() else {
        panic!("it lives");
    };
    assert!(ledger.show("a", None).await.unwrap()[0].owner_alive);
    worker.kill();
    assert!(!ledger.show("a", None).await.unwrap()[0].owner_alive);
    let lock = place.file("ackonce.db.owners").join(&*holder);
    assert!(lock.exists(), "nobody removed it, and yet it proves nothing");
    let ticket = granted(claim(&ledger, &owner, "a").await.unwrap());
    assert_eq!((ticket.attempt, ticket.interrupted), (2, true));
    ledger.enroll().await.unwrap();
    assert!(!lock.exists(), "swept");
}

/// K03: a worker that does not move for a while is not dead.
#[tokio::test]
async fn a_stopped_worker_is_not_robbed() {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let mut worker = Worker::start("hold", &place.path());
    assert_eq!(worker.says(), "attempt 1");
    worker.signal(Signal::STOP);
    assert!(matches!(claim(&ledger, &owner, "a").await.unwrap(), Claim::InFlight { .. }));
    ledger.enroll().await.unwrap();
    assert!(matches!(claim(&ledger, &owner, "a").await.unwrap(), Claim::InFlight { .. }), "nor swept");
    worker.signal(Signal::CONT);
}

/// K19: four processes start together on a ledger that is not there yet.
#[tokio::test]
async fn processes_share_a_ledger_from_its_beginning() {
    let place = Place::new();
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start("work", &place.path())).collect();
    let handled: u32 = workers
        .iter_mut()
        .map(|worker| worker.says().strip_prefix("handled ").unwrap().parse::<u32>().unwrap())
        .sum();
    assert_eq!(handled, 200);
    for worker in &mut workers {
        assert!(worker.child.wait().unwrap().success());
    }
    let ledger = place.open();
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.scopes[0].done, stats.scopes[0].processing), (200, 0));
    handle(&ledger, &ledger.enroll().await.unwrap(), "and on").await;
}

/// What is not permitted is said in one sentence, and nothing is left half-made.
#[test]
fn missing_permissions_are_one_sentence_each() {
    let place = Place::new();
    drop(place.open());
    let dir = place.path().parent().unwrap().to_owned();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let said = |name: &str| Worker::start_unprivileged("work", &dir.join(name)).says();

    set(&dir, 0o755);
    set(&place.path(), 0o666);
    assert!(said("ackonce.db").contains("its directory writable"), "a directory that is read-only");
    assert!(said("new.db").contains("is its directory writable?"), "a new ledger in it");
    set(&dir, 0o777);
    set(&place.path(), 0o444);
    assert!(said("ackonce.db").contains("writable"), "a file that is read-only");
    set(&place.path(), 0o000);
    let sentence = said("ackonce.db");
    assert!(sentence.contains("cannot open the ledger") && !sentence.contains("create"), "{sentence}");
    set(&dir, 0o000);
    assert!(said("ackonce.db").contains("Permission denied"), "a directory that is closed");
    set(&dir, 0o777);
    let names: Vec<_> = place.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ackonce.db"]);

    set(&place.path(), 0o666);
    assert_eq!(said("ackonce.db"), "handled 200");
}
