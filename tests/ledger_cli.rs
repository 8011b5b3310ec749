//! `ackonce ledger …`, as an operator types it.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use ackonce::{
    key::Key,
    ledger::{
        Claim, ClaimRequest, Ending, Finish, Ledger, Millis, Origin, Owner,
        sqlite::{SqliteLedger, SqliteOptions},
        unix_millis,
    },
};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A ledger with some rows, and the commands on it.
struct Desk {
    dir: TempDir,
    ledger: SqliteLedger,
    owner: Owner,
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    fn ok(self) -> String {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "stdout: {}", self.stdout);
        self.stdout
    }

    /// Nothing on stdout, one sentence on stderr.
    fn fails(self, code: i32, expected: &str) {
        assert_eq!((self.code, &*self.stdout), (Some(code), ""), "stderr: {}", self.stderr);
        assert!(self.stderr.contains(expected), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
    }
}

/// Without the environment's own settings.
fn ackonce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ackonce"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("ACKONCE_") || name == "AMQP_URL") {
            command.env_remove(name);
        }
    }
    command.arg("ledger").args(arguments).stdin(Stdio::null());
    command
}

/// 2027-01-15T08:00:00.123Z
const AT: Millis = 1_800_000_000_123;

impl Desk {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(dir.path().join("ackonce.db"), SqliteOptions::default()).unwrap();
        let owner = ledger.enroll().await.unwrap();
        Self { dir, ledger, owner }
    }

    /// One row of each state in `orders`, and a done one with a duplicate in `mails`.
    async fn with_rows() -> Self {
        let desk = Self::new().await;
        desk.put("orders", "working", None, AT).await;
        desk.put("orders", "handled", Some(Ending::Done), AT + 1000).await;
        desk.put(
            "orders",
            "broken",
            Some(Ending::Failed {
                error: "no money".to_owned(),
                parked: false,
                next_after: Some(Duration::from_secs(60)),
            }),
            AT + 2000,
        )
        .await;
        desk.put(
            "orders",
            "given up",
            Some(Ending::Dead { error: "never\nagain".to_owned(), copied: true }),
            AT + 3000,
        )
        .await;
        desk.put("mails", "handled", Some(Ending::Done), AT + 4000).await;
        assert_eq!(desk.put("mails", "handled", None, AT + 5000).await, Claim::Duplicate);
        desk
    }

    async fn put(&self, scope: &str, key: &str, ending: Option<Ending>, now: Millis) -> Claim {
        let (scope, key) = (scope.into(), Key::new(key).unwrap());
        let request = ClaimRequest { scope, key, fingerprint: None, origin: Origin::Fresh, copies: 1 };
        let claim = self.ledger.claim(&self.owner, vec![request.clone()], now).await.unwrap().remove(0);
        if let (Some(ending), Claim::Claimed(ticket)) = (ending, &claim) {
            let ClaimRequest { scope, key, .. } = request;
            let finish = Finish {
                scope,
                key,
                ticket: ticket.clone(),
                ending,
                copies: 0,
                ran: Some(Duration::from_millis(1500)),
            };
            self.ledger.finish(&self.owner, vec![finish], now).await.unwrap();
        }
        claim
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("ackonce.db")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ackonce(arguments);
        command.arg("--ledger").arg(self.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat()).ok()).unwrap()
    }
}

#[tokio::test]
async fn stats_are_a_table_or_json() {
    let desk = Desk::with_rows().await;
    let text = desk.run(&["stats"]).ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "scope   processing  done  failed  dead  duplicates  oldest processing");
    assert_eq!(lines[1], "mails   0           1     0       0     1           -");
    assert_eq!(lines[2], "orders  1           1     1       1     0           2027-01-15T08:00:00.123Z");
    assert!(lines[4].starts_with("size ") && lines[4].contains(", log "), "{text}");
    let stats = desk.json(&["stats"]);
    assert_eq!(stats["scopes"][0]["duplicates"], json!(1));
    assert_eq!(stats["scopes"][1]["oldest_processing_ms"], json!(AT));
    assert!(stats["bytes"].as_u64().unwrap() > 4096);
}

#[tokio::test]
async fn a_list_shows_the_newest_change_first() {
    let desk = Desk::with_rows().await;
    assert_eq!(
        desk.run(&["list"]).ok(),
        "scope   message_id  state       attempts  duplicates  updated                   last_error\n\
         mails   handled     done        1         1           2027-01-15T08:00:04.123Z  -\n\
         orders  given up    dead        1         0           2027-01-15T08:00:03.123Z  never\\nagain\n\
         orders  broken      failed      1         0           2027-01-15T08:00:02.123Z  no money\n\
         orders  handled     done        1         0           2027-01-15T08:00:01.123Z  -\n\
         orders  working     processing  1         0           2027-01-15T08:00:00.123Z  -\n"
    );
}

