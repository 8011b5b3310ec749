//! K51: what a user must be allowed to do. The README's table says it; each of its lines is tried with exactly
//! these permissions, and with each of them taken away.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

use crate::harness::{LIMIT, Node, Process, World, ackonce, connect, publish, until};

const USER: &str = "worker";
const PASSWORD: &str = "s3cret";
/// Class and method numbers of AMQP 0-9-1.
const QUEUE_DECLARE: (u16, u16) = (50, 10);
const BASIC_CONSUME: (u16, u16) = (60, 20);
const BASIC_ACK: (u16, u16) = (60, 80);

fn with_user(node: &Node) -> String {
    node.ctl(&["add_user", USER, PASSWORD]);
    let (_, authority) = node.url.split_once("://").unwrap();
    format!("amqp://{USER}:{PASSWORD}@{authority}")
}

fn permit(node: &Node, permissions: &[String; 3]) {
    let mut arguments = vec!["set_permissions", "-p", "/", USER];
    arguments.extend(permissions.iter().map(String::as_str));
    node.ctl(&arguments);
}

/// A regular expression for exactly these names.
fn only(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.replace('.', "\\.")).collect();
    if names.is_empty() { "^$".to_owned() } else { format!("^({})$", names.join("|")) }
}

/// The way to a broker, with a copy of all that clients send.
struct Recorder {
    url: String,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorder {
    async fn to(url: &str) -> Self {
        let (front, broker) = url.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{front}@{}", listener.local_addr().unwrap());
        let sent: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let (kept, broker) = (sent.clone(), broker.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&broker).await.expect("a broker");
                let (mut client_in, mut client_out) = client.into_split();
                let (mut server_in, mut server_out) = server.into_split();
                tokio::spawn(async move { copy(&mut server_in, &mut client_out).await });
                let number = {
                    let mut all = kept.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                let kept = kept.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = client_in.read(&mut buffer).await {
                        kept.lock().unwrap()[number].extend_from_slice(&buffer[..length]);
                        if server_out.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, sent }
    }

    /// Every method that was sent whole, of all connections.
    fn methods(&self) -> Vec<(u16, u16)> {
        let mut methods = Vec::new();
        for bytes in self.sent.lock().unwrap().iter() {
            let header: &[u8] = b"AMQP\x00\x00\x09\x01";
            let mut rest = bytes.strip_prefix(header).expect("a protocol header");
            while let Some(head) = rest.get(..7) {
                let length = u32::from_be_bytes(head[3..7].try_into().unwrap()) as usize;
                let Some(frame) = rest.get(7..7 + length + 1) else { break };
                if head[0] == 1 {
                    let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
                    methods.push((number(0), number(2)));
                }
                rest = &rest[7 + length + 1..];
            }
        }
        methods
    }
}

/// K51: with read permission alone a worker consumes, and asks for no queue at all. A dead letter needs one more;
/// without it, it is kept, the text says which, and it goes on when that is granted.
#[tokio::test(flavor = "multi_thread")]
async fn read_permission_is_enough_to_consume_without_declaring() {
    let node = Node::start_new();
    let mut world = World::at(&node.url, "least").await;
    world.declare(&world.queue, "quorum").await;
    let recorder = Recorder::to(&with_user(&node)).await;
    let read = only(std::slice::from_ref(&world.queue));
    permit(&node, &["^$".into(), "^$".into(), read.clone()]);
    let admin = std::mem::replace(&mut world.url, recorder.url.clone());
    let handler = world.handler("[ $ACKONCE_KEY != bad ] || exit 65", "");
    let worker = world.worker(&["--declare", "none", "--exec", &handler]);
    worker.until_consuming().await;
    world.publish("good", b"x").await;
    world.until_state("done", 1).await;
    until("it is acked", LIMIT, async || recorder.methods().contains(&BASIC_ACK)).await;
    world.publish("bad", b"x").await;
    worker.until_said("cannot publish a copy, the message is kept").await;
    worker.until_said("write permission on that exchange").await;
    permit(&node, &["^$".into(), only(&["amq.default".into()]), read]);
    world.until_state("dead", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert!(!ended.said.contains(PASSWORD), "{}", ended.said);
    let methods = recorder.methods();
    assert!(methods.contains(&BASIC_CONSUME), "{methods:?}");
    assert!(!methods.contains(&QUEUE_DECLARE), "{methods:?}");
    assert!(methods.iter().all(|(class, _)| *class != 40), "an exchange was asked for: {methods:?}");
    let look = World::at(&admin, "probe").await;
    assert_eq!(look.ready(&world.queue).await, 0);
    assert_eq!(look.ready(&format!("{}.dead", world.queue)).await, 1);
}

/// One line of the README's table: what is done, and the names for configure, write and read.
#[derive(Debug)]
struct Line {
    what: String,
    names: [Vec<String>; 3],
}

fn table() -> Vec<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("the README");
    let (_, section) = readme.split_once("\n## Permissions\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("a section after it");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, configure, write, read] = cells[..] else { panic!("four cells: {row}") };
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Line { what: what.replace('`', ""), names: [names(configure), names(write), names(read)] }
    })
    .collect()
}

/// What a line allows, in a world of its own.
fn permissions(line: &Line, queue: &str) -> [String; 3] {
    let named = |names: &Vec<String>| {
        let names: Vec<String> = names
            .iter()
            .map(|name| {
                name.replace("QUEUE", queue).replace(".MS", ".3600000").replace("EXCHANGE", "amq.fanout")
            })
            .collect();
        only(&names)
    };
    [named(&line.names[0]), named(&line.names[1]), named(&line.names[2])]
}

/// Does what a line says, as the user; whether it worked.
async fn works(node: &Node, url: &str, what: &str, permissions: &dyn Fn(&str) -> [String; 3]) -> bool {
    let mut world = World::at(&node.url, "permits").await;
    let queue = world.queue.clone();
    if what != "make a missing queue and QUEUE.dead" {
        world.declare(&queue, "quorum").await;
    }
    if what.contains("ackonce publish --exchange") {
        let bind = world.channel.queue_bind(
            queue.as_str().into(),
            "amq.fanout".into(),
            "".into(),
            lapin::options::QueueBindOptions::default(),
            lapin::types::FieldTable::default(),
        );
        bind.await.expect("bound");
    }
    world.url = url.to_owned();
    permit(node, &permissions(&queue));
    let message = || async {
        let (_connection, channel) = connect(&node.url).await;
        let properties = lapin::BasicProperties::default().with_message_id("m".into());
        publish(&channel, "", &queue, b"x", properties).await;
    };
    let one_of = |worker: Process, good: Vec<String>| async move {
        let mut worker = worker;
        let said = |worker: &Process| good.iter().all(|text| worker.said().contains(text.as_str()));
        until("it works or says why not", LIMIT, async || {
            said(&worker) || worker.said().contains("cannot publish a copy") || !worker.is_running()
        })
        .await;
        said(&worker)
    };
    let consuming = vec!["consuming from amqp://".to_owned()];
    match what {
        "consume, with declare = \"none\"" => {
            one_of(world.worker(&["--declare", "none", "--log"]), consuming).await
        }
        "consume an existing queue" => one_of(world.worker(&["--log"]), consuming).await,
        "make a missing queue and QUEUE.dead" => one_of(world.worker(&["--log"]), consuming).await,
        "dead letters" => {
            message().await;
            let worker = world.worker(&["--exec", "sh", "-c", "exit 65"]);
            one_of(worker, vec!["dead-lettered".to_owned()]).await
        }
        "retries that wait long" => {
            message().await;
            let hour = ["--initial-interval", "1h", "--max-interval", "1h", "--jitter", "0"];
            let worker = world.worker(&[&hour[..], &["--exec", "false"]].concat());
            one_of(worker, vec!["failed, will be tried again".to_owned()]).await
        }
        "dead_letter = \"reject\", with dead_letter_exchange" => {
            let reject = ["--dead-letter", "reject", "--dead-letter-exchange", "amq.fanout", "--log"];
            one_of(world.worker(&reject), consuming).await
        }
        "ackonce publish --queue" => command(&world, &["publish", "--queue", &queue, "x"]).await,
        "ackonce publish --exchange" => {
            let exchange = ["publish", "--exchange", "amq.fanout", "--routing-key", "k", "x"];
            command(&world, &exchange).await
        }
        "ackonce dead list, show, purge; dead letters on the status page" => {
            let (_connection, channel) = connect(&node.url).await;
            publish(&channel, "", &format!("{queue}.dead"), b"x", lapin::BasicProperties::default()).await;
            command(&world, &["dead", "purge", "--queue", &queue, "--all", "--yes"]).await
        }
        "ackonce check" => command(&world, &["check", "--queue", &queue, "--log"]).await,
        other => panic!("this test knows nothing of '{other}'"),
    }
}

async fn command(world: &World, arguments: &[&str]) -> bool {
    let mut command = ackonce();
    command.args(arguments).env("AMQP_URL", &world.url).current_dir(world.folder.path());
    Process::start(command, world.folder.path()).ended(LIMIT).await.status.success()
}

/// Each line is enough as it is, and has nothing too much.
#[tokio::test(flavor = "multi_thread")]
async fn each_line_of_the_permissions_table_is_enough_and_not_too_much() {
    let node = Node::start_new();
    let url = with_user(&node);
    let table = table();
    assert!(table.len() >= 9, "the table has {} lines", table.len());
    for line in &table {
        assert!(
            works(&node, &url, &line.what, &|queue| permissions(line, queue)).await,
            "not enough: {line:?}"
        );
        for kind in 0..3 {
            for index in 0..line.names[kind].len() {
                let mut less = Line { what: line.what.clone(), names: line.names.clone() };
                less.names[kind].remove(index);
                let works = works(&node, &url, &line.what, &|queue| permissions(&less, queue)).await;
                assert!(!works, "works with less: {less:?}");
            }
        }
    }
}

/// A user who may not even read is told what is missing, and which user it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_own_broker() {
    let node = Node::start_new();
    let mut world = World::at(&node.url, "denied").await;
    world.declare(&world.queue, "quorum").await;
    world.url = with_user(&node);
    permit(&node, &["^$".into(), "^$".into(), "^$".into()]);
    let ended = world.worker(&["--declare", "none", "--log"]).ended(LIMIT).await;
    ended
        .expect_exit(1)
        .expect_said("403")
        .expect_said("'worker'")
        .expect_said("consuming it takes read permission");
    world.queue.push_str(".new");
    let ended = world.worker(&["--log"]).ended(LIMIT).await;
    ended.expect_exit(1).expect_said("403").expect_said("making it takes configure permission");
}

