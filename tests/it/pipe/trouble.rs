//! Children that are late, talk nonsense, or die: replaced, at the cost of what they held.

use std::fs;

use super::{dead, worker};
use crate::harness::{LIMIT, World, children, is_alive, until};

const TWICE: [&str; 6] = ["--max-attempts", "2", "--initial-interval", "1ms", "--max-interval", "1ms"];

fn with<'a>(first: &[&'a str], second: &[&'a str]) -> Vec<&'a str> {
    [first, second].concat()
}

/// A late child is replaced, with whatever it has started; the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_child_is_replaced() {
    let world = World::new("late").await;
    world.publish("slow", b"slow").await;
    for number in 0..20 {
        world.publish(&number.to_string(), b"x").await;
    }
    let lines = r#"
if body == "slow":
    print("so slow", file=sys.stderr, flush=True)
    note("grandchildren", subprocess.Popen(["sleep", "600"]).pid)
    time.sleep(600)
answer(message)
"#;
    let two = ["--pipe-children", "2", "--timeout", "3s"];
    let worker = worker(&world, &with(&TWICE, &two), lines);
    world.until_state("done", 20).await;
    world.until_state("dead", 1).await;
    let left: Vec<_> = world.lines("grandchildren").into_iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!((world.lines("grandchildren").len(), left.len()), (2, 0), "{left:?}");
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("a child is replaced: timed out after 3s: so slow");
    assert_eq!(dead(&world).await, [("slow".to_owned(), "timed out after 3s: so slow".to_owned())]);
    assert!(world.rows().iter().all(|row| row.key == "slow" || row.attempts == 1), "{:?}", world.rows());
}

/// What else the late child held fails with it, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_message_takes_its_neighbours_along_once() {
    let world = World::new("neighbours").await;
    let lines = r#"
note("seen", message["key"], message["attempt"])
if message["attempt"] > 1 or message["key"] == "first":
    answer(message)
if message["key"] == "slow" and message["attempt"] == 1:
    time.sleep(600)
"#;
    let several = ["--pipe-children", "1", "--pipe-in-flight", "2", "--timeout", "3s"];
    let worker = worker(&world, &with(&TWICE, &several), lines);
    world.publish("slow", b"x").await;
    until("it is seen", LIMIT, async || world.lines("seen").len() == 1).await;
    // Half of the slow one's time later, so that it is not late itself.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    world.publish("near", b"x").await;
    world.until_state("done", 2).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("timed out after 3s").expect_said("another message timed out there");
    assert!(world.rows().iter().all(|row| row.attempts == 2), "{:?}", world.rows());
}

/// Whatever a child writes that is no reply ends it, and is shown.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_shown_and_ends_the_child() {
    let world = World::new("nonsense").await;
    let said = [
        ("text", "print('hello', flush=True)"),
        ("long", "sys.stdout.write('x' * 200_000); sys.stdout.flush()"),
        ("unknown", "print(json.dumps({'id': 12345, 'result': 'done'}), flush=True)"),
        ("bytes", "sys.stdout.buffer.write(bytes([255, 0, 10])); sys.stdout.flush()"),
        ("closed", "os.close(1); time.sleep(600)"),
    ];
    for (key, code) in said {
        world.publish(key, code.as_bytes()).await;
    }
    world.publish("good", b"answer(message)").await;
    let arguments = with(&TWICE, &["--pipe-children", "2", "--timeout", "20s"]);
    let worker = worker(&world, &arguments, "exec(body)");
    world.until_state("dead", said.len()).await;
    world.until_state("done", 1).await;
    assert!(children(worker.pid()).iter().all(|child| !child.contains("zombie")));
    world.stop_and_find_nothing_left(worker).await;
    let dead = dead(&world).await;
    for (key, part) in [
        ("bytes", "it wrote something that is no reply (expected value at line 1 column 1): \"\u{fffd}\\0\""),
        ("closed", "its child closed a pipe without an answer"),
        ("long", "it wrote a line of more than 65536 bytes: \"xxx"),
        ("text", "it wrote something that is no reply (expected value at line 1 column 1): \"hello\""),
        ("unknown", "it wrote a reply to the message 12345, which it does not have"),
    ] {
        let (_, error) = dead.iter().find(|(id, _)| id == key).expect("a dead letter");
        assert!(error.contains(part) && error.len() <= 1024, "{key}: {error}");
    }
}

