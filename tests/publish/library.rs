//! The publisher itself, as workers use it.

use std::{sync::Arc, time::Duration};

use ackonce::{
    broker::{
        Endpoint, Kind, Outgoing, PublishError, Publisher, connect, convert::HEADER_DEPTH_MAX, topology,
    },
    message::{Properties, Table, Value},
};
use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{options::QueueBindOptions, types::FieldTable};
use tokio::time::Instant;

use crate::support::{Broker, LIMIT, fresh, ids, shared_url};

fn publisher(window: usize) -> Publisher {
    Publisher::new(vec![Endpoint::parse(&shared_url()).unwrap()], "test", window)
}

fn outgoing(exchange: &str, routing_key: &str, id: &str, body: &[u8]) -> Outgoing {
    Outgoing {
        exchange: exchange.into(),
        routing_key: routing_key.into(),
        properties: Properties { message_id: Some(id.into()), ..Properties::default() },
        body: Arc::from(body),
        mandatory: true,
    }
}

/// Returned messages come with other messages' confirms; each must still be told to its own sender.
#[tokio::test(flavor = "multi_thread")]
async fn among_many_under_way_each_learns_its_own_fate() {
    let broker = Broker::shared().await;
    let queue = broker.queue("fates").await;
    let bind = QueueBindOptions::default();
    broker
        .channel
        .queue_bind(
            queue.as_str().into(),
            "amq.direct".into(),
            queue.as_str().into(),
            bind,
            FieldTable::default(),
        )
        .await
        .unwrap();
    let (publisher, nowhere) = (publisher(500), fresh("nowhere"));
    let mut fates = FuturesUnordered::new();
    let mut expected = std::collections::BTreeSet::new();
    for number in 0..3000 {
        // Runs of different lengths, so that confirms come for several at once.
        let routable = (number / 7) % 3 != 0 && number % 5 != 0;
        let id = format!("{number:04}");
        let key = if routable { &queue } else { &nowhere };
        let confirm =
            publisher.send(outgoing("amq.direct", key, &id, b"x"), Instant::now() + LIMIT).await.unwrap();
        if routable {
            expected.insert(id.clone());
        }
        fates.push(async move { (id, routable, confirm.await) });
    }
    while let Some((id, routable, fate)) = fates.next().await {
        match routable {
            true => assert_eq!(fate, Ok(()), "{id}"),
            false => assert_eq!(fate, Err(PublishError::Unroutable("312 NO_ROUTE".into())), "{id}"),
        }
    }
    assert_eq!(ids(&broker.drain(&queue).await), expected);
    publisher.close(LIMIT).await;
}

