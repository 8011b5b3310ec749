//! Fault counting with the real worker on a real broker: of the ledger's operations, the first fails, then the
//! second, and so on until a run comes to its end untouched; before it was recorded, and after.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use ackonce::{
    Stop, Verdict, Work, Worker,
    handler::function,
    ledger::{
        Applied, Apply, Claim, ClaimRequest, Effects, Finish, Finished, Ledger, LedgerError, Millis, Owner,
        Prune, Pruned,
        sqlite::{Attempt, Connection, HandlerError, SqliteEffects, SqliteLedger, SqliteOptions},
    },
    worker::{Policy, policy::Retry},
};
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::watch;

use crate::{
    harness::{LIMIT, World, header, until},
    sql::number,
};

/// When the one operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing of it is recorded.
    Before,
    /// It is recorded, and its reply is lost.
    After,
}

/// A ledger of which one operation fails: the `n`-th.
#[derive(Clone)]
struct Faulty {
    ledger: Arc<SqliteLedger>,
    form: Form,
    n: u32,
    count: Arc<AtomicU32>,
}

impl Faulty {
    fn new(world: &World, form: Form, n: u32) -> Self {
        let path = world.path("ackonce.db");
        let ledger = Arc::new(SqliteLedger::open(path, SqliteOptions::default()).expect("a ledger"));
        ledger.set_up("CREATE TABLE IF NOT EXISTS effects (key TEXT)").expect("a table");
        Self { ledger, form, n, count: Arc::default() }
    }

    fn was_met(&self) -> bool {
        self.count.load(SeqCst) >= self.n
    }

    /// `operate` is called at once or not at all, as the ledger's own methods queue at once.
    fn operate<T: Send + 'static>(
        &self,
        operate: impl FnOnce() -> BoxFuture<'static, Result<T, LedgerError>>,
    ) -> BoxFuture<'static, Result<T, LedgerError>> {
        let failed = || LedgerError::transient("the fault that is counted out");
        match self.count.fetch_add(1, SeqCst) + 1 == self.n {
            true if self.form == Form::Before => async move { Err(failed()) }.boxed(),
            true => {
                let operation = operate();
                async move {
                    operation.await?;
                    Err(failed())
                }
                .boxed()
            }
            false => operate(),
        }
    }
}

impl Ledger for Faulty {
    fn enroll(&self) -> BoxFuture<'_, Result<Owner, LedgerError>> {
        self.ledger.enroll()
    }

    fn claim(
        &self,
        owner: &Owner,
        requests: Vec<ClaimRequest>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Claim>, LedgerError>> {
        self.operate(|| self.ledger.claim(owner, requests, now))
    }

    fn finish(
        &self,
        owner: &Owner,
        finishes: Vec<Finish>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Finished>, LedgerError>> {
        self.operate(|| self.ledger.finish(owner, finishes, now))
    }

    fn prune(&self, prune: Prune, now: Millis) -> BoxFuture<'static, Result<Pruned, LedgerError>> {
        self.ledger.prune(prune, now)
    }

    fn rows(&self) -> BoxFuture<'static, Result<u64, LedgerError>> {
        self.ledger.rows()
    }
}

/// The same for a handler inside the ledger's transaction.
struct FaultyEffects {
    faulty: Faulty,
    effects: SqliteEffects,
}

impl Effects for FaultyEffects {
    fn apply(
        &self,
        owner: &Owner,
        requests: Vec<Apply>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Applied>, LedgerError>> {
        self.faulty.operate(|| self.effects.apply(owner, requests, now))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.effects.probe()
    }

    fn stop(&self) {
        self.effects.stop();
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.faulty.clone())
    }

    fn guarantee(&self) -> &'static str {
        self.effects.guarantee()
    }
}

/// One message that succeeds, one whose first attempt fails, one that is given up; and copies of each.
const COPIES: [(&str, usize); 3] = [("good", 3), ("retried", 2), ("hopeless", 1)];

fn deed(key: &str, attempt: u32) -> Verdict {
    match key {
        "hopeless" => Verdict::GiveUp { error: "never".into() },
        "retried" if attempt == 1 => Verdict::Retry { error: "not yet".into(), after: None },
        _ => Verdict::Done,
    }
}

