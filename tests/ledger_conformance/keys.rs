//! Keys and scopes: what is the same and what is not.

use ackonce::{
    key::KEY_BYTES_MAX,
    ledger::{Claim, Ending},
};

use crate::bench::{Bench, granted, in_scope, request};

pub async fn keys_are_compared_bytewise(bench: &Bench) {
    let owner = bench.owner().await;
    let long = "x".repeat(KEY_BYTES_MAX);
    let keys = [
        "a",
        "A",
        " a",
        "a ",
        "a\t",
        "a\n",
        // Accents: composed and decomposed, and their capitals.
        "ä",
        "a\u{308}",
        "Ä",
        "A\u{308}",
        "é",
        "e\u{301}",
        "한",
        "\u{1112}\u{1161}\u{11ab}",
        "Å",
        "\u{212b}",
        // Blanks, seen and unseen.
        "a b",
        "a  b",
        "a\u{a0}b",
        "a\u{200b}b",
        "ab",
        "1",
        "01",
        "1.0",
        "+1",
        "1e0",
        "null",
        "NULL",
        "a\0",
        "a\0b",
        "\0",
        "\0\0",
        "'",
        "''",
        "\"",
        "%",
        "_",
        "a%",
        "a_",
        "\\",
        "\\0",
        "ß",
        "ss",
        "\u{feff}a",
        "İ",
        "i\u{307}",
        &long,
        &long[1..],
    ];
    for key in keys {
        let ticket = granted(bench.claim(&owner, key).await);
        assert_eq!(ticket.attempt, 1, "{key:?} is new");
        bench.finish(&owner, key, &ticket, Ending::Done).await;
    }
    for key in keys {
        assert_eq!(bench.claim(&owner, key).await, Claim::Duplicate, "{key:?}");
        assert_eq!(bench.row(key).await.message_id, key);
    }
    assert_eq!(bench.ledger.rows().await.unwrap(), keys.len() as u64);
}

pub async fn scopes_are_apart(bench: &Bench) {
    let owner = bench.owner().await;
    let scopes = ["orders", "Orders", "orders ", "", "mails"];
    for scope in scopes {
        bench.run_request(&owner, in_scope(scope, "a"), Ending::Done).await;
    }
    for scope in scopes {
        assert_eq!(bench.claim_request(&owner, in_scope(scope, "a")).await, Claim::Duplicate, "{scope:?}");
        let rows = bench.ledger.show("a", Some(scope)).await.unwrap();
        assert_eq!((rows.len(), rows[0].scope.as_str(), rows[0].duplicates), (1, scope, 1));
    }
}

pub async fn a_key_may_hold_anything_but_nothing(bench: &Bench) {
    let owner = bench.owner().await;
    let nasty = "'; DROP TABLE messages; -- \u{1b}[31m \u{202e}";
    bench.run(&owner, nasty, Ending::Done).await;
    assert_eq!(bench.claim_request(&owner, request(nasty)).await, Claim::Duplicate);
    for blank in ["", " ", "\t\n"] {
        assert_eq!(bench.ledger.show(blank, None).await.unwrap(), vec![]);
        assert_eq!(bench.ledger.forget(blank, None).await.unwrap().removed, 0);
    }
}
