//! What copies carry, and what they become again.

use std::time::Duration;

use super::*;
use crate::worker::decide::Reason;

fn original(headers: Option<Table>) -> Message {
    Message {
        exchange: "shop".into(),
        routing_key: "order.created".into(),
        redelivered: true,
        properties: Properties {
            headers,
            message_id: Some("a".into()),
            expiration: Some("3000".into()),
            user_id: Some("shop".into()),
            delivery_mode: Some(2),
            timestamp: Some(u64::MAX),
            ..Properties::default()
        },
        body: vec![0, 255],
    }
}

fn letter(message: Message, purpose: Purpose) -> Letter {
    Letter { purpose, message: message.into(), key: None, error: "e".into(), attempt: 3, first_seen: Some(1) }
}

/// What the broker makes of it on its way through the delay queue.
fn returned(outgoing: Outgoing) -> Message {
    let mut properties = outgoing.properties;
    properties.headers.get_or_insert_default().insert("x-death".into(), Value::text("expired"));
    Message {
        exchange: String::new(),
        routing_key: "orders".into(),
        redelivered: false,
        properties,
        body: outgoing.body.to_vec(),
    }
}

#[test]
fn a_waiting_copy_comes_back_as_the_message_it_was() {
    let own = Table::from([
        ("CC".into(), Value::List(vec![Value::text("elsewhere")])),
        ("x-death".into(), Value::text("its own")),
        ("n".into(), Value::F64(f64::MAX)),
    ]);
    for headers in [None, Some(Table::new()), Some(own)] {
        let message = original(headers);
        let (_, copy) = compose(&letter(message.clone(), Purpose::Delay(Duration::from_secs(9))), "orders");
        assert_eq!(copy.properties.expiration, None, "it must not expire where it waits");
        assert!(copy.properties.header("CC").is_none(), "it must not be routed elsewhere again");
        let mut back = Arc::new(returned(copy));
        assert_eq!(restore(&mut back), Origin::Sequel(3));
        let expected = Message { redelivered: false, ..message };
        assert_eq!(*back, expected);
    }
}

#[test]
fn a_message_that_is_no_copy_is_left_as_it_is() {
    for redelivered in [true, false] {
        let message = Message { redelivered, ..original(None) };
        let mut arrived = Arc::new(message.clone());
        let expected = if redelivered { Origin::Redelivered } else { Origin::Fresh };
        assert_eq!(restore(&mut arrived), expected);
        assert_eq!(*arrived, message);
    }
}

#[test]
fn a_forged_table_is_no_sequel() {
    for value in
        [Value::text("x"), Value::Null, Value::Table(Table::from([("attempt".into(), Value::I64(-1))]))]
    {
        let mut arrived = Arc::new(original(Some(Table::from([(RETRY.into(), value)]))));
        assert_eq!(restore(&mut arrived), Origin::Fresh);
    }
}

#[test]
fn a_dead_letter_says_why_in_bounded_size() {
    let mut long = letter(original(None), Purpose::Dead(Reason::GaveUp));
    long.error = "é".repeat(100_000);
    let (destination, copy) = compose(&long, "orders");
    assert_eq!(destination.queue_name(), "orders.dead");
    assert_eq!(copy.properties.expiration, None);
    assert_eq!(copy.properties.header("x-ackonce-expiration"), Some(&Value::text("3000")));
    assert_eq!(copy.properties.header("x-ackonce-exchange"), Some(&Value::text("shop")));
    let size: usize =
        copy.properties.headers.iter().flatten().map(|(n, v)| n.len() + v.to_text().unwrap().len()).sum();
    assert!(size < 4096, "{size}");
    let smaller = compose_smaller(&long, "orders");
    assert_eq!(smaller[0].1.properties.headers.as_ref().unwrap().len(), 1);
    assert!(smaller[1].1.properties.header("x-ackonce-error").is_some());
}

/// What the broker makes of a dead letter's copy on its way to the work queue.
fn arrived(outgoing: Outgoing, redelivered: bool) -> Arc<Message> {
    Arc::new(Message {
        exchange: outgoing.exchange,
        routing_key: outgoing.routing_key,
        redelivered,
        properties: outgoing.properties,
        body: outgoing.body.to_vec(),
    })
}

/// A dead letter as it lies in its queue, looked at twice already.
fn dead_letter(message: Message) -> Message {
    let (_, copy) = compose(&letter(message, Purpose::Dead(Reason::GaveUp)), "orders");
    let mut dead = Arc::unwrap_or_clone(arrived(copy, true));
    dead.properties.headers.get_or_insert_default().insert("x-delivery-count".into(), Value::I64(2));
    dead
}

