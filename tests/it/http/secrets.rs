//! Secrets are used, and never shown.

use std::time::SystemTime;

use super::ok;
use crate::harness::{Endpoint, Reply, World, header};

/// Tokens and signing secrets are read from files, and read again when those have changed; a file that
/// is away pauses the worker.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_come_from_files_that_may_change() {
    let world = World::new("http.secrets").await;
    let endpoint = Endpoint::start(ok).await;
    let (token, secret) = (world.path("token"), world.path("secret"));
    std::fs::write(&token, "hidden-1\n").unwrap();
    std::fs::write(&secret, "whsec_aGlkZGVu\n").unwrap();
    let files = [token.display().to_string(), secret.display().to_string()];
    let worker = world
        .http(&endpoint, &["--http-bearer-token-file", &files[0], "--http-signature-secret-file", &files[1]]);
    world.publish("a", b"body").await;
    world.until_state("done", 1).await;
    std::fs::remove_file(&token).unwrap();
    world.publish("b", b"body").await;
    worker.until_said("paused, no attempt is used: the bearer token file").await;
    std::fs::write(&token, "hidden-2\n").unwrap();
    std::fs::write(&secret, "whsec_aGlkZGVu whsec_aGlkZGVuMg==\n").unwrap();
    world.until_state("done", 2).await;
    let said = worker.said();
    world.stop_and_find_nothing_left(worker).await;
    assert!(!said.contains("hidden") && !said.contains("aGlkZGVu"), "{said}");
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 2);
    for (request, token, signatures) in [(&requests[0], "hidden-1", 1), (&requests[1], "hidden-2", 2)] {
        assert_eq!(request.header("authorization"), format!("Bearer {token}"));
        assert_eq!(request.header("webhook-id"), request.header("idempotency-key"));
        assert_eq!(
            request.header("webhook-signature").split(' ').filter(|s| s.starts_with("v1,")).count(),
            signatures
        );
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let timestamp: u64 = request.header("webhook-timestamp").parse().unwrap();
        assert!((now - 60..=now).contains(&timestamp), "{timestamp} at {now}");
    }
}

/// K63: what the URL holds beside its host is neither logged nor part of any error, however it fails.
#[tokio::test(flavor = "multi_thread")]
async fn the_credentials_of_the_url_are_used_and_never_shown() {
    let world = World::new("http.user").await;
    let endpoint = Endpoint::start(|request| match request.header("idempotency-key").as_str() {
        "closes" => Reply::Last(String::new()),
        "dead" => Reply::status("410 Gone"),
        _ => ok(request),
    })
    .await;
    for id in ["closes", "dead", "good"] {
        world.publish(id, b"x").await;
    }
    let url = format!("http://user:hid%20den@{}/hidden?hidden", endpoint.address);
    let worker = world.worker_with(
        |command| {
            command.env("ACKONCE_LOG_LEVEL", "trace").env("ACKONCE_HTTP", &url);
        },
        &["--max-attempts", "1"],
    );
    world.until_state("dead", 2).await;
    world.until_state("done", 1).await;
    let address = endpoint.address;
    assert_eq!(endpoint.requests()[0].line, "POST /hidden?hidden HTTP/1.1");
    assert_eq!(endpoint.requests()[0].header("authorization"), "Basic dXNlcjpoaWQgZGVu");
    endpoint.stop().await;
    world.publish("refused", b"x").await;
    worker.until_said(&format!("cannot reach http://{address}")).await;
    let ended = worker.terminate().await;
    ended.expect_exit(0);
    for letter in world.take_all(&format!("{}.dead", world.queue)).await {
        assert!(!header(&letter, "x-ackonce-error").contains("hid"));
    }
    let database = std::fs::read(world.path("ackonce.db")).unwrap();
    for secret in ["hidden", "hid den", "hid%20den", "dXNlcjpoaWQgZGVu"] {
        assert!(!ended.said.contains(secret), "{}", ended.said);
        assert!(!database.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}
