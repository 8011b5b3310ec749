//! A command for each message: what it is given, what it inherits, what its exit status says.

mod ends;
mod messages;
mod streams;

use std::{fs, os::unix::fs::PermissionsExt};

use crate::harness::{LIMIT, Process, Row, World, ackonce, header, until};

/// One row that is done after so many attempts.
fn done(key: &str, attempts: u32) -> Row {
    Row { key: key.into(), state: "done".into(), attempts, duplicates: 0 }
}

/// A shell is there for who asks for it, with all it can do.
#[tokio::test(flavor = "multi_thread")]
async fn a_shell_runs_its_line() {
    let world = World::new("shell").await;
    world.publish("a", b"one\ntwo\n").await;
    let worker = world.worker(&["--shell", r#"tr a-z A-Z | sed "s/^/$ACKONCE_KEY: /" >> effects"#]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects(), ["a: ONE", "a: TWO"]);
}

/// Without one, the arguments are exactly those given.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_passed_as_they_are() {
    let world = World::new("argv").await;
    world.publish("a", b"").await;
    let script = world.script(r#"for word in "$@"; do echo "<$word>" >> effects; done"#);
    let worker = world.worker(&["--exec", &script, "$HOME", "a  b", "", "--log", "--", "*", "'\""]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.effects(), ["<$HOME>", "<a  b>", "<>", "<--log>", "<-->", "<*>", "<'\">"]);
}

/// The convention of a well-known consumer, by flag or by variable.
#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_follow_the_convention_asked_for() {
    let world = World::new("codes").await;
    for code in ["0", "3", "4", "5", "6", "65"] {
        world.publish(code, code.as_bytes()).await;
    }
    let asked = |command: &mut std::process::Command| {
        command.env("ACKONCE_EXIT_CODES", "rabbitmq-cli-consumer");
    };
    let arguments = ["--max-attempts", "2", "--initial-interval", "1ms", "--shell", r#"exit "$(cat)""#];
    let worker = world.worker_with(asked, &arguments);
    world.until_state("dead", 5).await;
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut dead: Vec<_> = world
        .take_all(&format!("{}.dead", world.queue))
        .await
        .iter()
        .map(|letter| (String::from_utf8(letter.data.clone()).unwrap(), header(letter, "x-ackonce-reason")))
        .collect();
    dead.sort();
    let expected = [
        ("3", "gave-up"),
        ("4", "max-attempts"),
        ("5", "gave-up"),
        ("6", "max-attempts"),
        ("65", "max-attempts"),
    ];
    assert_eq!(dead, expected.map(|(code, reason)| (code.to_owned(), reason.to_owned())));
}

/// Descriptors beyond the first three that whoever runs the tests leaves open in every child.
fn inherited_here() -> Vec<u32> {
    let numbers = fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let stays_open = |number: &u32| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        *number > 2 && flags.is_some_and(|flags| flags & 0o2_000_000 == 0)
    };
    numbers.filter(stays_open).collect()
}

/// The broker's socket, the ledger and its locks are open in the worker, and not in its children;
/// no signal is blocked there, and SIGPIPE kills as usual.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_inherits_three_pipes_and_plain_signals() {
    let world = World::new("inherit").await;
    world.publish("a", b"x").await;
    let program = r#"
import os
with open("signals", "w") as file:
    file.writelines(line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn")))
with open("descriptors", "w") as file:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        # Two are this program's own: the file just opened, and the directory being listed.
        if name not in (str(file.fileno()), str(file.fileno() + 1)):
            print(name, os.readlink("/proc/self/fd/" + name).split(":")[0], file=file)
os.execvp("sh", ["sh", "-c", "kill -PIPE $$; exit 3"])
"#;
    let worker = world.worker(&["--max-attempts", "1", "--exec", "python3", "-S", "-c", program]);
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let inherited = inherited_here();
    let mut descriptors = world.lines("descriptors");
    descriptors.retain(|line| !inherited.iter().any(|number| line.starts_with(&format!("{number} "))));
    assert_eq!(descriptors, ["0 pipe", "1 pipe", "2 pipe"]);
    let signals = world.lines("signals");
    assert_eq!(signal_set(&signals[0]), 0, "{signals:?}");
    // Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
    assert_eq!(signal_set(&signals[1]) & !(1 << 12) & !(1 << 24), 0, "{signals:?}");

    let world = World::new("sigpipe").await;
    world.publish("a", b"x").await;
    let line = "grep SigIgn /proc/self/status > signals; yes | head -n 1 > effects";
    let worker = world.worker(&["--shell", line]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let signals = world.lines("signals");
    assert_eq!(signal_set(&signals[0]), 0, "{signals:?}");
}

/// The standard signals in a line of `/proc/…/status`.
fn signal_set(line: &str) -> u64 {
    let set = line.split_whitespace().last().and_then(|set| u64::from_str_radix(set, 16).ok());
    set.expect("a set of signals") & 0x7fff_ffff
}

/// K75: a command that is not there is a wrong configuration before anything is consumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_missing_at_the_start_is_refused() {
    let world = World::new("missing").await;
    world.publish("a", b"x").await;
    let plain = world.path("plain");
    fs::write(&plain, "#!/bin/sh\n").expect("a file");
    let plain = plain.display().to_string();
    let folder = world.folder.path().display().to_string();
    for (program, why) in [
        ("/no/such/handler", "the handler '/no/such/handler' does not exist: check the path"),
        ("no-such-handler", "the handler 'no-such-handler' is not in PATH: install it, or give its path"),
        (plain.as_str(), "is not executable: chmod +x it"),
        (folder.as_str(), "is a directory"),
    ] {
        let ended = world.worker(&["--exec", program]).ended(LIMIT).await;
        ended.expect_exit(2).expect_said(why);
    }
    assert_eq!(world.ready(&world.queue).await, 1);
    assert_eq!(world.rows(), []);
}

/// K75: one that goes away while running pauses the worker, uses no attempt, and is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_goes_away_pauses_the_worker_until_it_is_back() {
    let world = World::new("away").await;
    let handler = world.handler("", "");
    let away = format!("{handler}.away");
    let mode = |mode| fs::set_permissions(&handler, fs::Permissions::from_mode(mode)).unwrap();
    let worker = world.worker(&["--exec", &handler]);
    world.publish("first", b"x").await;
    world.until_state("done", 1).await;

    mode(0o644);
    world.publish("second", b"x").await;
    worker.until_said("paused, no attempt is used").await;
    until("its attempt is taken back", LIMIT, async || world.rows().iter().any(|row| row.attempts == 0))
        .await;
    world.publish("third", b"x").await;
    mode(0o755);
    world.until_state("done", 3).await;

    fs::rename(&handler, &away).unwrap();
    world.publish("fourth", b"x").await;
    until("paused again", LIMIT, async || worker.said().matches("paused, no attempt").count() == 2).await;
    fs::rename(&away, &handler).unwrap();
    world.until_state("done", 4).await;

    // It is there, but what its first line names is not.
    fs::rename(&handler, &away).unwrap();
    fs::write(&handler, "#!/no/such/interpreter\n").unwrap();
    mode(0o755);
    world.publish("fifth", b"x").await;
    worker.until_said("the interpreter that the first line of").await;
    fs::rename(&away, &handler).unwrap();
    world.until_state("done", 5).await;
    world.stop_and_find_nothing_left(worker).await;
    let expected = ["fifth", "first", "fourth", "second", "third"].map(|key| done(key, 1));
    assert_eq!(world.rows(), expected);
    let mut effects = world.effects();
    effects.sort();
    assert_eq!(effects, ["fifth", "first", "fourth", "second", "third"]);
}

