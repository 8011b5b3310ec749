//! Who is answered: by name, by origin, by token.

use serde_json::json;

use crate::{
    harness::{LIMIT, World, until},
    listen::client::get,
};

use super::{TOKEN, bearer, fussy, read, send, watched};

/// DNS rebinding: under a name that is not ours there is no page and no data; probes and scrapes come by any name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_not_configured_is_refused() {
    let world = World::new("page.names").await;
    let (worker, port) = watched(&world, &["--listen-host", "status.example"], &["--log"]).await;
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9", 200),
        ("status.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
    ] {
        let host = format!("Host: {host}");
        for path in ["/", "/main.js"] {
            assert_eq!(
                send(port, &format!("GET {path}"), &[&host], "").await.status,
                status,
                "{host} {path}"
            );
        }
        let data = send(port, "GET /api/status", &[&host, &bearer(TOKEN)], "").await;
        assert_eq!(data.status, status, "{host}");
        assert_eq!(data.body.contains(&world.queue), status == 200, "{data:?}");
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(send(port, &format!("GET {path}"), &[&host], "").await.status, 200, "{host} {path}");
        }
    }
    assert_eq!(send(port, "GET /", &["X: y"], "").await.status, 400, "no host at all");
    let refused = send(port, "GET /", &["Host: evil.example"], "").await;
    assert!(refused.body.contains("start with --listen-host evil.example"), "{refused:?}");
    // Whoever comes by a name, or through a proxy, is not known to be of this host.
    let named = send(port, "GET /api/status", &["Host: status.example"], "").await;
    assert_eq!((named.status, named.header("www-authenticate")), (401, Some("Bearer")));
    let forwarded = ["Host: localhost", "X-Forwarded-For: 10.0.0.1"];
    assert_eq!(send(port, "GET /api/failures", &forwarded, "").await.status, 401);
    worker.terminate().await.expect_exit(0);
}

/// What a browser is told, so that nothing a message contains can run, and no other site can look in.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_for_browsers_is_guarded() {
    let world = World::new("page.guarded").await;
    let (worker, port) = watched(&world, &[], &["--log"]).await;
    for path in ["/", "/main.js", "/uPlot.iife.min.js", "/api/status", "/api/nothing", "/nothing"] {
        let answer = read(port, path).await;
        let policy = answer.header("content-security-policy").unwrap_or_default();
        let parts: Vec<&str> = policy.split("; ").collect();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(parts.contains(&part), "{path}: {part}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    assert_eq!(read(port, "/").await.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(read(port, "/main.js").await.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(read(port, "/api/status").await.header("content-type"), Some("application/json"));
    for (line, status) in
        [("POST /", 405), ("DELETE /api/status", 405), ("GET /nothing", 404), ("HEAD /", 200)]
    {
        assert_eq!(send(port, line, &["Host: localhost"], "").await.status, status, "{line}");
    }
    for header in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        let answer = send(port, "GET /api/status", &["Host: localhost", header], "").await;
        assert_eq!(
            (answer.status, answer.error()),
            (403, "another site's page has sent this request".to_owned())
        );
    }
    worker.terminate().await.expect_exit(0);
}

/// What is not allowed to replay does not: each refusal leaves the letter where it is. Then one is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_whole_request_with_the_token_replays() {
    let world = World::new("page.replay").await;
    std::fs::write(world.path("why"), "no luck").unwrap();
    let (worker, port) = watched(&world, &[], &["--exec", &fussy(&world, "why")]).await;
    world.publish("bad", b"hidden-body").await;
    world.until_state("dead", 1).await;
    let listed = read(port, &format!("/api/dead?queue={}", world.queue)).await.json();
    let letter = &listed["letters"][0];
    let order = |key: &str| {
        let queue = &world.queue;
        json!({ "queue": queue, "key": key, "message_id": "bad", "dead_ms": letter["dead_ms"] }).to_string()
    };
    let (host, json, token) = ("Host: localhost", "Content-Type: application/json", bearer(TOKEN));
    let good = [host, json, token.as_str()];
    let other = json!({ "queue": "other", "key": "bad", "message_id": null, "dead_ms": null }).to_string();
    let wrong = bearer(&TOKEN.replace('0', "1"));
    let (longer, basic) = (bearer(&format!("{TOKEN}0")), format!("Authorization: Basic {TOKEN}"));
    for (headers, body, status) in [
        (vec![host, json], order("bad"), 401),
        (vec![host, json, &wrong], order("bad"), 401),
        (vec![host, json, &longer], order("bad"), 401),
        (vec![host, json, &basic], order("bad"), 401),
        (vec!["Host: evil.example", json, &token], order("bad"), 421),
        (vec![host, json, &token, "Origin: http://evil.example"], order("bad"), 403),
        (vec![host, json, &token, "Origin: http://localhost:1"], order("bad"), 403),
        (vec![host, json, &token, "Sec-Fetch-Site: same-site"], order("bad"), 403),
        (vec![host, &token, "Content-Type: text/plain"], order("bad"), 415),
        (vec![host, &token, "Content-Type: application/x-www-form-urlencoded"], order("bad"), 415),
        (vec![host, &token], order("bad"), 415),
        (good.to_vec(), "x".repeat(17 * 1024), 413),
        (good.to_vec(), order("bad").replace('}', ""), 400),
        (good.to_vec(), order("bad").replace("queue", "cue"), 400),
        (good.to_vec(), "7".to_owned(), 400),
        (good.to_vec(), other, 404),
        (good.to_vec(), order("worse"), 404),
    ] {
        let answer = send(port, "POST /api/dead/replay", &headers, &body).await;
        assert_eq!(answer.status, status, "{headers:?} {body}: {answer:?}");
        assert!(status == 421 || answer.error().len() > 5, "{answer:?}");
    }
    for line in ["GET /api/dead/replay", "PUT /api/dead/replay"] {
        let answer = send(port, line, &good, "").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{line}");
    }
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 1, "it is still there");
    assert!(world.effects().is_empty());

    world.touch("repaired");
    let origin = ["Origin: http://localhost", "Sec-Fetch-Site: same-origin"];
    let answer = send(port, "POST /api/dead/replay", &[&good[..], &origin].concat(), &order("bad")).await;
    assert_eq!((answer.status, &answer.json()["row"]), (200, &json!("reset")), "{answer:?}");
    world.until_state("done", 1).await;
    assert_eq!(world.effects(), ["bad"]);
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 0);
    assert!(worker.said().contains("sent back through the status page"));
    world.stop_and_find_nothing_left(worker).await;
}

