//! How a command ends that does not end by itself: the whole of it, and without a trace.

use rustix::process::Signal;

use crate::harness::{LIMIT, World, children, is_alive, until};

/// K68: at the timeout the command's own children end too, before the message is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_group() {
    let world = World::new("group").await;
    world.publish("a", b"x").await;
    let handler = world.script("echo $$ >> pids; sleep 600 & echo $! >> pids; wait; echo done >> effects");
    let worker = world.worker(&[
        "--timeout",
        "1s",
        "--max-attempts",
        "2",
        "--initial-interval",
        "1ms",
        "--exec",
        &handler,
    ]);
    world.until_state("dead", 1).await;
    let pids = world.lines("pids");
    assert_eq!(pids.len(), 4, "{pids:?}");
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
    assert_eq!(world.effects().len(), 0);
    world.stop_and_find_nothing_left(worker).await;
}

/// K68: TERM first, KILL only after the grace, whoever of the group needs it.
#[tokio::test(flavor = "multi_thread")]
async fn term_comes_first_and_kill_after_the_grace() {
    let world = World::new("grace").await;
    world.publish("a", b"x").await;
    // Its leader goes at once; one child cleans up within the grace; another never ends.
    let handler = world.script(
        "(trap 'sleep 0.3; echo >> cleaned; exit' TERM; echo >> up; while :; do sleep 0.02; done) &
         (trap 'echo >> termed' TERM; sh -c 'echo $PPID' > stubborn; while :; do sleep 0.02; done) &
         wait",
    );
    let arguments = ["--timeout", "2s", "--kill-grace", "2s", "--max-attempts", "1", "--exec", &handler];
    let worker = world.worker(&arguments);
    world.until_state("dead", 1).await;
    assert_eq!((world.lines("up").len(), world.lines("cleaned").len()), (1, 1), "it had its grace");
    assert_eq!(world.lines("termed").len(), 1);
    let stubborn = world.lines("stubborn")[0].clone();
    assert!(!is_alive(&stubborn), "killed before the attempt ended");
    world.stop_and_find_nothing_left(worker).await;
}

/// What a command leaves running on purpose when it ends in time is its own affair.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_leave_something_running() {
    let world = World::new("leave").await;
    world.publish("a", b"x").await;
    let handler = world.script("sleep 600 & echo $! > left");
    let worker = world.worker(&["--exec", &handler]);
    world.until_state("done", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let left = world.lines("left")[0].clone();
    assert!(is_alive(&left));
    let pid = rustix::process::Pid::from_raw(left.parse().expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("killed");
}

/// K69: what was killed is reaped.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_timeouts_leave_no_zombie() {
    let world = World::new("zombies").await;
    world.publish("a", b"x").await;
    let often = ["--max-attempts", "100", "--initial-interval", "1ms", "--max-interval", "1ms"];
    let stuck = ["--timeout", "20ms", "--exec", "sleep", "600"];
    let worker = world.worker(&[&often[..], &stuck].concat());
    world.until_state("dead", 1).await;
    assert_eq!(world.rows()[0].attempts, 100);
    assert_eq!(children(worker.pid()), Vec::<String>::new());
    world.stop_and_find_nothing_left(worker).await;
}

/// A command that has done its work by the end of the grace is not run again.
#[tokio::test(flavor = "multi_thread")]
async fn success_within_the_grace_of_a_shutdown_counts() {
    let world = World::new("hurry").await;
    world.publish("a", b"x").await;
    let handler =
        world.script("trap 'echo a >> effects; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    let worker = world.worker(&["--drain-timeout", "1s", "--exec", &handler]);
    until("it runs", LIMIT, async || world.lines("pid").len() == 1).await;
    worker.terminate().await.expect_exit(0).expect_said("handled=1");
    assert_eq!(world.effects(), ["a"]);
    assert_eq!(world.states(), [("a".to_owned(), "done".to_owned())]);
    assert_eq!(world.ready(&world.queue).await, 0);
}