/// K75: what a shell cannot find is missing as well, though the shell itself is there; it is not tried in a loop.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_itself_cannot_find_pauses_the_worker_too() {
    let world = World::new("within").await;
    world.publish("a", b"x").await;
    let worker = world.worker(&["--shell", "echo >> runs; ./later"]);
    worker.until_said("paused, no attempt is used: '/bin/sh' cannot run: exit status 127: ").await;
    until("it is tried again", LIMIT, async || world.lines("runs").len() >= 3).await;
    let (runs, healed) = (world.lines("runs").len(), worker.said().matches("can start again").count());
    assert!(runs <= healed + 1, "{runs} runs, {healed} times let through");
    fs::copy("/bin/true", world.path("later")).expect("a program");
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.rows(), [done("a", 1)]);
}

/// K76: a terminal's ^C goes to the whole foreground group, and handlers are not in it.
#[tokio::test(flavor = "multi_thread")]
async fn control_c_at_a_terminal_lets_the_running_command_finish() {
    let world = World::new("terminal").await;
    world.publish("a", b"x").await;
    let handler = world.handler("echo >> started; while [ ! -e go ]; do sleep 0.02; done", "");
    let binary = env!("CARGO_BIN_EXE_ackonce");
    let program = r#"
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while not os.path.exists("started"):
    time.sleep(0.01)
os.write(terminal, b"\x03")
while True:
    try:
        said = os.read(terminal, 4096)
    except OSError:
        break
    sys.stdout.buffer.write(said)
    sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    // Only its environment is taken: none of our settings.
    let mut command = std::process::Command::new("python3");
    for (name, value) in ackonce().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .args(["-c", program, binary, "run", "--url", &world.url, "--queue", &world.queue])
        .args(["--exec", &handler])
        .current_dir(world.folder.path());
    let worker = Process::start(command, world.folder.path());
    until("it stops", LIMIT, async || worker.printed().contains("stopping: no new message starts")).await;
    world.touch("go");
    let ended = worker.ended(LIMIT).await;
    ended.expect_exit(0);
    assert_eq!(world.effects(), ["a"]);
    assert_eq!(world.rows(), [done("a", 1)]);
    assert_eq!(world.ready(&world.queue).await, 0);
}
