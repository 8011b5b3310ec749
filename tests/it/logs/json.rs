//! `--log-format json`, and which event has which level.

use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::harness::{Process, World, ackonce, shared_url};

/// Every line as an object, which is flat and has what each must have.
fn objects(said: &str) -> Vec<Map<String, Value>> {
    let object = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let Value::Object(object) = value else { panic!("no object: {line}") };
        let nested = object.values().any(|value| value.is_object() || value.is_array());
        assert!(!nested, "not flat: {line}");
        let time = object["timestamp"].as_str().unwrap();
        let time = humantime::parse_rfc3339(time).unwrap_or_else(|error| panic!("{error}: {line}"));
        let age = SystemTime::now().duration_since(time).expect("a time in UTC is not to come");
        assert!(time.elapsed().is_ok() && age.as_secs() < 3600, "{line}");
        assert!(object["message"].is_string() && object["level"].is_string(), "{line}");
        object
    };
    said.lines().map(object).collect()
}

/// A run with a success, a duplicate, a retry and a dead letter: each is one object, with its level.
#[tokio::test(flavor = "multi_thread")]
async fn each_line_is_a_flat_object_and_each_outcome_has_its_level() {
    let world = World::new("logs.json").await;
    let handler = world.script(r#"[ "$ACKONCE_KEY" = good ] || { echo "no \"good\"" >&2; exit 1; }"#);
    let worker = world.worker(&[
        "--log-format",
        "json",
        "--max-attempts",
        "2",
        "--initial-interval",
        "10ms",
        "--exec",
        &handler,
    ]);
    world.publish("good", b"x").await;
    world.until_state("done", 1).await;
    world.publish("good", b"x").await;
    world.publish("bad", b"x").await;
    world.until_state("dead", 1).await;
    worker.until_said("\"duplicate\"").await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    let lines = objects(&ended.said);
    let of = |message: &str| -> Vec<_> {
        let lines = lines.iter().filter(|line| line["message"] == message);
        lines.map(|line| (line["level"].as_str().unwrap(), line["key"].as_str().unwrap())).collect()
    };
    assert_eq!(of("handled"), [("DEBUG", "good")], "{}", ended.said);
    assert_eq!(of("duplicate"), [("DEBUG", "good")]);
    assert_eq!(of("failed, will be tried again"), [("WARN", "bad")]);
    assert_eq!(of("dead-lettered"), [("ERROR", "bad")]);
    let dead = lines.iter().find(|line| line["message"] == "dead-lettered").unwrap();
    assert!(dead["error"].as_str().unwrap().contains("no \"good\""), "{dead:?}");
    assert_eq!(dead["queue"], *world.queue);
    let stopped = lines.last().unwrap();
    assert_eq!((&stopped["message"], &stopped["handled"]), (&"stopped".into(), &1.into()));
    assert!(!ended.said.contains('\u{1b}'));
}

/// At the default level a success is silent, and text lines name their level.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_is_not_logged_unless_somebody_asks() {
    let world = World::new("logs.info").await;
    let handler = world.script(r#"[ "$ACKONCE_KEY" = good ] || exit 65"#);
    let worker = world.worker_with(
        |command| {
            command.env_remove("ACKONCE_LOG_LEVEL");
        },
        &["--exec", &handler],
    );
    for id in ["good", "good", "bad"] {
        world.publish(id, b"x").await;
    }
    world.until_state("done", 1).await;
    world.until_state("dead", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    let with_key = ended.said.lines().filter(|line| line.contains("key=\"")).collect::<Vec<_>>();
    assert!(
        matches!(with_key[..], [line] if line.contains("ERROR") && line.contains("dead-lettered")),
        "{}",
        ended.said
    );
    assert!(!ended.said.contains(['\u{1b}', '·']), "no terminal, no status line: {}", ended.said);
}

/// What ends a command is an object as well, at any level; a format that is none is refused in words.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_sentence_of_a_failure_is_an_object_too() {
    let folder = tempfile::tempdir().unwrap();
    let start = |arguments: &[&str]| {
        let mut command = ackonce();
        command.args(arguments).env("ACKONCE_LOG_FORMAT", "json").env("ACKONCE_LOG_LEVEL", "off");
        command.current_dir(folder.path());
        Process::start(command, folder.path())
    };
    let wrong = start(&["run", "--queue", "q", "--prefetch", "0", "--timeout", "x", "--exec", "./none"]);
    let ended = wrong.ended(crate::harness::LIMIT).await;
    ended.expect_exit(2);
    let [line] = &objects(&ended.said)[..] else { panic!("{}", ended.said) };
    assert_eq!((&line["level"], &line["exit_code"]), (&"ERROR".into(), &2.into()));
    assert!(line["message"].as_str().unwrap().contains("--prefetch"), "{line:?}");

    let refused = start(&["run", "--log-format", "xml", "--queue", "q", "--log"]);
    let ended = refused.ended(crate::harness::LIMIT).await;
    ended.expect_exit(2).expect_said("ackonce: --log-format \"xml\": expected text or json");
}

/// K63: no line of any level holds the password.
#[tokio::test(flavor = "multi_thread")]
async fn no_object_holds_a_password() {
    let mut world = World::without_queue("logs.secret").await;
    let host = shared_url().rsplit(['@', '/']).find(|part| part.contains(':')).unwrap().to_owned();
    world.url = format!("amqp://guest:hid%20den@{host}");
    let worker = world.worker_with(
        |command| {
            command.env("ACKONCE_LOG_FORMAT", "json").env("ACKONCE_LOG_LEVEL", "trace");
        },
        &["--log"],
    );
    let ended = worker.ended(crate::harness::LIMIT).await;
    ended.expect_exit(1).expect_said("access refused for user 'guest'");
    assert!(!ended.said.contains("hid"), "{}", ended.said);
    assert!(objects(&ended.said).len() > 2, "{}", ended.said);
}
