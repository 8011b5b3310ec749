//! Fault counting under SQLite: of the ledger's files, the first operation fails, then the second, and so on until
//! a run comes to its end untouched. The kernel's answer is replaced by `strace`, so the code is the real one.
//!
//! This test program is started again, traced, as a small worker that handles each key outside and inside the
//! ledger's transactions, and repeats what fails, as the real one does. Then it runs once more with nothing in
//! its way. Whatever was reported as recorded must be there, nothing may be lost, and no effect be there twice.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use ackonce::{
    ledger::{
        Applied, Apply, Claim, Effects, Ending, Finished, Ledger, LedgerError, Owner, State,
        sqlite::{Attempt, Connection, HandlerError, SqliteLedger},
        unix_millis,
    },
    message::Message,
};

use crate::setup::{Place, claim, finish, options, request};

/// The folder of a traced run; unset in a normal run of the tests.
const FOLDER: &str = "ACKONCE_TEST_FAULT_FOLDER";

/// Handled by a claim and a finish.
const OUTSIDE: [&str; 3] = ["a", "b", "c"];
/// Handled inside a transaction.
const INSIDE: [&str; 3] = ["x", "y", "z"];

/// More than one fault in a row is not made here, so more is not needed.
const TRIES_MAX: u32 = 20;

/// Which operations fail, and how.
const FAULTS: [(&str, &str); 6] = [
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("pread64", "EIO"),
    ("fsync,fdatasync", "EIO"),
    ("ftruncate,fallocate", "ENOSPC"),
    ("openat,unlink", "EIO"),
];

#[tokio::test]
async fn each_file_operation_may_fail_and_nothing_is_lost_or_doubled() {
    for (calls, error) in FAULTS {
        let mut n = 1;
        while survives(calls, error, n).await {
            n += 1;
        }
        println!("{calls} {error}: {} chances", n - 1);
        assert!(n > 1, "no {calls} was met");
    }
}

/// One run with the n-th of these calls failing. Whether there are so many.
async fn survives(calls: &str, error: &str, n: u32) -> bool {
    let place = Place::new();
    let log = place.file("strace.log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&log).args(["-e", &format!("trace={calls}")]);
    // A thread has a count of its own, so that in a few runs two of them meet a fault.
    command.args(["-e", &format!("inject={calls}:error={error}:when={n}")]);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut path = place.path().into_os_string();
        path.push(suffix);
        command.arg("-P").arg(path);
    }
    let traced = command
        .arg(env::current_exe().unwrap())
        .args(["--exact", "file_faults::a_small_worker", "--nocapture"])
        .env(FOLDER, place.path().parent().unwrap())
        .output()
        .expect("strace starts: it is needed for this test");
    let met = fs::read_to_string(&log).unwrap();
    let what = format!("{calls} {error} {n}\n{}{met}", String::from_utf8_lossy(&traced.stdout));
    assert!(traced.status.success(), "{what}");

    let reported = lines(&place.file("reported"));
    a_run(place.path().parent().unwrap())
        .await
        .unwrap_or_else(|error| panic!("it does not heal: {error}\n{what}"));
    check(&place, &reported, &what).await;
    met.contains("(INJECTED)")
}

async fn check(place: &Place, reported: &[String], what: &str) {
    let ledger = place.open();
    for row in crate::setup::rows(&ledger).await {
        assert_eq!(row.state, State::Done, "{row:?}\n{what}");
    }
    assert_eq!(ledger.rows().await.unwrap(), (OUTSIDE.len() + INSIDE.len()) as u64, "{what}");
    drop(ledger);
    let text = |sql: &str| place.connect().query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("PRAGMA integrity_check"), "ok", "{what}");
    for key in INSIDE {
        let effects = place.number(&format!("SELECT count(*) FROM effects WHERE key = '{key}'"));
        assert_eq!(effects, 1, "{key}: {what}");
    }
    // A run that ended for good between an effect and its finish is the promise's one window.
    let (effects, cut_off) = (lines(&place.file("effects")), place.file("cut-off").exists());
    for key in OUTSIDE {
        let count = effects.iter().filter(|effect| *effect == key).count();
        let most = if cut_off && !reported.iter().any(|r| r == key) { 2 } else { 1 };
        assert!((1..=most).contains(&count), "{key}: {count} effects\n{what}");
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Started again by the test above; else there is nothing to do.
#[tokio::test]
async fn a_small_worker() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    if let Err(error) = a_run(&folder).await {
        println!("ended: {error}");
        fs::write(folder.join("cut-off"), "").unwrap();
    }
}

/// Handles each key; an error is one that the real worker would end with.
async fn a_run(folder: &Path) -> Result<(), LedgerError> {
    let ledger = Arc::new(SqliteLedger::open(folder.join("ackonce.db"), options())?);
    ledger.set_up("CREATE TABLE IF NOT EXISTS effects (key TEXT)")?;
    let owner = ledger.enroll().await?;
    for key in OUTSIDE {
        outside(folder, &ledger, &owner, key).await?;
    }
    let insert = |transaction: &Connection, attempt: &Attempt<'_>| -> Result<(), HandlerError> {
        transaction.execute("INSERT INTO effects VALUES (?1)", [attempt.key.as_str()])?;
        Ok(())
    };
    let effects = ledger.clone().effects(insert, Duration::from_secs(30));
    for key in INSIDE {
        let message = Arc::new(Message::default());
        let apply = || Apply { claim: request(key), message: message.clone(), attempts_max: 5, reruns: true };
        let answer = again(async || Ok(effects.apply(&owner, vec![apply()], unix_millis()).await?.remove(0)));
        match answer.await? {
            Applied::Done(_) | Applied::Unrun(Claim::Duplicate) => {}
            other => panic!("{key}: {other:?}"),
        }
    }
    Ok(())
}

async fn outside(folder: &Path, ledger: &SqliteLedger, owner: &Owner, key: &str) -> Result<(), LedgerError> {
    let append = |name: &str| {
        let mut file = fs::File::options().append(true).create(true).open(folder.join(name)).unwrap();
        writeln!(file, "{key}").unwrap();
    };
    let ticket = match again(async || claim(ledger, owner, key).await).await? {
        Claim::Claimed(ticket) => ticket,
        Claim::Duplicate => return Ok(()),
        other => panic!("{key}: {other:?}"),
    };
    append("effects");
    let finished = again(async || finish(ledger, owner, key, &ticket, Ending::Done).await).await?;
    assert_eq!(finished, Finished::Recorded, "{key}");
    append("reported");
    Ok(())
}

/// Repeats what fails for now.
async fn again<T>(mut operation: impl AsyncFnMut() -> Result<T, LedgerError>) -> Result<T, LedgerError> {
    for _ in 1..TRIES_MAX {
        match operation().await {
            Err(error) if error.is_transient() => {}
            result => return result,
        }
    }
    operation().await
}