/// A closed channel fails what was minded; the next message goes through on the same connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_channel_is_replaced_and_only_the_minded_message_is_refused() {
    let broker = Broker::shared().await;
    let queue = broker.queue("channel").await;
    let publisher = publisher(10);
    let connection = publisher.connection().await.unwrap();
    for round in 0..3 {
        let typo = publisher.publish(outgoing("no-such-exchange", "k", "m", b"x"), LIMIT).await;
        assert!(
            matches!(&typo, Err(PublishError::NotFound(text)) if text.contains("no exchange 'no-such-exchange'")),
            "{typo:?}"
        );
        assert_eq!(publisher.publish(outgoing("", &queue, &round.to_string(), b"x"), LIMIT).await, Ok(()));
    }
    let expiration = Some("soon".to_owned());
    let wrong = Outgoing {
        properties: Properties { expiration, ..Properties::default() },
        ..outgoing("", &queue, "", b"")
    };
    let refused = publisher.publish(wrong, LIMIT).await;
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    let user_id = Some("somebody".to_owned());
    let wrong = Outgoing {
        properties: Properties { user_id, ..Properties::default() },
        ..outgoing("", &queue, "", b"")
    };
    let refused = publisher.publish(wrong, LIMIT).await;
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    assert!(connection.is_open(), "{:?}", connection.why_ended());
    assert_eq!(broker.drain(&queue).await.len(), 3);

    // With others under way: they are told that nobody knows, or that they made it; never that they were minded.
    let deadline = Instant::now() + LIMIT;
    let mut fates = Vec::new();
    for number in 0..10 {
        let exchange = if number == 5 { "no-such-exchange" } else { "" };
        fates.push(publisher.send(outgoing(exchange, &queue, "m", b"x"), deadline).await.unwrap());
    }
    for (number, fate) in futures::future::join_all(fates).await.into_iter().enumerate() {
        match fate {
            Err(PublishError::NotFound(_)) => assert_eq!(number, 5),
            Ok(()) | Err(PublishError::Lost(_)) => assert_ne!(number, 5),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// lapin would try for ever to write a header frame that exceeds its buffer.
#[tokio::test(flavor = "multi_thread")]
async fn headers_that_do_not_fit_into_a_frame_are_refused_and_others_go_on() {
    let broker = Broker::shared().await;
    let queue = broker.queue("headers").await;
    let publisher = publisher(10);
    for (bytes, fits) in [(130_000, true), (131_072, false), (8 << 20, false)] {
        let headers = Some(Table::from([("h".to_owned(), Value::Text(vec![b'x'; bytes]))]));
        let message = Outgoing {
            properties: Properties { headers, ..Properties::default() },
            ..outgoing("", &queue, "m", b"x")
        };
        match publisher.publish(message, LIMIT).await {
            Ok(()) => assert!(fits, "{bytes}"),
            Err(error) => assert!(!fits && matches!(error, PublishError::TooLarge(_)), "{bytes}: {error}"),
        }
    }
    assert_eq!(publisher.publish(outgoing("", &queue, "m", b"x"), LIMIT).await, Ok(()));
}

/// The deepest headers that are sent at all do not overflow lapin's stack.
#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_headers_are_sent_or_refused() {
    let broker = Broker::shared().await;
    let queue = broker.queue("deep").await;
    let publisher = publisher(10);
    for (depth, fits) in [(HEADER_DEPTH_MAX, true), (HEADER_DEPTH_MAX + 1, false), (3000, false)] {
        let value = (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        let headers = Some(Table::from([("h".to_owned(), value)]));
        let properties = Properties { headers, ..Properties::default() };
        let result =
            publisher.publish(Outgoing { properties, ..outgoing("", &queue, "m", b"x") }, LIMIT).await;
        assert_eq!(result.is_ok(), fits, "{depth}: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_broker_is_an_error_of_its_own() {
    let publisher = Publisher::new(vec![Endpoint::parse("amqp://127.0.0.1:1").unwrap()], "test", 1);
    for _ in 0..2 {
        match publisher.publish(outgoing("", "q", "m", b"x"), LIMIT).await {
            Err(PublishError::NotConnected(error)) => assert_eq!(error.kind(), Kind::Unreachable),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_looked_up_first_and_made_once() {
    let publisher = publisher(1);
    let connection = publisher.connection().await.unwrap();
    let queue = fresh("topology");
    assert_eq!(topology::look(&connection, &queue).await, Ok(None));
    let made = topology::ensure_work_queue(&connection, &queue, topology::QueueType::Quorum).await.unwrap();
    assert!(made.created);
    let found = topology::ensure_work_queue(&connection, &queue, topology::QueueType::Classic).await.unwrap();
    assert!(!found.created, "whatever its arguments are, it is there");
    publisher.publish(outgoing("", &format!("{queue}.dead"), "m", b"x"), LIMIT).await.unwrap();
    let retry = topology::retry_queue(&queue, 100, topology::QueueType::Quorum);
    assert!(topology::ensure(&connection, &retry).await.unwrap().created, "the broker takes its arguments");
    for name in [queue.clone(), topology::dead_letter_queue(&queue), retry.name] {
        topology::delete(&connection, &name).await.unwrap();
    }
    assert_eq!(topology::look(&connection, &queue).await, Ok(None));
    let long = topology::look(&connection, &"q".repeat(256)).await.unwrap_err();
    assert_eq!(long.kind(), Kind::TooLarge);
}

/// Dropping a publisher cuts its connection: nothing waits, and no thread of it stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_publisher_leaves_nothing_behind() {
    let before = lapin_threads();
    let publisher = publisher(10);
    publisher.connection().await.unwrap();
    let mut state = publisher.connection().await.unwrap().state();
    assert_eq!(lapin_threads(), before + 1);
    drop(publisher);
    state.wait_for(|state| state.ended.is_some()).await.unwrap();
    until_lapin_threads(before).await;
}

/// K64: a server that accepts and never speaks costs a time limit, and not a thread for each attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_leaves_no_thread_behind() {
    let before = lapin_threads();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}?connection_timeout=500", silent.local_addr().unwrap());
    let error = connect::connect(&[Endpoint::parse(&url).unwrap()], "test").await.unwrap_err();
    assert_eq!((error.kind(), error.is_permanent()), (Kind::Timeout, false), "{error}");
    until_lapin_threads(before).await;
    // The same when whoever asked does not wait for it.
    let endpoint = [Endpoint::parse(&url).unwrap()];
    let given_up =
        tokio::time::timeout(Duration::from_millis(300), connect::connect(&endpoint, "test")).await;
    assert!(given_up.is_err());
    until_lapin_threads(before).await;
}

async fn until_lapin_threads(count: usize) {
    let deadline = Instant::now() + LIMIT;
    while lapin_threads() > count {
        assert!(Instant::now() < deadline, "a thread stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn lapin_threads() -> usize {
    let is_lapin = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("lapin"))
    };
    std::fs::read_dir("/proc/self/task").unwrap().flatten().map(is_lapin).filter(|is| *is).count()
}
