//! A worker's queue: is it there, of which type, and what becomes of what it gives up?

use std::time::Duration;

use tokio::time::timeout;

use super::{broker::BROKER, report::Line};
use crate::{
    broker::{
        BrokerError, Connection, Declare, Route,
        route::{Seen, exchange_exists, seen},
        topology::{self, QueueInfo},
    },
    config::{WorkerConfig, for_people},
    worker::policy::DeadLetter,
};

/// For all questions about one queue; each has a limit of its own.
const LIMIT: Duration = Duration::from_secs(20);
/// RabbitMQ's own limit of the time from a delivery to its ack, unless its configuration has another.
const CONSUMER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30 * 60);

const QUEUE: &str = "queue";
const DEAD_LETTERS: &str = "dead letters";
const DELIVERY_LIMIT: &str = "delivery limit";
const HANDLER_TIMEOUT: &str = "handler timeout";

/// What is known of a queue. `seen` says in `Err` why no more is.
struct Known {
    info: Option<QueueInfo>,
    seen: Result<Seen, String>,
}

/// All about one worker's queue.
pub(super) async fn look(connection: Option<&Connection>, worker: &WorkerConfig) -> Vec<Line> {
    let queue = &worker.policy.queue;
    let looked = match connection {
        Some(connection) => timeout(LIMIT, known(connection, queue)).await,
        None => Ok(Err("not looked at: no broker lets us in".to_owned())),
    };
    let looked =
        looked.unwrap_or_else(|_| Err(format!("the broker does not answer within {}", for_people(LIMIT))));
    let mut lines = Vec::new();
    match (looked, connection) {
        (Ok(known), Some(connection)) => {
            lines.push(queue_line(worker, &known));
            lines.push(dead_letters(connection, worker, &known).await);
            lines.extend(delivery_limit(worker, &known));
            lines.push(handler_timeout(worker, known.seen.as_ref().ok()));
        }
        (Err(why), _) => {
            lines.push(Line::fail(QUEUE, why.clone(), format!("first mend '{BROKER}' and 'login'")));
            lines.push(Line::fail(DEAD_LETTERS, why, format!("first mend '{BROKER}' and 'login'")));
            lines.push(handler_timeout(worker, None));
        }
        (Ok(_), None) => {}
    }
    lines.into_iter().map(|line| line.of(queue)).collect()
}

async fn known(connection: &Connection, queue: &str) -> Result<Known, String> {
    let said = |error: BrokerError| error.to_string();
    let info = topology::look(connection, queue).await.map_err(said)?;
    let seen = match info {
        Some(_) => seen(connection, queue).await.map_err(said)?,
        None => Err("there is no such queue".to_owned()),
    };
    Ok(Known { info, seen })
}

fn queue_line(worker: &WorkerConfig, known: &Known) -> Line {
    let Some(info) = &known.info else {
        return match worker.declare {
            Declare::Create => {
                let kind = worker.queue_type.as_str();
                Line::ok(QUEUE, format!("not there yet: a worker makes it, a {kind} queue"))
            }
            Declare::Passive | Declare::None => Line::fail(
                QUEUE,
                "there is no such queue",
                "correct the name or the vhost, make the queue, or let a worker make it: declare = \"create\"",
            ),
        };
    };
    let counts = format!("{} messages ready, {} consumers", info.messages, info.consumers);
    match &known.seen {
        Ok(seen) => Line::ok(QUEUE, format!("{}, {counts}", seen.kind)),
        // Its type is not needed to consume it.
        Err(why) => Line::ok(QUEUE, format!("{counts}; its type cannot be seen ({why})")),
    }
}

async fn dead_letters(connection: &Connection, worker: &WorkerConfig, known: &Known) -> Line {
    let (policy, made) = (&worker.policy, known.info.is_none() && worker.declare == Declare::Create);
    let dead = topology::dead_letter_queue(&policy.queue);
    let exchange = worker.dead_letter_exchange.as_deref();
    match (policy.dead_letter, exchange) {
        (DeadLetter::Publish, _) => match topology::look(connection, &dead).await {
            Ok(Some(info)) => {
                Line::ok(DEAD_LETTERS, format!("to {dead}, which has {} messages", info.messages))
            }
            Ok(None) if worker.declare == Declare::Create => {
                Line::ok(DEAD_LETTERS, format!("to {dead}: not there yet, a worker makes it"))
            }
            Ok(None) => Line::fail(
                DEAD_LETTERS,
                format!("to {dead}, which is not there: what is given up would wait in its queue"),
                "make that queue, or use declare = \"create\"",
            ),
            Err(error) => Line::fail(DEAD_LETTERS, error.to_string(), "see what the broker says"),
        },
        (DeadLetter::Reject, Some(exchange)) => match exchange_exists(connection, exchange).await {
            Ok(true) => Line::ok(DEAD_LETTERS, format!("rejected, to the exchange {exchange} of its policy")),
            Ok(false) => Line::fail(
                DEAD_LETTERS,
                format!(
                    "rejected, to the exchange {exchange}, which is not there: the broker would drop them"
                ),
                "make the exchange, or correct dead_letter_exchange",
            ),
            Err(error) => Line::fail(DEAD_LETTERS, error.to_string(), "see what the broker says"),
        },
        (DeadLetter::Reject, None) if made => {
            Line::ok(DEAD_LETTERS, format!("rejected, to {dead}: a worker makes both"))
        }
        (DeadLetter::Reject, None) => rejected(known),
    }
}

