//! What an answer means.

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use super::ok;
use crate::harness::{Endpoint, Reply, World, answer, header};

/// The status decides; no redirect is followed (K74), and a reason reaches the dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_decides() {
    let world = World::new("http.status").await;
    let endpoint = Endpoint::start(|request| {
        let key = request.header("idempotency-key");
        let first = request.header("ackonce-attempt") == "1";
        match key.as_str() {
            "302" | "307" => Reply::Bytes(answer(&format!("{key} Found"), "location: /elsewhere\r\n", "")),
            "408" | "409" | "425" | "429" | "500" | "503" if first => Reply::status(&format!("{key} Again")),
            "400" | "404" => Reply::Bytes(answer(&format!("{key} X"), "", "no\r\nsuch \u{7} order")),
            // Answered before the body, so to say: 100 Continue is no answer.
            "100" => Reply::Bytes(format!("HTTP/1.1 100 Continue\r\n\r\n{}", answer("200 OK", "", ""))),
            "204" => Reply::Bytes("HTTP/1.1 204 No Content\r\n\r\n".into()),
            "chunked" => Reply::Bytes(
                "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".into(),
            ),
            _ => ok(request),
        }
    })
    .await;
    let done = ["100", "200", "204", "408", "409", "425", "429", "500", "503", "chunked"];
    let dead = ["302", "307", "400", "404"];
    for id in done.iter().chain(&dead) {
        world.publish(id, b"x").await;
    }
    let worker = world.http(&endpoint, &[]);
    world.until_state("done", done.len()).await;
    world.until_state("dead", dead.len()).await;
    world.stop_and_find_nothing_left(worker).await;
    for row in world.rows() {
        let retried = ["408", "409", "425", "429", "500", "503"].contains(&row.key.as_str());
        assert_eq!(row.attempts, if retried { 2 } else { 1 }, "{row:?}");
        assert_eq!(row.state, if dead.contains(&row.key.as_str()) { "dead" } else { "done" }, "{row:?}");
    }
    assert!(endpoint.requests().iter().all(|request| request.line == "POST /hook?x=1 HTTP/1.1"));
    assert_eq!(endpoint.requests().len(), done.len() + 6 + dead.len());
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let of = |id: &str| {
        let is = |id: &str, letter: &&lapin::message::Delivery| {
            letter.properties.message_id().as_ref().is_some_and(|found| found.as_str() == id)
        };
        let letter = letters.iter().find(|letter| is(id, letter)).expect("a dead letter");
        (header(letter, "x-ackonce-reason"), header(letter, "x-ackonce-error"))
    };
    assert_eq!(of("404"), ("gave-up".into(), "HTTP 404 Not Found: no such order".into()));
    assert_eq!(of("302"), ("gave-up".into(), "HTTP 302 Found".into()));
}

/// K73: the endpoint's wish is heard, within our bounds; what is no wish changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_within_bounds() {
    let world = World::new("http.after").await;
    let endpoint = Endpoint::start(|request| {
        let key = request.header("idempotency-key");
        if request.header("ackonce-attempt") != "1" {
            return ok(request);
        }
        let date = |shift: i64| {
            let now = SystemTime::now();
            let shifted = Duration::from_secs(shift.unsigned_abs());
            httpdate::fmt_http_date(if shift < 0 { now - shifted } else { now + shifted })
        };
        let wish = match key.as_str() {
            "date" => date(3),
            "past" => date(-100),
            other => other.to_owned(),
        };
        let status = if key == "2" { "503 Busy" } else { "429 Slow Down" };
        Reply::Bytes(answer(status, &format!("retry-after: {wish}\r\n"), ""))
    })
    .await;
    let cases = [
        ("2", 2000..3500),
        ("date", 1900..4500),
        ("9999999999", 4000..6000),
        ("0", 0..1500),
        ("-5", 0..1500),
        ("abc", 0..1500),
        ("past", 0..1500),
    ];
    for (id, _) in &cases {
        world.publish(id, b"x").await;
    }
    let worker = world.http(&endpoint, &["--max-interval", "4s"]);
    world.until_state("done", cases.len()).await;
    world.stop_and_find_nothing_left(worker).await;
    let requests = endpoint.requests();
    for (id, expected) in cases {
        let times: Vec<_> =
            requests.iter().filter(|request| request.header("idempotency-key") == id).map(|r| r.at).collect();
        assert_eq!(times.len(), 2, "{id}");
        let waited = times[1].duration_since(times[0]).as_millis();
        assert!(expected.contains(&waited), "{id}: waited {waited} ms");
    }
}

/// K77: of an answer without end only the start is read, whatever its status.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_cut() {
    let world = World::new("http.endless").await;
    let endpoint = Endpoint::start(|request| {
        let status = if request.header("idempotency-key") == "good" { "200 OK" } else { "404 X" };
        Reply::Endless(format!("HTTP/1.1 {status}\r\ncontent-length: 5368709120\r\n\r\n"))
    })
    .await;
    let worker = world.http(&endpoint, &[]);
    world.publish("good", b"x").await;
    world.until_state("done", 1).await;
    world.publish("bad", b"x").await;
    world.until_state("dead", 1).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).expect("its status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 256 * 1024, "{peak_kib} KiB");
    world.stop_and_find_nothing_left(worker).await;
    // What lay in socket buffers counts as sent.
    assert!(endpoint.sent_bytes.load(Ordering::SeqCst) < 64 * 1024 * 1024);
    let letters = world.take_all(&format!("{}.dead", world.queue)).await;
    let error = header(&letters[0], "x-ackonce-error");
    assert!(error.starts_with("HTTP 404 Not Found: xxx") && error.len() <= 1024, "{error}");
}

/// The timeout covers the whole run: an endpoint that is silent, and one that never gets to the point.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_at_its_timeout() {
    let world = World::new("http.slow").await;
    let endpoint = Endpoint::start(|request| match request.header("ackonce-attempt").as_str() {
        "1" => Reply::Bytes(String::new()),
        "2" => Reply::Trickle,
        _ => ok(request),
    })
    .await;
    world.publish("a", b"x").await;
    let worker = world.http(&endpoint, &["--timeout", "600ms"]);
    world.until_state("done", 1).await;
    worker.until_said("timed out after 600ms without an answer from http://127.0.0.1").await;
    world.stop_and_find_nothing_left(worker).await;
    assert_eq!(world.rows()[0].attempts, 3);
    assert_eq!(endpoint.requests().len(), 3);
}
