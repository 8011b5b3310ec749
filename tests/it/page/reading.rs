//! What the page reads: the hour, failures, a message's story, dead letters; and that reading changes nothing.

use serde_json::json;

use crate::harness::{LIMIT, World, until};

use super::{fussy, read, watched};

/// Everything that happened can be read, except bodies.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_can_be_read_but_no_body() {
    let world = World::new("page.reading").await;
    std::fs::write(world.path("why"), "no luck").unwrap();
    let (worker, port) = watched(&world, &[], &["--exec", &fussy(&world, "why")]).await;
    for id in ["a", "b", "a", "bad 1&?é"] {
        world.publish(id, b"hidden-body").await;
    }
    world.until_state("done", 2).await;
    world.until_state("dead", 1).await;

    let status = read(port, "/api/status").await;
    let worker_told = &status.json()["workers"][0];
    assert_eq!(worker_told["queue"], json!(world.queue));
    assert_eq!((&worker_told["well"], &worker_told["said"]), (&json!(true), &json!(["consuming"])));

    let failures = read(port, "/api/failures").await;
    let row = &failures.json()["rows"][0];
    assert_eq!((&row["message_id"], &row["state"]), (&json!("bad 1&?é"), &json!("dead")));
    assert!(row["last_error"].as_str().unwrap().contains("no luck"), "{row}");

    let path = "/api/message?key=bad+1%26%3F%C3%A9";
    let story = read(port, path).await;
    let row = &story.json()["rows"][0];
    assert!(row["meaning"].as_str().unwrap().starts_with("given up and dead-lettered"), "{row}");
    assert_eq!(row["failures"][0]["attempt"], json!(1));
    assert_eq!(
        read(port, &format!("{path}&queue={}", world.queue)).await.json()["rows"][0]["state"],
        json!("dead")
    );
    assert_eq!(read(port, &format!("{path}&queue=other")).await.status, 404);
    assert_eq!(read(port, "/api/message?key=none").await.json()["rows"], json!([]));
    assert_eq!(read(port, "/api/message?key=").await.status, 400);

    let dead = format!("/api/dead?queue={}", world.queue);
    for _ in 0..3 {
        let letters = read(port, &dead).await;
        let letter = &letters.json()["letters"][0];
        assert_eq!(
            (&letter["key"], &letter["reason"]),
            (&json!("bad 1&?é"), &json!("gave-up")),
            "{letters:?}"
        );
        assert!(!letters.body.contains("hidden-body"), "{letters:?}");
    }
    assert_eq!(world.ready(&format!("{}.dead", world.queue)).await, 1, "it is still there");
    assert_eq!(read(port, "/api/dead?queue=other").await.status, 404);
    assert_eq!(read(port, "/api/dead").await.status, 400);

    // The counts of an hour begin with the process; a step is 5 s.
    let totals = async |total: serde_json::Value| {
        let mut last = json!(null);
        until(&format!("the hour has {total}"), LIMIT, async || {
            last = read(port, "/api/history").await.json();
            last["total"] == total
        })
        .await;
        last
    };
    let hour = totals(json!({ "handled": 2, "duplicates": 1, "retried": 0, "dead_lettered": 1 })).await;
    let rates = hour["per_second"]["handled"].as_array().unwrap();
    assert_eq!(rates.len(), hour["at_ms"].as_array().unwrap().len());
    assert!(rates.iter().any(|rate| rate.as_f64().unwrap() > 0.0), "{hour}");
    let of = |queue: &str| format!("/api/history?queue={queue}");
    assert_eq!(read(port, &of(&world.queue)).await.json()["total"], hour["total"]);
    assert_eq!(read(port, &of("other")).await.status, 404);
    for answer in [status, failures, story] {
        assert!(!answer.body.contains("hidden-body"), "{answer:?}");
    }
    world.stop_and_find_nothing_left(worker).await;
}

/// Where nothing was ever dead-lettered, that is one sentence.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_without_dead_letters_is_one_sentence() {
    let world = World::without_queue("page.none").await;
    world.declare_with(&world.queue, Default::default()).await;
    let (worker, port) = watched(&world, &["--declare", "passive"], &["--log"]).await;
    let answer = read(port, &format!("/api/dead?queue={}", world.queue)).await;
    assert_eq!(answer.status, 404);
    assert!(answer.error().ends_with("nothing was dead-lettered there yet"), "{answer:?}");
    worker.terminate().await.expect_exit(0);
}