#[tokio::test]
async fn a_list_can_be_narrowed() {
    let desk = Desk::with_rows().await;
    let keys = |arguments: &[&str]| -> Vec<String> {
        let rows = desk.json(&[&["list"], arguments].concat());
        rows.as_array().unwrap().iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["--scope", "mails"]), ["handled"]);
    assert_eq!(keys(&["--state", "dead"]), ["given up"]);
    assert_eq!(keys(&["--limit", "2"]), ["handled", "given up"]);
    assert_eq!(keys(&["--scope", "nowhere"]), Vec::<String>::new());
    let said = desk.run(&["list", "--limit", "2"]);
    assert_eq!((said.code, said.stdout.lines().count()), (Some(0), 3));
    assert!(said.stderr.contains("--limit N shows more"), "{}", said.stderr);
    let said = desk.run(&["list", "--state", "finished"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("one of processing, done, failed, dead"), "{}", said.stderr);
}

#[tokio::test]
async fn show_tells_all_about_a_key() {
    let desk = Desk::with_rows().await;
    let owner = desk.owner.name();
    assert_eq!(
        desk.run(&["show", "given up"]).ok(),
        format!(
            "scope:          orders\n\
             message_id:     given up\n\
             state:          dead\n\
             attempts:       1\n\
             duplicates:     0\n\
             owner:          {owner}\n\
             first_seen:     2027-01-15T08:00:03.123Z\n\
             updated:        2027-01-15T08:00:03.123Z\n\
             last_duplicate: -\n\
             next_attempt:   -\n\
             last_error:     never\n                again\n\
             failures:       attempt 1, 2027-01-15T08:00:03.123Z, ran 1s 500ms: never\n                  again\n\
             meaning:        given up and dead-lettered: sent back to its queue, it runs again from attempt 1\n"
        )
    );
    let both = desk.run(&["show", "handled"]).ok();
    assert_eq!(both.matches("message_id:     handled").count(), 2, "{both}");
    assert_eq!(desk.json(&["show", "handled", "--scope", "mails"])[0]["last_duplicate_ms"], json!(AT + 5000));
    assert_eq!(desk.json(&["show", "working"])[0]["owner_alive"], json!(true));
    let working = desk.run(&["show", "working"]).ok();
    assert!(working.contains(&format!("owner:          {owner} (alive)\n")), "{working}");
    assert!(working.contains("meaning:        attempt 1 runs since 2027-01-15T08:00:00.123Z"), "{working}");
    let failure = json!({ "attempt": 1, "ended_ms": AT + 2000, "ran_ms": 1500, "error": "no money" });
    let broken = &desk.json(&["show", "broken"])[0];
    assert_eq!((&broken["failures"], &broken["next_attempt_ms"]), (&json!([failure]), &json!(AT + 62_000)));
    let broken = desk.run(&["show", "broken"]).ok();
    assert!(broken.contains("next_attempt:   2027-01-15T08:01:02.123Z\n"), "{broken}");
    desk.run(&["show", "HANDLED"]).fails(1, "no row for the key 'HANDLED'");
    desk.run(&["show", "broken", "--scope", "mails"]).fails(1, "in the scope 'mails'");
    desk.run(&["show", "broken", "--scope", "mails", "--json"]).fails(1, "no row");
}

#[tokio::test]
async fn a_claim_of_a_dead_owner_is_marked() {
    let Desk { dir, ledger, owner } = Desk::with_rows().await;
    drop(owner);
    let desk = Desk { dir, owner: ledger.enroll().await.unwrap(), ledger };
    let said = desk.run(&["show", "working"]).ok();
    assert!(said.contains("state:          processing (its owner is dead)\n"), "{said}");
    assert!(said.contains(" (dead)\n") && said.contains("the next delivery runs as attempt 2\n"), "{said}");
}

