//! The image and the compose file, as far as can be seen without a container engine: what they name is there, what cargo
//! is given is enough, and the worker that compose starts works and is found healthy.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use yaml_rust2::{Yaml, YamlLoader};

use crate::harness::{LIMIT, Process, World, ackonce, until};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file")
}

fn worker() -> Yaml {
    let mut documents = YamlLoader::load_from_str(&read("docker-compose.yml")).expect("YAML");
    assert_eq!(documents.len(), 1);
    documents.remove(0)["services"]["worker"].clone()
}

fn texts(list: &Yaml) -> Vec<&str> {
    list.as_vec().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// The instructions of the Dockerfile: their names and arguments, lines that go on put together.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let whole = lines.join("\n").replace("\\\n", " ");
    let split =
        |line: &str| line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()));
    whole.lines().filter_map(split).collect()
}

fn of<'a>(all: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    all.iter().filter(|(found, _)| found == name).map(|(_, rest)| rest.as_str()).collect()
}

/// The binary goes from where it was put to where it is found; nobody is root; the ledger's folder is a volume.
#[test]
fn the_image_holds_together() {
    let all = instructions();
    let copied = of(&all, "COPY");
    let from = copied.last().expect("a COPY").strip_prefix("--from=build ").expect("from the build");
    let (from, to) = from.split_once(' ').expect("two paths");
    let built = of(&all, "RUN")[0];
    assert!(built.contains("cargo build --release --locked --bin ackonce"), "{built}");
    assert!(built.ends_with(&format!("target/release/ackonce {from}")), "{built} makes no {from}");
    assert_eq!((to, of(&all, "ENTRYPOINT")[0]), ("/usr/local/bin/", "[\"ackonce\"]"));
    let user: u32 = of(&all, "USER")[0].parse().expect("a number");
    assert!(user > 0 && of(&all, "RUN")[1].contains(&format!("--uid {user} ")));
    assert_eq!(of(&all, "STOPSIGNAL"), ["SIGTERM"]);
    let folder = of(&all, "WORKDIR")[1];
    assert_eq!(of(&all, "VOLUME"), [folder]);
    assert!(of(&all, "RUN")[1].contains(&format!("install -d -o ackonce -g ackonce {folder}")));
    let worker = worker();
    assert_eq!(texts(&worker["volumes"]), [format!("ledger:{folder}")]);
    // The same Debian, and so the same libc.
    let images = of(&all, "FROM");
    assert!(images[0].starts_with("rust:1-slim-trixie ") && images[1] == "debian:trixie-slim", "{images:?}");
}

/// What `.dockerignore` lets through is what cargo needs: the files of all targets that the manifest names, and those
/// that the sources include.
#[test]
fn the_builder_is_given_enough() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let given = read(".dockerignore");
    for name in given.lines().filter_map(|line| line.strip_prefix('!')) {
        let to = folder.path().join(name);
        fs::create_dir_all(to.parent().expect("a parent")).expect("a folder");
        let copied = Command::new("cp").arg("-R").arg(root.join(name)).arg(&to).status().expect("cp starts");
        assert!(copied.success(), "{name}");
    }
    assert!(
        folder.path().join(".cargo/config.toml").exists(),
        "SQLite would be built with another configuration"
    );
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let mut targets = 0;
    for (kind, place) in
        [("bin", "src/bin"), ("example", "examples"), ("bench", "benches"), ("test", "tests")]
    {
        for target in manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
            let default = format!("{place}/{}.rs", target["name"].as_str().expect("a name"));
            let path = target.get("path").and_then(toml::Value::as_str).unwrap_or(&default);
            assert!(folder.path().join(path).exists(), "cargo build ends without {path}");
            targets += 1;
        }
    }
    assert!(targets > 0 && folder.path().join("src/main.rs").exists());
    let mut sources = vec![folder.path().join("src")];
    let mut included = 0;
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources
                .extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for (_, rest) in
            text.match_indices("include_str!(\"").map(|(at, mark)| text.split_at(at + mark.len()))
        {
            let name = rest.split('"').next().expect("a name");
            assert!(path.parent().expect("a folder").join(name).exists(), "{}: {name}", path.display());
            included += 1;
        }
    }
    assert!(included > 0, "this test no longer sees what is included");
}

/// Compose's worker, with its command and its environment, consumes, and its health check says so.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_of_the_compose_file_works_and_is_healthy() {
    let world = World::new("compose").await;
    let worker = worker();
    let environment = worker["environment"].as_hash().expect("variables");
    let listen = worker["environment"]["ACKONCE_LISTEN"].as_str().expect("an address");
    let free =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").to_string();
    let mut command = ackonce();
    let queue = |word: &str| if word == "orders" { world.queue.clone() } else { word.to_owned() };
    command.args(texts(&worker["command"]).into_iter().map(queue)).current_dir(world.folder.path());
    for (name, value) in environment {
        let (name, value) = (name.as_str().expect("a name"), value.as_str().expect("a text"));
        command.env(name, if name == "AMQP_URL" { &world.url } else { value }.replace(listen, &free));
    }
    let check = texts(&worker["healthcheck"]["test"]);
    assert_eq!(check[0], "CMD");
    let healthy = || {
        // /dev/tcp/HOST/PORT
        let place = |address: &str| address.replace(':', "/");
        let words: Vec<_> =
            check[1..].iter().map(|word| word.replace(&place(listen), &place(&free))).collect();
        assert!(words.iter().any(|word| word.contains(&place(&free))), "{words:?}");
        let status = Command::new(&words[0]).args(&words[1..]).stderr(std::process::Stdio::null()).status();
        status.expect("the check starts").success()
    };
    assert!(!healthy(), "nobody is there yet");
    let running = Process::start(command, world.folder.path());
    running.until_consuming().await;
    until("it is healthy", LIMIT, async || healthy()).await;
    world.publish("a", b"x").await;
    world.until_state("done", 1).await;
    running.terminate().await.expect_exit(0);
    assert!(!healthy(), "nobody is there any more");
    assert!(world.path("ackonce.db").exists(), "the ledger is not in the working directory");
}

/// Each variable of the worker is one of ackonce's, and Docker waits for longer than a drain takes.
#[test]
fn the_compose_file_fits_the_program() {
    let output = ackonce().args(["run", "--help"]).output().expect("help");
    let help = String::from_utf8(output.stdout).expect("text");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let worker = worker();
    let variables: BTreeSet<_> = worker["environment"]
        .as_hash()
        .expect("variables")
        .keys()
        .map(|name| name.as_str().expect("a name"))
        .collect();
    assert!(variables.contains("AMQP_URL"));
    for name in variables {
        assert!(help.contains(&format!("[env: {name}]")), "there is no variable {name}");
    }
    let grace =
        humantime::parse_duration(worker["stop_grace_period"].as_str().expect("a time")).expect("a time");
    let drain = help.split("[env: ACKONCE_DRAIN_TIMEOUT] [default: ").nth(1).expect("the default");
    let drain = humantime::parse_duration(drain.split(']').next().unwrap()).expect("a time");
    assert!(grace > drain + std::time::Duration::from_secs(30), "{grace:?} to stop, {drain:?} to drain");
    assert!(worker["init"].is_badvalue(), "ackonce is its own init");
    let build: PathBuf = worker["build"].as_str().expect("a folder").into();
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(build).join("Dockerfile").exists());
}
