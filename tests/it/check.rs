//! `ackonce check`: each broken setup is named by its own line, nothing hides the rest, nothing is changed.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use lapin::types::{AMQPValue, FieldTable, LongString};
use serde_json::Value;

use crate::harness::{LIMIT, Process, SmallDisk, World, ackonce, may_mount};

/// What one run printed and how it ended.
struct Checked {
    code: i32,
    lines: Vec<Value>,
    /// Standard output and standard error, for what must not be in them.
    all: String,
}

impl Checked {
    /// The results of the lines about `what`.
    fn results<'a>(&'a self, what: &'a str) -> Vec<&'a str> {
        self.about(what).map(|line| line["result"].as_str().unwrap()).collect()
    }

    fn about<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["check"] == what)
    }

    fn failed(&self) -> Vec<&str> {
        let failed = self.lines.iter().filter(|line| line["result"] == "fail");
        failed.map(|line| line["check"].as_str().unwrap()).collect()
    }

    /// Exactly these lines are failures, each with a hint, and the first one says `text`.
    #[track_caller]
    fn expect_failed(&self, what: &[&str], text: &str) {
        assert_eq!(self.failed(), what, "{}", self.all);
        assert_eq!(self.code, 1, "{}", self.all);
        let failures: Vec<_> = self.lines.iter().filter(|line| line["result"] == "fail").collect();
        assert!(failures.iter().all(|line| line["hint"].is_string()), "{}", self.all);
        let value = failures[0]["value"].as_str().unwrap();
        assert!(value.contains(text), "'{text}' is not in: {value}");
    }
}

fn command(world: &World, url: &str) -> Command {
    let mut command = ackonce();
    command.args(["check", "--json", "--url", url, "--queue", &world.queue]);
    command.arg("--ledger").arg(world.path("ackonce.db")).current_dir(world.folder.path());
    command
}

async fn run(world: &World, command: Command) -> Checked {
    let ended = Process::start(command, world.folder.path()).ended(LIMIT * 2).await;
    let lines = ended.printed.lines().map(|line| serde_json::from_str(line).expect("a JSON object"));
    let code = ended.status.code().expect("an exit code");
    Checked { code, lines: lines.collect(), all: format!("{}{}", ended.printed, ended.said) }
}

async fn check_at(world: &World, url: &str, more: &[&str]) -> Checked {
    let mut command = command(world, url);
    command.args(more);
    run(world, command).await
}

async fn check(world: &World, more: &[&str]) -> Checked {
    check_at(world, &world.url, more).await
}

/// The shared broker's URL with other credentials and vhost.
fn url_with(world: &World, user: &str, vhost: &str) -> String {
    let (_, rest) = world.url.split_once("://").unwrap();
    let authority = rest.split('/').next().unwrap();
    let host = authority.rsplit('@').next().unwrap();
    format!("amqp://{user}@{host}/{vhost}")
}

/// Files of the world's folder but those that the harness writes into, with their lengths and a hash of
/// what is in them.
fn files(world: &World) -> Vec<(String, usize, u64)> {
    let mut files: Vec<_> = fs::read_dir(world.folder.path())
        .unwrap()
        .flatten()
        .map(|entry| {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            (entry.file_name().into_string().unwrap(), bytes.len(), hasher.finish())
        })
        .filter(|(name, ..)| !name.starts_with("said-") && !name.starts_with("printed-"))
        // SQLite's index of the log, which it makes anew, and a log that holds nothing.
        .filter(|(name, length, _)| !(name.ends_with("-shm") || name.ends_with("-wal") && *length == 0))
        .collect();
    files.sort();
    files
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// Where everything is in order: every line is there and says so, and nothing is made or changed, neither
/// at the broker nor on the disk; not before the first worker, not after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_good_setup_passes_and_nothing_is_changed() {
    let world = World::without_queue("checkgood").await;
    let handler = world.handler("", "");
    let before = files(&world);
    let checked = check(&world, &["--exec", &handler]).await;
    assert_eq!(checked.code, 0, "{}", checked.all);
    assert_eq!(files(&world), before);
    assert!(checked.all.contains("RabbitMQ "), "{}", checked.all);
    assert!(checked.all.contains("will be created"), "{}", checked.all);
    assert!(checked.all.contains("a worker makes it, a quorum queue"), "{}", checked.all);
    for what in [
        "configuration",
        "broker",
        "login",
        "queue",
        "dead letters",
        "handler timeout",
        "ledger",
        "file system",
        "SQLite",
        "retention",
        "handler",
    ] {
        assert_eq!(checked.results(what).len(), 1, "{what}: {}", checked.all);
        assert_ne!(checked.results(what), ["fail"], "{what}: {}", checked.all);
    }

    let worker = world.worker(&["--exec", &handler]);
    worker.until_consuming().await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    let beside_a_worker = check(&world, &["--exec", &handler]).await;
    assert_eq!(beside_a_worker.code, 0, "{}", beside_a_worker.all);
    assert!(beside_a_worker.all.contains("1 consumers"), "{}", beside_a_worker.all);
    worker.terminate().await.expect_exit(0);

    let before = files(&world);
    let checked = check(&world, &["--exec", &handler]).await;
    assert_eq!(checked.code, 0, "{}", checked.all);
    assert_eq!(files(&world), before);
    assert!(checked.all.contains("sound and writable, 1 messages"), "{}", checked.all);
    assert!(checked.all.contains("quorum, 0 messages ready"), "{}", checked.all);
    assert_eq!(checked.results("delivery limit"), ["ok"], "{}", checked.all);

    let mut plain = command(&world, &world.url);
    plain.args(["--exec", &handler]);
    let arguments: Vec<_> =
        plain.get_args().filter(|argument| *argument != "--json").map(Into::into).collect();
    let mut for_people = ackonce();
    for_people.args::<Vec<std::ffi::OsString>, _>(arguments).current_dir(world.folder.path());
    let ended = Process::start(for_people, world.folder.path()).ended(LIMIT).await;
    ended.expect_exit(0);
    assert!(ended.printed.contains("ok    login               user 'guest', vhost '/'"), "{}", ended.printed);
}

