//! Bodies go in whole, output comes out bounded, and neither ever waits for the other.

use super::done;
use crate::harness::{LIMIT, World, header, until};

const MIB: usize = 1024 * 1024;

/// Every byte value, in no simple order, not UTF-8.
fn binary(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// K37 and the other end: nothing, everything, and what is not text.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_arrive_unchanged() {
    let world = World::new("bodies").await;
    let bodies = [
        ("empty", Vec::new()),
        ("zeros", vec![0; 3]),
        ("text", "zwölf\r\n\u{2028}".as_bytes().to_vec()),
        ("binary", binary(16 * MIB)),
    ];
    for (key, body) in &bodies {
        world.publish(key, body).await;
    }
    let worker = world.worker(&["--shell", r#"cat > "body-$ACKONCE_KEY""#]);
    world.until_state("done", bodies.len()).await;
    world.stop_and_find_nothing_left(worker).await;
    for (key, body) in &bodies {
        let arrived = std::fs::read(world.path(&format!("body-{key}"))).expect("a body");
        assert!(arrived == *body, "{key}: {} bytes became {}", body.len(), arrived.len());
    }
}

/// K66: a child may fill its output before it reads its input.
#[tokio::test(flavor = "multi_thread")]
async fn full_pipes_in_both_directions_do_not_lock() {
    let body = binary(8 * MIB);
    for line in [
        "cat",
        "yes | head -c 8M; cat > /dev/null",
        "(yes | head -c 8M; cat) >&2",
        "yes | head -c 8M & (yes | head -c 8M) >&2 & wc -c; wait",
    ] {
        let world = World::new("full").await;
        world.publish("a", &body).await;
        let worker = world.worker(&["--max-attempts", "1", "--shell", line]);
        until("it ends", LIMIT, async || world.rows().iter().any(|row| row.state != "processing")).await;
        assert_eq!(world.rows(), [done("a", 1)], "{line}");
        world.stop_and_find_nothing_left(worker).await;
    }
}

/// K66: one that neither reads nor exits is stopped at its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_never_reads_nor_exits_is_stopped() {
    let world = World::new("stuck").await;
    world.publish("a", &binary(8 * MIB)).await;
    let worker = world.worker(&["--timeout", "300ms", "--max-attempts", "1", "--exec", "sleep", "600"]);
    world.until_state("dead", 1).await;
    world.stop_and_find_nothing_left(worker).await;
    let dead = world.take_all(&format!("{}.dead", world.queue)).await;
    assert_eq!(header(&dead[0], "x-ackonce-error"), "timed out after 300ms");
}

/// K67: how it exits counts, not that it left its input unread; a race, so many times.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_exits_without_reading_is_judged_by_its_exit_status() {
    let world = World::new("unread").await;
    world.publish("a", &binary(8 * MIB)).await;
    let line = r#"[ "$ACKONCE_ATTEMPT" = 200 ] || exit 7"#;
    let often = ["--max-attempts", "200", "--initial-interval", "1ms", "--max-interval", "1ms"];
    let worker = world.worker(&[&often[..], &["--shell", line]].concat());
    world.until_state("done", 1).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert_eq!(world.rows(), [done("a", 200)]);
    assert_eq!(ended.said.matches("exit status 7").count(), 199, "{}", ended.said);
    assert!(!ended.said.contains("pipe"), "{}", ended.said);

    // And success at the first attempt, each time. The body is more than a pipe holds.
    let world = World::new("unread").await;
    for number in 0..200 {
        world.publish(&number.to_string(), &binary(128 * 1024)).await;
    }
    let worker = world.worker(&["--exec", "true"]);
    world.until_state("done", 200).await;
    world.stop_and_find_nothing_left(worker).await;
    assert!(world.rows().iter().all(|row| row.attempts == 1), "{:?}", world.rows());
}

/// K77: what a child says is read to its end, kept as a tail, and costs no memory.
#[tokio::test(flavor = "multi_thread")]
async fn endless_output_costs_no_memory_and_its_tail_is_the_error() {
    let world = World::new("chatty").await;
    world.publish("a", b"x").await;
    let line = r#"(yes loud | head -c 300M) >&2 & yes | head -c 300M; wait
        echo "the last words, $ACKONCE_ATTEMPT" >&2; [ "$ACKONCE_ATTEMPT" = 2 ] || exit 9"#;
    let worker = world.worker(&["--max-attempts", "2", "--initial-interval", "1ms", "--shell", line]);
    until("it is done", LIMIT * 4, async || world.rows() == [done("a", 2)]).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).expect("a status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 100 * 1024, "{peak_kib} KiB");
    let ended = worker.terminate().await;
    ended.expect_exit(0).expect_said("the last words, 1");
    let line = ended.said.lines().find(|line| line.contains("exit status 9")).expect("the error");
    assert!(line.contains("loud") && line.len() < 4096, "{line}");
}
