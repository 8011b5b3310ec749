//! A ledger on a network file system is refused by a worker, as `check` does, unless somebody insists.

#![cfg(target_os = "linux")]

use std::{fs, process::Command};

use crate::harness::{LIMIT, Process, World, ackonce};

/// The command where `/proc/self/mountinfo` says that the world's folder is mounted with sshfs. To have it really so
/// would take a server; what the system says is all that is looked at. The mount is in a namespace of the command's own.
fn beyond_a_network(world: &World, command: &str) -> Command {
    let proc = world.path("proc");
    fs::create_dir_all(proc.join("self")).expect("a folder");
    let folder = fs::canonicalize(world.folder.path()).expect("a path");
    let mounts = format!(
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n99 21 0:43 / {} rw - fuse.sshfs somebody@elsewhere: rw\n",
        folder.display()
    );
    fs::write(proc.join("self/mountinfo"), mounts).expect("written");
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--", "sh", "-c", "mount --bind \"$0\" /proc && exec \"$@\""]).arg(proc);
    let program = ackonce();
    unshare.arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare.args([command, "--url", &world.url, "--queue", &world.queue]);
    unshare.arg("--ledger").arg(world.path("ackonce.db")).current_dir(world.folder.path());
    unshare
}

/// Exit status 2 and one sentence, before anything is made or consumed; with the flag or its variable it works.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_on_a_network_file_system_is_refused_unless_allowed() {
    let world = World::new("network").await;
    world.publish("a", b"x").await;
    let start = |change: &dyn Fn(&mut Command)| {
        let mut command = beyond_a_network(&world, "run");
        change(&mut command);
        Process::start(command, world.folder.path())
    };
    let ended = start(&|command| {
        command.arg("--log");
    });
    let ended = ended.ended(LIMIT).await;
    ended.expect_exit(2);
    let sentence = ended.said.lines().last().unwrap_or_default();
    let ledger = world.path("ackonce.db");
    let expected =
        format!("ackonce: the ledger {} is on a network file system (fuse.sshfs), where", ledger.display());
    assert!(sentence.starts_with(&expected), "needs root or user namespaces: {}", ended.said);
    assert!(sentence.ends_with("put it on a local disk, or say --allow-network-file-system"), "{sentence}");
    assert!(!ledger.exists() && world.ready(&world.queue).await == 1, "{}", ended.said);

    let worker = start(&|command| {
        command.args(["--allow-network-file-system", "--log"]);
    });
    worker.until_said("may not hold: only workers of this host may use it").await;
    world.until_state("done", 1).await;
    worker.terminate().await.expect_exit(0);
    // An existing one is looked at itself.
    start(&|command| {
        command.arg("--log");
    })
    .ended(LIMIT)
    .await
    .expect_exit(2)
    .expect_said("fuse.sshfs");
    let worker = start(&|command| {
        command.env("ACKONCE_ALLOW_NETWORK_FILE_SYSTEM", "true").arg("--log");
    });
    worker.until_consuming().await;
    worker.terminate().await.expect_exit(0);
}

/// `check` says the same: a failure, or a warning where it is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_a_network_file_system() {
    let world = World::new("checknetwork").await;
    for (allow, code, begin) in
        [(None, 1, "FAIL  file system"), (Some("--allow-network-file-system"), 0, "warn  file system")]
    {
        let mut command = beyond_a_network(&world, "check");
        command.args(allow).arg("--log");
        let ended = Process::start(command, world.folder.path()).ended(LIMIT).await;
        ended.expect_exit(code);
        let line = ended.printed.lines().find(|line| line.contains("file system")).unwrap_or_default();
        assert!(line.starts_with(begin) && line.contains("fuse.sshfs, of "), "{}", ended.printed);
    }
}