/// A queue that is missing is not made by looking for it.
#[tokio::test(flavor = "multi_thread")]
async fn looking_makes_no_queue() {
    let world = World::without_queue("checkmakes").await;
    for _ in 0..2 {
        let checked = check(&world, &["--log"]).await;
        assert!(checked.all.contains("not there yet: a worker makes it"), "{}", checked.all);
    }
    let missing = check(&world, &["--declare", "passive", "--log"]).await;
    missing.expect_failed(&["queue", "dead letters"], "there is no such queue");
}

/// Broker away, wrong password, wrong vhost: each is told from the others, and ledger and handler are
/// looked at all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_or_refuses_is_named_and_hides_nothing() {
    let world = World::new("checkbroker").await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = check_at(&world, &format!("amqp://{free}"), &["--log"]).await;
    away.expect_failed(&["broker", "login", "queue", "dead letters"], "nothing listens on");

    let wrong = check_at(&world, &url_with(&world, "guest:s3cret-wrong", "%2F"), &["--log"]).await;
    wrong.expect_failed(&["login", "queue", "dead letters"], "wrong user or password");
    assert_eq!(wrong.results("broker"), ["ok"]);
    assert!(!wrong.all.contains("s3cret"), "{}", wrong.all);

    let vhost = check_at(&world, &url_with(&world, "guest:guest", "no-such-vhost"), &["--log"]).await;
    vhost.expect_failed(&["login", "queue", "dead letters"], "the vhost 'no-such-vhost' does not exist");

    for checked in [&away, &wrong, &vhost] {
        assert_eq!(checked.results("ledger"), ["ok"]);
        assert_eq!(checked.results("handler"), ["ok"]);
    }
}

/// A port that accepts and stays silent, and one where somebody else answers: both within the limits, and with the
/// ledger's line all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_does_not_speak_amqp_is_named_in_time() {
    let world = World::new("checksilent").await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = http.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::Write;
        for mut client in http.incoming().flatten() {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (address, says) in
        [(silent.local_addr().unwrap(), "does not speak AMQP within"), (other, "does not greet as AMQP")]
    {
        let checked = check_at(&world, &format!("amqp://{address}"), &["--log"]).await;
        checked.expect_failed(&["broker", "login", "queue", "dead letters"], says);
        assert_eq!(checked.results("ledger"), ["ok"]);
    }
}

/// Of several URLs one that works is enough; the others are warned of.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_brokers_is_enough() {
    let world = World::new("checkseveral").await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let checked = check_at(&world, &format!("amqp://{free}"), &["--url", &world.url, "--log"]).await;
    assert_eq!(checked.code, 0, "{}", checked.all);
    assert_eq!(checked.results("broker"), ["warn", "ok"]);
    assert_eq!(checked.results("queue"), ["ok"]);
}

/// What is rejected from a queue without a dead-letter route is dropped by the broker; and so is what
/// exceeds a quorum queue's delivery limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_loses_dead_letters_is_named() {
    let world = World::without_queue("checkroute").await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(3));
    world.declare_with(&world.queue, arguments).await;
    let rejected = check(&world, &["--dead-letter", "reject", "--log"]).await;
    rejected.expect_failed(&["dead letters"], "no dead-letter exchange of its own");
    assert_eq!(rejected.results("delivery limit"), ["warn"]);
    let limit = rejected.about("delivery limit").next().unwrap()["value"].as_str().unwrap().to_owned();
    assert!(limit.starts_with("3;") && limit.contains("dropped"), "{limit}");

    let nowhere = ["--dead-letter", "reject", "--dead-letter-exchange", "no.such.exchange", "--log"];
    check(&world, &nowhere).await.expect_failed(&["dead letters"], "no.such.exchange, which is not there");
    let policy = ["--dead-letter", "reject", "--dead-letter-exchange", "amq.fanout", "--log"];
    assert_eq!(check(&world, &policy).await.code, 0);
    let published = check(&world, &["--declare", "none", "--log"]).await;
    published.expect_failed(&["dead letters"], ".dead, which is not there");
}