/// Without a route, the broker drops what is rejected.
fn rejected(known: &Known) -> Line {
    const HINT: &str = "give the queue a dead-letter exchange, name that of its policy with \
                        dead_letter_exchange, or use dead_letter = \"publish\"";
    let route = known.seen.as_ref().map(|seen| &seen.route);
    match route {
        Ok(Route::To { exchange }) => {
            let exchange = if exchange.is_empty() { "the default exchange" } else { exchange };
            Line::ok(DEAD_LETTERS, format!("rejected, to {exchange}"))
        }
        Ok(Route::NotSeen) => Line::fail(
            DEAD_LETTERS,
            "rejected, and the queue has no dead-letter exchange of its own: the broker would drop them",
            HINT,
        ),
        Ok(Route::Broken { why }) => {
            Line::fail(DEAD_LETTERS, format!("rejected, and the broker would drop them: {why}"), HINT)
        }
        Ok(Route::Unknown { why }) | Err(why) => {
            Line::fail(DEAD_LETTERS, format!("rejected, and where to cannot be seen: {why}"), HINT)
        }
    }
}

/// Only quorum queues have one; what exceeds it goes the queue's own way, whatever a worker does.
fn delivery_limit(worker: &WorkerConfig, known: &Known) -> Option<Line> {
    const HINT: &str =
        "give the queue a dead-letter exchange; one set by a policy is as good, and cannot be seen here";
    known.info.as_ref()?;
    let seen = match &known.seen {
        Ok(seen) => seen,
        Err(_) if worker.declare == Declare::None => return None,
        Err(why) => return Some(Line::warn(DELIVERY_LIMIT, format!("cannot be seen: {why}"), HINT)),
    };
    if seen.kind != "quorum" {
        return None;
    }
    let limit = match seen.delivery_limit {
        Some(limit) => limit.to_string(),
        None => "the broker's default (20 from RabbitMQ 4 on, none before)".to_owned(),
    };
    Some(match &seen.route {
        Route::To { .. } => Line::ok(DELIVERY_LIMIT, format!("{limit}; what exceeds it is dead-lettered")),
        Route::NotSeen => Line::warn(
            DELIVERY_LIMIT,
            format!("{limit}; what exceeds it is dropped: the queue has no dead-letter exchange of its own"),
            HINT,
        ),
        Route::Broken { why } | Route::Unknown { why } => {
            Line::warn(DELIVERY_LIMIT, format!("{limit}; what exceeds it is dropped: {why}"), HINT)
        }
    })
}

/// The broker ends a session that holds a delivery for longer than its consumer timeout.
fn handler_timeout(worker: &WorkerConfig, seen: Option<&Seen>) -> Line {
    const HINT: &str = "lower the worker's timeout, or raise the broker's consumer_timeout";
    let stated = seen.and_then(|seen| seen.consumer_timeout);
    let limit = stated.unwrap_or(CONSUMER_TIMEOUT_DEFAULT);
    let broker = match stated {
        Some(limit) => format!("the queue's consumer timeout is {}", for_people(limit)),
        None => format!(
            "the broker's consumer timeout is taken to be its default, {}: its configuration cannot be seen",
            for_people(limit)
        ),
    };
    let Some(run) = worker.handler.longest_run() else {
        return Line::ok(HANDLER_TIMEOUT, format!("it takes no time; {broker}"));
    };
    let policy = &worker.policy;
    // What is prefetched waits for its turn.
    let turns = usize::from(policy.prefetch).div_ceil(policy.concurrency.max(1));
    let wait = run.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX));
    let value = format!("a run ends within {}; {broker}", for_people(run));
    if run >= limit && stated.is_some() {
        Line::fail(HANDLER_TIMEOUT, value, HINT)
    } else if run >= limit {
        Line::warn(HANDLER_TIMEOUT, value, HINT)
    } else if wait >= limit {
        let value = format!(
            "{value}; the last of {} prefetched messages may wait {}",
            policy.prefetch,
            for_people(wait)
        );
        Line::warn(HANDLER_TIMEOUT, value, "lower prefetch or timeout, or raise the concurrency")
    } else {
        Line::ok(HANDLER_TIMEOUT, value)
    }
}