/// The second answer to a message ends the child, whatever it holds by then: perhaps that very message again.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_answer_ends_the_child() {
    let world = World::new("twice").await;
    world.publish("twice", b"x").await;
    let lines = "answer(message, 'retry', error='first'); answer(message)";
    let worker = worker(&world, &with(&TWICE, &["--pipe-children", "1"]), lines);
    world.until_state("dead", 1).await;
    let second = "it wrote a reply to the message 1, which it does not have";
    worker.until_said(second).await;
    worker.terminate().await.expect_exit(0);
    let (_, error) = &dead(&world).await[0];
    assert!(error == "first" || error.contains(second), "{error}");
}

/// A message that kills its child costs itself only, whether the child was new or had done work.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_its_child_is_given_up_and_the_rest_is_done() {
    let world = World::new("deadly").await;
    let deadly = [
        ("exit", "print('no more', file=sys.stderr); sys.exit(3)"),
        ("kill", "os.kill(os.getpid(), signal.SIGKILL)"),
    ];
    for (key, code) in deadly {
        world.publish(key, code.as_bytes()).await;
    }
    for number in 0..20 {
        world.publish(&number.to_string(), b"answer(message)").await;
    }
    let worker = worker(&world, &with(&TWICE, &["--pipe-children", "1"]), "exec(body)");
    world.until_state("dead", 2).await;
    world.until_state("done", 20).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert!(!ended.said.contains("paused"), "{}", ended.said);
    assert_eq!(
        dead(&world).await,
        [
            ("exit".to_owned(), "its child ended without an answer: exit status 3: no more".to_owned()),
            ("kill".to_owned(), "its child ended without an answer: killed by signal 9".to_owned()),
        ]
    );
    let attempts = |row: &crate::harness::Row| if row.state == "dead" { 2 } else { 1 };
    assert!(world.rows().iter().all(|row| row.attempts == attempts(row)), "{:?}", world.rows());
}

/// A program that cannot stay pauses the worker, uses no attempt, does not spin, and is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_at_once_pauses_the_worker() {
    let world = World::new("bad").await;
    for number in 0..20 {
        world.publish(&number.to_string(), b"x").await;
    }
    let program = world.path("child.py");
    fs::write(&program, "open('starts', 'a').write('x\\n'); raise SystemExit('no database')").unwrap();
    let path = program.display().to_string();
    let worker = world.worker(&["--pipe-children", "2", "--pipe", "python3", &path]);
    worker
        .until_said("paused, no attempt is used: 'python3' ends by itself: exit status 1: no database")
        .await;
    let before = world.lines("starts").len();
    assert!(before <= 8, "{before} starts");
    until("it is tried again", LIMIT, async || world.lines("starts").len() >= before + 2).await;
    assert_eq!(worker.said().matches("paused, no attempt").count(), 1, "said once");
    until("nothing is claimed", LIMIT, async || world.rows().iter().all(|row| row.state == "failed")).await;
    let good = "import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n    \
                print(json.dumps({'id': m['id'], 'result': 'done'}), flush=True)\n";
    fs::write(&program, good).unwrap();
    world.until_state("done", 20).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("the handler can start again");
    assert!(world.rows().iter().all(|row| row.attempts == 1), "{:?}", world.rows());
}

/// K75 for pipes: missing at the start, and going away between two children.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_refused_or_waited_for() {
    let world = World::new("missing").await;
    let ended = world.worker(&["--pipe", "/no/such/program"]).ended(LIMIT).await;
    ended.expect_exit(2).expect_said("the handler '/no/such/program' does not exist: check the path");

    let program = world
        .script(r#"read -r line; id=${line#*\"id\":}; echo "{\"id\": ${id%%,*}, \"result\": \"done\"}""#);
    let worker = world.worker(&["--pipe-children", "1", "--pipe", &program]);
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let away = format!("{program}.away");
    fs::rename(&program, &away).unwrap();
    until("its child has ended", LIMIT, async || children(worker.pid()).is_empty()).await;
    world.publish("b", b"x").await;
    worker.until_said("paused, no attempt is used: the handler").await;
    fs::rename(&away, &program).unwrap();
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    assert!(world.rows().iter().all(|row| row.attempts == 1), "{:?}", world.rows());
}
