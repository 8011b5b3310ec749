//! The ledger as people see it, through the shell that they have.

use std::{process::Command, time::Duration};

use ackonce::ledger::{Ending, Finish, Ledger};

use crate::setup::{Place, claim, finish, granted, request};

fn shell(place: &Place, sql: &str) -> String {
    let output = Command::new("sqlite3").arg("-header").arg(place.path()).arg(sql).output().expect("sqlite3");
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Some messages of 2027, and one of today.
async fn place_with_messages() -> Place {
    let place = Place::new();
    let ledger = place.open();
    let owner = ledger.enroll().await.unwrap();
    let at = 1_800_000_000_123;
    let keys = ["done", "failed", "stuck"].map(request);
    let claims = ledger.claim(&owner, keys.into(), at).await.unwrap();
    let tickets: Vec<_> = claims.into_iter().map(granted).collect();
    for (key, ticket, ending) in [
        ("done", &tickets[0], Ending::Done),
        (
            "failed",
            &tickets[1],
            Ending::Failed {
                error: "no money".to_owned(),
                parked: false,
                next_after: Some(Duration::from_secs(60)),
            },
        ),
    ] {
        let ran = Some(Duration::from_millis(1500));
        let finish = Finish { ran, ..crate::setup::finish_of(key, ticket, ending) };
        ledger.finish(&owner, vec![finish], at + 1000).await.unwrap();
    }
    ledger.claim(&owner, vec![request("done")], at + 2000).await.unwrap();
    let today = granted(claim(&ledger, &owner, "today").await.unwrap());
    finish(&ledger, &owner, "today", &today, Ending::Done).await.unwrap();
    place.sql(&format!("UPDATE owners SET name = 'host-1-x' WHERE name = '{}'", owner.name()));
    place
}

#[tokio::test]
async fn the_ledger_reads_well() {
    let place = place_with_messages().await;
    assert_eq!(
        shell(&place, "SELECT * FROM ledger WHERE message_id <> 'today'"),
        "scope|message_id|state|attempts|duplicates|owner|first_seen|updated|last_error|last_duplicate|next_attempt\n\
         orders|done|done|1|1|host-1-x|2027-01-15T08:00:00.123Z|2027-01-15T08:00:01.123Z||2027-01-15T08:00:02.123Z|\n\
         orders|failed|failed|1|0|host-1-x|2027-01-15T08:00:00.123Z|2027-01-15T08:00:01.123Z|no money||2027-01-15T08:01:01.123Z\n\
         orders|stuck|processing|1|0|host-1-x|2027-01-15T08:00:00.123Z|2027-01-15T08:00:00.123Z|||\n"
    );
}

#[tokio::test]
async fn each_question_has_a_view() {
    let place = place_with_messages().await;
    // Whatever today is: all of these were long ago, or will be.
    place.sql("UPDATE messages SET updated_ms = 1000 WHERE key IN ('done', 'failed', 'stuck')");
    let keys = |view: &str| shell(&place, &format!("SELECT message_id FROM {view}"));
    assert_eq!(keys("handled_today"), "message_id\ntoday\n");
    assert_eq!(keys("stuck"), "message_id\nfailed\nstuck\n");
    assert_eq!(keys("repeated"), "message_id\ndone\n");
    assert_eq!(
        shell(&place, "SELECT * FROM failures_by_message"),
        "scope|message_id|state|attempt|ended|seconds|error\n\
         orders|failed|failed|1|2027-01-15T08:00:01.123Z|1.5|no money\n"
    );
    assert_eq!(shell(&place, "SELECT duplicates FROM repeated"), "duplicates\n1\n");
}

/// A key asked for in its scope is looked up, not searched for.
#[tokio::test]
async fn a_lookup_through_the_view_uses_the_index() {
    let place = place_with_messages().await;
    let plan =
        shell(&place, "EXPLAIN QUERY PLAN SELECT * FROM ledger WHERE scope = 'orders' AND message_id = 'a'");
    assert!(plan.contains("messages_key (scope_id=? AND key=?)") && !plan.contains("SCAN"), "{plan}");
}

/// Times that no calendar has are numbers, and no row is left out.
#[tokio::test]
async fn impossible_times_are_still_shown() {
    let place = place_with_messages().await;
    place.sql("UPDATE messages SET first_seen_ms = 9223372036854775807, owner_id = 99 WHERE key = 'today'");
    let shown = shell(&place, "SELECT first_seen, owner FROM ledger WHERE message_id = 'today'");
    assert_eq!(shown, "first_seen|owner\n9223372036854775807|\n");
}

/// Whoever removes a message, by whatever means, removes its history.
#[tokio::test]
async fn a_message_removed_by_hand_takes_its_history_along() {
    let place = place_with_messages().await;
    shell(&place, "DELETE FROM messages WHERE key = 'failed'");
    assert_eq!(shell(&place, "SELECT count(*) AS n FROM failures"), "n\n0\n");
}