/// The password by itself, in a variable or in a file, with a URL that names only the user; for `run` and for `publish`.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_from_a_variable_or_a_file_logs_in_own_broker() {
    let node = Node::start_new();
    let mut world = World::at(&node.url, "password").await;
    world.declare(&world.queue, "quorum").await;
    world.url = with_user(&node).replace(&format!(":{PASSWORD}@"), "@");
    permit(&node, &[".*".into(), ".*".into(), ".*".into()]);
    let file = world.path("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    for (name, value) in [
        ("ACKONCE_PASSWORD", PASSWORD),
        ("ACKONCE_PASSWORD_FILE", file.to_str().unwrap()),
        ("ACKONCE_PASSWORD", "wrong"),
    ] {
        let mut publish = ackonce();
        publish.args(["publish", "--queue", &world.queue, "--message-id", name, "x"]);
        publish.env("AMQP_URL", &world.url).env(name, value);
        let published = Process::start(publish, world.folder.path()).ended(LIMIT).await;
        let worker = world.worker_with(
            |command| {
                command.env(name, value);
            },
            &["--exec", &world.handler("env > env", "")],
        );
        if value == "wrong" {
            published.expect_exit(1).expect_said("wrong user or password?");
            worker.ended(LIMIT).await.expect_exit(1).expect_said("wrong user or password?");
            continue;
        }
        published.expect_exit(0);
        until("it is done", LIMIT, async || world.effects().last().is_some_and(|key| key == name)).await;
        assert!(
            !world.lines("env").iter().any(|line| line.contains(PASSWORD)),
            "a handler is given the password"
        );
        let ended = worker.terminate().await;
        ended.expect_exit(0);
        assert!(!ended.said.contains(PASSWORD), "{}", ended.said);
    }
}
