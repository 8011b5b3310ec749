//! A command that takes too long.

use crate::harness::{LIMIT, World, header, until};

/// Its whole process group ends, one that ignores TERM by KILL; that is a failed attempt like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_beyond_its_timeout_is_killed_with_its_children_and_counts_as_failed() {
    let world = World::new("timeout").await;
    let stubborn = world.script("trap '' TERM\nsleep 1000 &\necho \"$$ $!\" >> pids\nwait; wait; sleep 1000");
    let limits = ["--timeout", "300ms", "--kill-grace", "300ms", "--initial-interval", "10ms"];
    let worker = world.worker(&[&limits[..], &["--max-attempts", "2", "--exec", &stubborn]].concat());
    world.publish("slow", b"x").await;
    world.until_state("dead", 1).await;
    let pids = world.lines("pids");
    assert_eq!(pids.len(), 2, "two attempts");
    for pid in pids.iter().flat_map(|line| line.split(' ')) {
        let alive = || std::path::Path::new(&format!("/proc/{pid}")).exists();
        until(&format!("{pid} is gone"), LIMIT, async || !alive()).await;
    }
    let dead = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0], "x-ackonce-reason"), "max-attempts");
    world.stop_and_find_nothing_left(worker).await;
}