/// Without a token nobody acts. On an address that others reach nobody reads without one, either.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nobody_acts_and_nobody_reads_from_outside() {
    let world = World::new("page.outside").await;
    let outside =
        |further: &[&str]| world.worker(&[&["--listen", "0.0.0.0:0"], further, &["--log"]].concat());
    let post = ["Host: 127.0.0.1", "Content-Type: application/json"];
    let inside = world.worker(&["--listen", "127.0.0.1:0", "--log"]);
    let port = crate::listen::client::port(&inside).await;
    let answer = send(port, "POST /api/dead/replay", &post, "{}").await;
    assert_eq!((answer.status, answer.error().contains("--listen-token-file")), (403, true), "{answer:?}");
    assert_eq!(read(port, "/api/status").await.json()["may_act"], json!(false));
    inside.terminate().await.expect_exit(0);

    let open = outside(&[]);
    let port = outside_port(&open).await;
    let answer = read(port, "/api/failures").await;
    assert_eq!((answer.status, answer.error().contains("--listen-token-file")), (403, true), "{answer:?}");
    open.terminate().await.expect_exit(0);

    std::fs::write(world.path("token"), TOKEN).unwrap();
    let token = world.path("token").display().to_string();
    let closed = outside(&["--listen-token-file", &token]);
    let port = outside_port(&closed).await;
    for path in
        ["/api/status", "/api/history", "/api/failures", "/api/message?key=a", "/api/dead?queue=a", "/api/x"]
    {
        assert_eq!(read(port, path).await.status, 401, "{path}");
    }
    for path in ["/", "/healthz", "/metrics"] {
        let answer = read(port, path).await;
        assert!(
            answer.status == 200 && (path == "/metrics" || !answer.body.contains(&world.queue)),
            "{answer:?}"
        );
    }
    let right = ["Host: 127.0.0.1", &bearer(TOKEN)];
    assert_eq!(send(port, "GET /api/status", &right, "").await.json()["may_act"], json!(true));
    // The file is read again: a token can be exchanged while the worker runs.
    std::fs::write(world.path("token"), "another-0123456789abcdef").unwrap();
    assert_eq!(send(port, "GET /api/status", &right, "").await.status, 401);
    std::fs::remove_file(world.path("token")).unwrap();
    let unreadable = send(port, "GET /api/status", &right, "").await;
    assert_eq!((unreadable.status, unreadable.error().contains(&token)), (503, false), "{unreadable:?}");
    closed.until_said("nobody can act through the status page").await;
    closed.terminate().await.expect_exit(0);
}

/// A token that cannot be used is one sentence at the start, with exit status 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_used_is_found_at_the_start() {
    let world = World::new("page.token").await;
    for (text, sentence) in [(Some("short"), "has less than 16 characters"), (None, "No such file")] {
        if let Some(text) = text {
            std::fs::write(world.path("short"), text).unwrap();
        }
        let file = world.path(if text.is_some() { "short" } else { "missing" }).display().to_string();
        let worker = world.worker(&["--listen", "127.0.0.1:0", "--listen-token-file", &file, "--log"]);
        let ended = worker.ended(LIMIT).await;
        ended.expect_exit(2);
        assert!(ended.said.contains(sentence) && !ended.said.contains("consuming"), "{}", ended.said);
    }
}

async fn outside_port(worker: &crate::harness::Process) -> u16 {
    worker.until_said("listening on http://0.0.0.0:").await;
    let said = worker.said();
    let rest = said.split_once("listening on http://0.0.0.0:").expect("it said so").1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let port = digits.parse().expect("a port");
    until("it is ready", LIMIT, async || get(port, "/readyz").await.0 == 200).await;
    port
}