#[tokio::test]
async fn what_senders_chose_cannot_move_the_cursor() {
    let desk = Desk::new().await;
    desk.put(
        "orders",
        "a\u{1b}[2J\r\n",
        Some(Ending::Failed { error: "\u{1b}]0;x\u{7}".to_owned(), parked: false, next_after: None }),
        AT,
    )
    .await;
    for arguments in [&["list"][..], &["show", "a\u{1b}[2J\r\n"], &["forget", "a\u{1b}[2J\r\n"]] {
        let text = desk.run(arguments).ok();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let said = desk.run(&["show", "\u{1b}[2J"]);
    assert!(!said.stderr.contains('\u{1b}'), "{:?}", said.stderr);
}

#[tokio::test]
async fn a_forgotten_key_runs_again() {
    let desk = Desk::with_rows().await;
    assert_eq!(
        desk.run(&["forget", "handled", "--scope", "orders"]).ok(),
        "removed from orders (it was done)\n"
    );
    assert!(
        matches!(desk.put("orders", "handled", None, AT).await, Claim::Claimed(ticket) if ticket.attempt == 1)
    );
    assert_eq!(desk.put("mails", "handled", None, AT).await, Claim::Duplicate);
    assert_eq!(desk.json(&["forget", "broken"]), json!({ "removed": 1, "in_flight": 0 }));
    desk.run(&["forget", "broken"]).fails(1, "no row for the key 'broken'");
}

#[tokio::test]
async fn a_key_in_flight_is_not_forgotten() {
    let desk = Desk::with_rows().await;
    let said = desk.run(&["forget", "working"]);
    assert_eq!((said.code, &*said.stdout), (Some(1), "removed nothing\n"));
    assert!(said.stderr.contains("is being worked on"), "{}", said.stderr);
    assert!(desk.run(&["show", "working"]).ok().contains("processing"));
}

/// K07
#[tokio::test]
async fn a_message_can_be_let_run_again_or_taken_for_done() {
    let desk = Desk::with_rows().await;
    assert_eq!(
        desk.run(&["retry", "given up"]).ok(),
        "runs at its next delivery, from attempt 1: orders (it was dead)\n"
    );
    assert!(
        matches!(desk.put("orders", "given up", None, AT).await, Claim::Claimed(ticket) if ticket.attempt == 1)
    );
    assert_eq!(desk.run(&["mark-done", "broken"]).ok(), "is done: orders (it was failed)\n");
    assert_eq!(desk.run(&["mark-done", "broken"]).ok(), "it is done already\n");
    assert_eq!(desk.put("orders", "broken", None, AT).await, Claim::Duplicate);
    let one = json!({ "changed": 1, "done": 0, "in_flight": 0 });
    assert_eq!(desk.json(&["retry", "handled", "--scope", "orders"]), one);
    assert!(matches!(desk.put("orders", "handled", None, AT).await, Claim::Claimed(_)));
    assert_eq!(desk.put("mails", "handled", None, AT).await, Claim::Duplicate);
    for command in ["retry", "mark-done"] {
        desk.run(&[command, "nothing"]).fails(1, "no row for the key 'nothing'");
        let said = desk.run(&[command, "working"]);
        assert_eq!((said.code, &*said.stdout), (Some(1), "changed nothing\n"));
        assert!(said.stderr.contains("is being worked on"), "{}", said.stderr);
    }
}

#[tokio::test]
async fn prune_removes_what_is_old() {
    let desk = Desk::new().await;
    let now = unix_millis();
    const DAY: Millis = 86_400_000;
    for (key, days) in [("1", 30), ("2", 8), ("3", 6), ("4", 0)] {
        desk.put("orders", key, Some(Ending::Done), now - days * DAY).await;
    }
    assert_eq!(desk.run(&["prune"]).ok(), "removed 2 rows older than 7d\n");
    let mut command = desk.command(&["prune", "--older-than", "5d", "--json"]);
    let said: Said = command.env("ACKONCE_RETENTION", "5d").output().unwrap().into();
    assert_eq!(
        serde_json::from_str::<Value>(&said.ok()).unwrap(),
        json!({ "removed": 1, "complete": true }),
        "no less than configured"
    );
    assert_eq!(desk.json(&["list"])[0]["message_id"], json!("4"));
    desk.run(&["prune", "--older-than", "often"]).fails(2, "often");
    let mut command = desk.command(&["prune"]);
    let said: Said = command.env("ACKONCE_RETENTION", "400d").output().unwrap().into();
    assert_eq!(said.ok(), "removed 0 rows older than 400d\n");
}

/// K12: what is forgotten before it can no longer come back runs a second time. Unfinished rows do
/// not go by the age of finished ones.
#[tokio::test]
async fn prune_warns_below_the_configured_retention() {
    let desk = Desk::new().await;
    let hours_ago = |hours: Millis| unix_millis() - hours * 3_600_000;
    let failed = Ending::Failed { error: "no".to_owned(), parked: false, next_after: None };
    desk.put("orders", "done", Some(Ending::Done), hours_ago(3)).await;
    desk.put("orders", "failed", Some(failed), hours_ago(3)).await;
    desk.put("orders", "working", None, hours_ago(3)).await;
    let said = desk.run(&["prune", "--older-than", "1h"]);
    assert_eq!((said.code, &*said.stdout), (Some(0), "removed 1 row older than 1h\n"));
    let warned = said.stderr.contains("rows older than 1h") && said.stderr.contains("retention is 7d");
    assert!(warned, "{}", said.stderr);
    assert_eq!(desk.json(&["list"]).as_array().unwrap().len(), 2);
    std::fs::write(desk.dir.path().join("a.toml"), "[ledger]\nretention = \"2h\"\n").unwrap();
    let mut command = desk.command(&["prune", "--older-than", "1h", "--config", "a.toml"]);
    let said: Said = command.current_dir(&desk.dir).output().unwrap().into();
    assert!(said.stderr.contains("retention is 2h"), "{}", said.stderr);
}

/// It works in steps, so a signal ends it soon; what was removed is counted, and the rest is there.
#[tokio::test]
async fn prune_can_be_interrupted() {
    let desk = Desk::new().await;
    let rows = 200_000;
    Connection::open(desk.path())
        .unwrap()
        .execute_batch(&format!(
            "INSERT INTO scopes (name) VALUES ('orders');
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO messages (scope_id, key, state, attempts, owner_id, first_seen_ms, updated_ms)
             SELECT 1, 'old ' || i, 'done', 1, 0, i, i FROM n"
        ))
        .unwrap();
    let mut child = desk.command(&["prune"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while desk.ledger.rows().await.unwrap() == rows {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it removed anything");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("interrupted"), "{}", said.stderr);
    let left = desk.ledger.rows().await.unwrap();
    assert!(0 < left && left < rows);
    assert_eq!(said.stdout, format!("removed {} rows older than 7d\n", rows - left));
}

/// K20: while its reader is slow, a list holds nothing that would keep the log from being emptied.
#[tokio::test]
async fn a_list_that_waits_for_its_reader_holds_no_transaction() {
    let desk = Desk::new().await;
    for n in 0..200 {
        let error = "x".repeat(1000);
        desk.put(
            "orders",
            &format!("key {n}"),
            Some(Ending::Failed { error, parked: false, next_after: None }),
            AT,
        )
        .await;
    }
    let mut child =
        desk.command(&["list", "--json", "--limit", "200"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "the pipe holds less than all of it");
    desk.put("orders", "another", None, AT).await;
    let (busy, log): (i64, i64) = Connection::open(desk.path())
        .unwrap()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!((busy, log), (0, 0));
    // A reader that goes away early is no error.
    drop(stdout);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_missing_ledger_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["stats"][..],
        &["list"],
        &["show", "a"],
        &["forget", "a"],
        &["retry", "a"],
        &["mark-done", "a"],
        &["prune"],
    ] {
        let said: Said = ackonce(arguments).current_dir(&dir).output().unwrap().into();
        said.fails(2, "there is no ledger at ackonce.db");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_no_ledger_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ackonce.db");
    std::fs::write(&path, [b'x'; 5000]).unwrap();
    for arguments in [&["stats"][..], &["prune"]] {
        let said: Said = ackonce(arguments).current_dir(&dir).output().unwrap().into();
        said.fails(1, "is not a ledger");
    }
    assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 5000]);
}

#[tokio::test]
async fn the_ledger_is_named_by_flag_variable_or_file() {
    let desk = Desk::with_rows().await;
    let (path, elsewhere) = (desk.path(), tempfile::tempdir().unwrap());
    let path = path.to_str().unwrap();
    std::fs::write(elsewhere.path().join("a.toml"), format!("[ledger]\nurl = \"sqlite:{path}\"\n")).unwrap();
    let url = format!("sqlite:{path}");
    for (arguments, variable) in [
        (vec!["stats", "--ledger", path], "nowhere.db"),
        (vec!["--ledger", &url, "stats"], ""),
        (vec!["stats"], path),
        (vec!["stats"], &url),
        (vec!["stats", "--config", "a.toml"], ""),
    ] {
        let mut command = ackonce(&arguments);
        command.current_dir(&elsewhere).env("AMQP_URL", "no url at all");
        if !variable.is_empty() {
            command.env("ACKONCE_LEDGER", variable);
        }
        let said = Said::from(command.output().unwrap());
        assert!(said.ok().contains("orders"), "{arguments:?} {variable}");
    }
    let said: Said = ackonce(&["stats", "--ledger", "postgres://h/d"]).output().unwrap().into();
    said.fails(2, "postgres");
}
