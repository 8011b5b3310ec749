//! The line that stays below the log on a terminal.

use crate::harness::{LIMIT, Process, World, has_colours, seen, until};

/// Waits until the last line that a person sees ends so.
async fn until_last_line(worker: &Process, end: &str) {
    until(&format!("the last line ends with '{end}'"), LIMIT, async || {
        seen(&worker.said()).last().is_some_and(|line| line.ends_with(end))
    })
    .await;
}

/// Log lines pass above the status line, whole; it is there once, and gone in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_a_status_line_below_whole_log_lines() {
    let world = World::new("status").await;
    let handler = world.script(r#"[ "$ACKONCE_KEY" != bad ] || exit 65"#);
    let (worker, _terminal) = world.worker_on_terminal(
        |command| {
            command.env_remove("NO_COLOR");
        },
        &["--exec", &handler],
    );
    until_last_line(&worker, ": consuming · 0 handled · 0/s · 0 in flight").await;
    for number in 0..40 {
        world.publish(&format!("m{}", number % 20), b"x").await;
    }
    world.publish("bad", b"x").await;
    // The rate falls to zero by itself.
    let end = "20 handled · 20 duplicates · 0/s · 0 in flight · 1 dead";
    until_last_line(&worker, end).await;
    let lines = seen(&worker.said());
    let (status, log) = lines.split_last().unwrap();
    assert_eq!(*status, format!("{}: consuming · {end}", world.queue));
    assert!(log.len() > 41, "{lines:#?}");
    for line in log {
        let level = line.split_whitespace().nth(1).unwrap_or_default();
        let whole = line.starts_with("20") && ["DEBUG", "INFO", "WARN", "ERROR"].contains(&level);
        assert!(whole && !line.contains('·') && line.matches("ackonce::").count() == 1, "{line}");
    }
    assert_eq!(log.iter().filter(|line| line.contains(": handled ")).count(), 20, "{log:#?}");
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert!(has_colours(&ended.said));
    let lines = seen(&ended.said);
    assert!(lines.last().is_some_and(|line| line.contains(": stopped ")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains('·')), "{lines:#?}");
}

/// `NO_COLOR` takes the colours only, `TERM=dumb` the status line only, JSON both.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_terminal_shows_can_be_less() {
    let world = World::new("status.less").await;
    let (worker, terminal) = world.worker_on_terminal(
        |command| {
            command.env("NO_COLOR", "1");
        },
        &["--exec", "true"],
    );
    until_last_line(&worker, ": consuming · 0 handled · 0/s · 0 in flight").await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    assert!(!has_colours(&ended.said), "{:?}", ended.said);
    drop(terminal);

    let (worker, terminal) = world.worker_on_terminal(
        |command| {
            command.env("TERM", "dumb");
        },
        &["--exec", "true"],
    );
    worker.until_consuming().await;
    let ended = worker.terminate().await;
    assert!(!ended.said.contains('·'), "{:?}", ended.said);
    drop(terminal);

    let (worker, _terminal) = world.worker_on_terminal(|_| {}, &["--log-format", "json", "--exec", "true"]);
    worker.until_consuming().await;
    let ended = worker.terminate().await;
    assert!(!ended.said.contains(['·', '\u{1b}']), "{:?}", ended.said);
    for line in ended.said.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

/// Messages that are printed to the same terminal stand above the line as well.
#[tokio::test(flavor = "multi_thread")]
async fn printed_messages_do_not_tear_the_status_line() {
    let world = World::new("status.print").await;
    let (worker, _terminal) = world.worker_on_terminal_alone(&["--log"]);
    until_last_line(&worker, ": consuming · 0 handled · 0/s · 0 in flight").await;
    for number in 0..20 {
        world.publish(&format!("m{number}"), b"body").await;
    }
    until_last_line(&worker, ": consuming · 20 handled · 0/s · 0 in flight").await;
    let lines = seen(&worker.said());
    for number in 0..20 {
        // The terminal shows the tab as blanks.
        let printed = |line: &&String| line.split_whitespace().eq([&format!("m{number}"), "body"]);
        assert_eq!(lines.iter().filter(printed).count(), 1, "m{number}: {lines:#?}");
    }
    assert_eq!(lines.iter().filter(|line| line.contains('·')).count(), 1, "{lines:#?}");
    worker.terminate().await.expect_exit(0);
}

/// A window that is closed takes neither the worker nor a message with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_gone_is_no_reason_to_fail() {
    let world = World::new("status.gone").await;
    let handler = world.handler("", "");
    let (worker, terminal) = world.worker_on_terminal(|_| {}, &["--exec", &handler]);
    until_last_line(&worker, ": consuming · 0 handled · 0/s · 0 in flight").await;
    terminal.hang_up().await;
    for number in 0..10 {
        world.publish(&format!("m{number}"), b"x").await;
    }
    world.until_state("done", 10).await;
    worker.terminate().await.expect_exit(0);
    assert_eq!(world.effects().len(), 10);
}