/// Publishes all, runs a worker until nothing is left, and checks what became of them.
async fn run(world: &World, worker: Worker, what: &str) {
    for (key, copies) in COPIES {
        for _ in 0..copies {
            world.publish(key, key.as_bytes()).await;
        }
    }
    let mut worker = worker;
    let retry = Retry { initial_interval: Duration::from_millis(20), ..Retry::default() };
    worker.policy = Arc::new(Policy { retry, ..Policy::new(&world.queue) });
    let mut counts = worker.counts.subscribe();
    let (stop, stopped) = watch::channel(Stop::No);
    let running = tokio::spawn(worker.run(stopped));
    let all = COPIES.iter().map(|(_, copies)| *copies as u64).sum::<u64>();
    let settled = counts.wait_for(|c| c.handled + c.duplicates + c.dead_lettered == all);
    let in_time = tokio::time::timeout(LIMIT, settled).await.is_ok();
    assert!(in_time, "{what}: not settled: {:?}", *counts.borrow());
    stop.send(Stop::Drain).expect("it runs");
    running.await.expect("no panic").expect("no error");

    let expected = ["good done", "hopeless dead", "retried done"];
    let states: Vec<_> = world.states().iter().map(|(key, state)| format!("{key} {state}")).collect();
    assert_eq!(states, expected, "{what}");
    assert_eq!(world.ready(&world.queue).await, 0, "{what}");
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let reasons: Vec<_> = letters.iter().map(|letter| header(letter, "x-ackonce-reason")).collect();
    assert_eq!(reasons, ["gave-up"], "{what}");
    let integrity: String = rusqlite::Connection::open(world.path("ackonce.db"))
        .and_then(|database| database.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
        .expect("a database");
    assert_eq!(integrity, "ok", "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_ledger_operation_may_fail_under_a_worker() {
    for form in [Form::Before, Form::After] {
        for n in 1.. {
            let (world, what) = (World::new("counting").await, format!("{form:?} {n}"));
            let faulty = Faulty::new(&world, form, n);
            let effects: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
            let counted = effects.clone();
            let handler = function(move |work: Work| {
                let verdict = deed(work.key.as_str(), work.attempt);
                if verdict == Verdict::Done {
                    *counted.lock().unwrap().entry(work.key.to_string()).or_default() += 1;
                }
                async move { verdict }
            });
            let ledger = Arc::new(faulty.clone());
            let worker = Worker::new(&world.url, &world.queue, handler, ledger).expect("a worker");
            run(&world, worker, &what).await;
            let once = HashMap::from([("good".to_owned(), 1), ("retried".to_owned(), 1)]);
            assert_eq!(*effects.lock().unwrap(), once, "{what}");
            // (Inside the ledger, a repeated batch finds what it recorded, and counts itself as duplicates.)
            let duplicates: Vec<_> = world.rows().iter().map(|row| row.duplicates).collect();
            assert_eq!(duplicates, [2, 0, 1], "{what}");
            world.delete(&world.queue).await;
            if !faulty.was_met() {
                assert!(n > 4, "only {n} operations");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_ledger_operation_may_fail_under_a_handler_inside_it() {
    for form in [Form::Before, Form::After] {
        for n in 1.. {
            let (world, what) = (World::new("countinginside").await, format!("{form:?} {n}"));
            let faulty = Faulty::new(&world, form, n);
            let handler = |transaction: &Connection, attempt: &Attempt<'_>| {
                transaction.execute("INSERT INTO effects VALUES (?1)", [attempt.key.as_str()])?;
                match deed(attempt.key.as_str(), attempt.attempt) {
                    Verdict::GiveUp { error } => Err(HandlerError::GiveUp(error)),
                    Verdict::Retry { error, .. } => Err(HandlerError::Retry(error)),
                    _ => Ok(()),
                }
            };
            let effects = faulty.ledger.clone().effects(handler, LIMIT);
            let effects = FaultyEffects { faulty: faulty.clone(), effects };
            let worker = Worker::transactional(&world.url, &world.queue, effects).expect("a worker");
            run(&world, worker, &what).await;
            for key in ["good", "retried"] {
                let sql = format!("SELECT count(*) FROM effects WHERE key = '{key}'");
                assert_eq!(number(&world, &sql), 1, "{what} {key}");
            }
            until("the ledger is closed", LIMIT, async || Arc::strong_count(&faulty.ledger) == 1).await;
            world.delete(&world.queue).await;
            if !faulty.was_met() {
                assert!(n > 2, "only {n} operations");
                break;
            }
        }
    }
}
