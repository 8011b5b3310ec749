//! `ackonce torture` on the shared broker: what it finds, what it says, and what it leaves behind.

use std::{fs, process::Output};

use tempfile::TempDir;

use crate::harness::{LIMIT, Process, World, ackonce, child_pids, shared_url, until};

fn torture(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = ackonce();
    command.args(["torture", "--url", &shared_url(), "--seed", "7"]).args(arguments);
    command.current_dir(folder.path()).output().expect("torture runs")
}

fn json(output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// With SQL, nothing ever takes effect twice, whatever is killed or cut.
#[test]
fn torture_of_sql_finds_nothing_lost_and_nothing_doubled() {
    let folder = tempfile::tempdir().unwrap();
    for queue_type in ["quorum", "classic"] {
        let output = torture(
            &folder,
            &[
                "--recorder",
                "sql",
                "--messages",
                "1000",
                "--kills",
                "15",
                "--cuts",
                "3",
                "--json",
                "--queue-type",
                queue_type,
            ],
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = json(&output);
        for (name, expected) in [
            ("messages", 1000),
            ("handled", 1000),
            ("kills", 15),
            ("cuts", 3),
            ("lost", 0),
            ("doubled_inside", 0),
            ("doubled_outside", 0),
        ] {
            assert_eq!(report[name], expected, "{name}: {report}");
        }
        assert!(report["sent"].as_u64() >= Some(2000), "{report}");
        assert!(report["amid_work"].as_u64() >= Some(9), "not even half of the faults found work: {report}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
}

/// With a command, only the promised window doubles; as text.
#[test]
fn torture_of_a_command_finds_doubles_only_in_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let output = torture(&folder, &["--messages", "300", "--kills", "25", "--copies", "3", "--exec", "cat"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("handled").ends_with(" 300"), "{said}");
    assert!(line("lost").ends_with(" 0"), "{said}");
    assert!(line("doubled").ends_with(", 0 of them outside the window"), "{said}");
    assert!(line("kills").contains(" 25 of 2 workers (command handler)"), "{said}");
}

/// A handler that gives each third message up: those are in the dead-letter queue, not lost.
#[test]
fn torture_counts_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let handler = r#"read -r n; [ $((n % 3)) != 0 ] || exit 65"#;
    let output = torture(&folder, &["--messages", "90", "--kills", "5", "--json", "--shell", handler]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!((report["handled"].as_u64(), report["dead_lettered"].as_u64()), (Some(60), Some(30)));
}

/// It finds what it looks for: a handler that takes effect behind the ledger's back is a fault.
#[test]
fn torture_fails_if_an_effect_comes_twice_unannounced() {
    let folder = tempfile::tempdir().unwrap();
    // Notes a second effect of its own, as a worker that ran it twice would.
    let forge = r#"[ "$ACKONCE_KEY" = 5 ] || exit 0
        for folder in ackonce-torture-*; do echo "5 1 0" >> "$folder/effects"; done"#;
    let output = torture(&folder, &["--messages", "20", "--kills", "0", "--json", "--shell", forge]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["doubled_outside"], 1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("5 took effect 2 times"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the ledger and the logs are kept");
}

/// And a message that is done without an effect is lost.
#[test]
fn torture_fails_if_a_message_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    // The last one takes the fifth one's effect away.
    let forge = r#"[ "$ACKONCE_KEY" = 19 ] || exit 0
        until grep -q "^5 " ackonce-torture-*/effects; do sleep 0.05; done
        sed -i "/^5 /d" ackonce-torture-*/effects"#;
    let output = torture(&folder, &["--messages", "20", "--kills", "0", "--shell", forge]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("5 is done without an effect"), "{said}");
}

#[test]
fn torture_refuses_what_it_sets_itself_and_a_handler_that_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--queue", "orders"][..], "--queue cannot be given: torture has a queue and a ledger of its own"),
        (&["--exec", "/no/such/program"][..], "/no/such/program"),
        (&["--cuts", "1", "--url", "amqps://127.0.0.1"][..], "--cuts needs one broker"),
        (&["--sql", "missing.sql"][..], "cannot read the SQL in missing.sql"),
    ] {
        let output = torture(&folder, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Interrupted, it takes its workers, its queue and its folder with it.
#[tokio::test(flavor = "multi_thread")]
async fn torture_cleans_up_when_it_is_interrupted() {
    let (folder, said) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = ackonce();
    command.args(["torture", "--url", &shared_url(), "--messages", "1000000", "--kills", "9"]);
    command.current_dir(folder.path());
    let torture = Process::start(command, said.path());
    until("its workers run", LIMIT, async || child_pids(torture.pid()).len() == 2).await;
    let made = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().file_name();
    let queue = made.to_string_lossy().replace("ackonce-torture-", "ackonce.torture.");
    let probe = World::without_queue("probe").await;
    probe.ready(&queue).await;
    let workers = child_pids(torture.pid());

    torture.signal(rustix::process::Signal::INT);
    let ended = torture.ended(LIMIT).await;
    ended.expect_exit(1).expect_said("interrupted by SIGINT");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is gone");
    let passive = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
    let found = probe.channel.queue_declare(queue.as_str().into(), passive, Default::default()).await;
    assert!(found.is_err(), "the queue is gone");
    let alive: Vec<_> = workers.iter().filter(|pid| crate::harness::is_alive(pid)).collect();
    assert!(alive.is_empty(), "workers {alive:?} still run");
}