#[test]
fn a_dead_letter_that_is_sent_back_is_the_message_it_was() {
    let own = Table::from([
        ("CC".into(), Value::List(vec![Value::text("elsewhere")])),
        ("x-death".into(), Value::text("its own")),
        ("n".into(), Value::I8(1)),
    ]);
    for headers in [None, Some(own)] {
        let message = original(headers);
        let copy = replay(&dead_letter(message.clone()), "orders");
        assert_eq!((copy.exchange.as_str(), copy.routing_key.as_str()), ("", "orders"));
        assert!(copy.mandatory);
        assert_eq!(copy.properties.expiration, None, "it must not expire");
        assert_eq!(copy.properties.user_id, None, "the broker would refuse another's");
        assert!(copy.properties.header("CC").is_none(), "it must not be routed elsewhere again");
        for redelivered in [false, true] {
            let mut back = arrived(copy.clone(), redelivered);
            assert_eq!(restore(&mut back), Origin::Fresh, "redelivered: {redelivered}");
            let mut expected = Message { redelivered, ..message.clone() };
            expected.properties.expiration = None;
            assert_eq!(*back, expected);
        }
    }
}

#[test]
fn a_letter_without_our_headers_is_sent_back_from_what_the_broker_noted() {
    let death = |queue: &str, exchange: &str, key: &str| {
        Value::Table(Table::from([
            ("queue".into(), Value::text(queue)),
            ("exchange".into(), Value::text(exchange)),
            ("reason".into(), Value::text("delivery_limit")),
            ("time".into(), Value::Time(1_800_000_000)),
            ("routing-keys".into(), Value::List(vec![Value::text(key)])),
        ]))
    };
    let deaths = Value::List(vec![death("another", "later", "k2"), death("orders", "shop", "created")]);
    let headers = Table::from([("x-death".into(), deaths), ("n".into(), Value::I8(1))]);
    let message =
        Message { exchange: String::new(), routing_key: "orders.dead".into(), ..original(Some(headers)) };
    let notes = Notes::of(&message, "orders");
    assert_eq!((notes.exchange.as_deref(), notes.routing_key.as_deref()), (Some("shop"), Some("created")));
    assert_eq!((notes.key.as_deref(), notes.reason.as_deref()), (Some("a"), Some("delivery_limit")));
    assert_eq!((notes.dead_ms, notes.is_ours), (Some(1_800_000_000_000), false));
    let mut back = arrived(replay(&message, "orders"), false);
    assert_eq!(restore(&mut back), Origin::Fresh);
    assert_eq!((back.exchange.as_str(), back.routing_key.as_str()), ("shop", "created"));
    assert_eq!(back.properties.headers, Some(Table::from([("n".into(), Value::I8(1))])));
}

/// A waiting copy that the broker itself dead-lettered is told from a dead letter of ours.
#[test]
fn a_waiting_copy_that_died_is_sent_back_without_its_attempt() {
    let (_, copy) = compose(&letter(original(None), Purpose::Delay(Duration::from_secs(9))), "orders");
    let mut dead = Arc::unwrap_or_clone(arrived(copy, false));
    let headers = dead.properties.headers.get_or_insert_default();
    headers.insert("x-death".into(), Value::List(Vec::new()));
    let mut back = arrived(replay(&dead, "orders"), true);
    assert_eq!(restore(&mut back), Origin::Fresh);
    let mut expected = original(None);
    expected.properties.expiration = None;
    assert_eq!(*back, expected);
}

/// It was too large for our notes, so there is room for hardly more than it had.
#[test]
fn a_small_dead_letter_grows_no_larger_when_it_is_sent_back() {
    let headers = Table::from([("n".into(), Value::I8(1))]);
    let long = letter(original(Some(headers)), Purpose::Dead(Reason::GaveUp));
    let (_, small) = compose_smaller(&long, "orders").remove(0);
    let dead = Arc::unwrap_or_clone(arrived(small, false));
    let copy = replay(&dead, "orders");
    let names =
        |headers: &Option<Table>| -> usize { headers.iter().flatten().map(|(name, _)| name.len()).sum() };
    assert!(names(&copy.properties.headers) < names(&dead.properties.headers));
    assert_eq!(copy.properties.header(RETRY), Some(&Value::Table(Table::new())));
    let mut back = arrived(copy, true);
    assert_eq!(restore(&mut back), Origin::Fresh);
    assert_eq!(back.routing_key, "orders", "as it came, where nothing else is known");
}

/// A letter that must not be returned once more is put back as a new one: it says the same.
#[test]
fn a_letter_put_back_in_place_says_the_same() {
    let dead = dead_letter(original(None));
    let copy = in_place(&dead, "orders.dead");
    assert_eq!((copy.exchange.as_str(), copy.routing_key.as_str()), ("", "orders.dead"));
    let again = arrived(copy, false);
    assert!(again.properties.header("x-delivery-count").is_none());
    assert_eq!(Notes::of(&again, "orders"), Notes { returns: 0, ..Notes::of(&dead, "orders") });
    assert_eq!(replay(&again, "orders"), replay(&dead, "orders"));

    let foreign = original(Some(Table::from([("CC".into(), Value::List(vec![Value::text("elsewhere")]))])));
    let copy = in_place(&foreign, "orders.dead");
    assert!(copy.properties.header("CC").is_none(), "it must not be routed elsewhere again");
    assert_eq!((&copy.properties.expiration, &copy.properties.user_id), (&None, &None));
    let mut back = arrived(replay(&arrived(copy, false), "orders"), false);
    restore(&mut back);
    assert_eq!(back.properties.headers, foreign.properties.headers);
    assert_eq!(back.properties.user_id.as_deref(), Some("shop"));
}