/// A configuration with mistakes: all of them at once, as `run` says them, and exit status 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_wrong_ends_with_2_and_all_its_mistakes() {
    let world = World::new("checkconfig").await;
    let wrong = check(&world, &["--retention", "1m", "--prefetch", "0", "--log"]).await;
    assert_eq!((wrong.code, wrong.lines.len()), (2, 0), "{}", wrong.all);
    assert!(wrong.all.contains("forgets it after 1m"), "{}", wrong.all);
    assert!(wrong.all.contains("0 would mean unlimited"), "{}", wrong.all);

    fs::write(world.path("broken.toml"), "[[worker]\nqueue = ").unwrap();
    let mut command = ackonce();
    command.args(["check", "--config"]).arg(world.path("broken.toml")).current_dir(world.folder.path());
    let broken = run(&world, command).await;
    assert_eq!((broken.code, broken.lines.len()), (2, 0), "{}", broken.all);
    assert!(broken.all.contains("broken.toml"), "{}", broken.all);
}

/// A damaged ledger, something else in its place, and a place where none can be made.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_cannot_be_used_is_named_and_left_as_it_is() {
    let world = World::new("checkledger").await;
    let ledger = world.path("ackonce.db");
    let noise: Vec<u8> = (0..8192u32).map(|n| (n * 7919 % 251) as u8).collect();
    for (bytes, says) in [(noise, "is not a ledger"), (Vec::new(), "is an empty file")] {
        fs::write(&ledger, &bytes).unwrap();
        let before = files(&world);
        check(&world, &["--log"]).await.expect_failed(&["ledger"], says);
        assert_eq!(files(&world), before);
    }
    fs::remove_file(&ledger).unwrap();
    let worker = world.worker(&["--log"]);
    worker.until_consuming().await;
    worker.terminate().await.expect_exit(0);
    let whole = fs::read(&ledger).unwrap();
    fs::write(&ledger, &whole[..whole.len() / 2]).unwrap();
    check(&world, &["--log"]).await.expect_failed(&["ledger"], "is damaged");

    fs::rename(&ledger, world.path("a-file")).unwrap();
    let mut command = ackonce();
    command.args(["check", "--json", "--url", &world.url, "--queue", &world.queue]);
    command.arg("--ledger").arg(world.path("a-file/ackonce.db")).arg("--log");
    let under = run(&world, command).await;
    under.expect_failed(&["ledger"], "a-file/ackonce.db");
}

/// A ledger's folder on a disk that is mounted read-only: also root cannot write there.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_is_named() {
    if !may_mount("check::a_folder_that_cannot_be_written_is_named") {
        return;
    }
    let world = World::new("checkreadonly").await;
    let disk = SmallDisk::mount(&world.path("disk"), 1024);
    let remount = |how: &str| {
        let status = Command::new("mount").args(["-o", how]).arg(world.path("disk")).status();
        assert!(status.expect("mount starts").success());
    };
    let at = |path: std::path::PathBuf| {
        let mut command = ackonce();
        command.args(["check", "--json", "--url", &world.url, "--queue", &world.queue]);
        command.arg("--ledger").arg(path).arg("--log");
        command
    };
    let fine = run(&world, at(disk.path("ackonce.db"))).await;
    assert_eq!(fine.code, 0, "{}", fine.all);
    assert_eq!(fine.results("file system"), ["warn"], "a tmpfs does not stay: {}", fine.all);
    remount("remount,ro");
    run(&world, at(disk.path("ackonce.db"))).await.expect_failed(&["ledger"], "is not writable");
}

/// A handler that could not start: no program, no permission, an endpoint that refuses.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_cannot_start_is_named() {
    let world = World::new("checkhandler").await;
    let script = world.handler("", "");
    check(&world, &["--exec", "/no/such/program", "s3cret"])
        .await
        .expect_failed(&["handler"], "'/no/such/program' does not exist");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    check(&world, &["--pipe", &script]).await.expect_failed(&["handler"], "is not executable");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = check(&world, &["--http", &format!("http://u:s3cret@{free}/x")]).await;
    refused.expect_failed(&["handler"], &free.to_string());
    assert!(!refused.all.contains("s3cret"), "{}", refused.all);
    check(&world, &["--sql", "no-such.sql"]).await.expect_failed(&["handler"], "no-such.sql");
}

/// A run that takes longer than the broker lets a delivery be unacked: the queue's own limit, if it states one
/// and the broker tells it; else the default is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_brokers_patience_is_warned_of() {
    let world = World::new("checkpatience").await;
    let handler = world.handler("", "");
    let slow = check(&world, &["--timeout", "40m", "--exec", &handler]).await;
    assert_eq!((slow.code, slow.results("handler timeout")), (0, vec!["warn"]), "{}", slow.all);
    let value = slow.about("handler timeout").next().unwrap()["value"].as_str().unwrap();
    assert!(value.contains("a run ends within 40m") && value.contains("its default, 30m"), "{value}");
    let waits = check(&world, &["--timeout", "5m", "--exec", &handler]).await;
    assert_eq!(waits.results("handler timeout"), ["warn"], "{}", waits.all);
    assert!(waits.all.contains("64 prefetched messages may wait"), "{}", waits.all);
}
