//! Where a queue's rejected messages go, as far as AMQP lets one see it.
//!
//! There is no question for a queue's arguments. But declaring an existing queue with other arguments
//! is refused with 406, and the refusal names the first argument that differs and its true value
//! (RabbitMQ's "inequivalent arg"); so asking again and again, each time with what was learnt, ends
//! with all of them. Nothing is changed by that. What a policy sets stays unseen.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use tokio::time::timeout;

use crate::message::{Table, Value};

use super::{BrokerError, Connection, Declare, Kind, Session, Source, convert::short, topology};

/// For all questions behind a warning, which the first deliveries wait for.
const ADVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// More arguments than RabbitMQ knows.
const ROUNDS_MAX: usize = 32;
/// Compared last of all, and refused for a queue that has to be made. So no question can make one, not
/// even if the queue is deleted amid them.
const NEVER: (&str, &str) = ("x-queue-leader-locator", "ackonce-only-looks");

/// Where rejected messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The queue has no dead-letter exchange of its own; a policy may give it one.
    NotSeen,
    /// To this exchange, which exists; empty for the default one, with the queue it leads to.
    To { exchange: String },
    /// It names an exchange or a queue that is not there: what is rejected is dropped.
    Broken { why: String },
    /// The broker does not let us look.
    Unknown { why: String },
}

/// What a queue's own arguments say; a policy's stay unseen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `quorum`, `classic` or `stream`.
    pub kind: String,
    pub route: Route,
    pub delivery_limit: Option<i64>,
    pub consumer_timeout: Option<Duration>,
}

impl Source {
    /// A rejected message without a route is dropped by the broker, silently.
    pub(super) async fn check_rejects(&self, connection: &Connection) -> Result<(), BrokerError> {
        let Some(rejects) = &self.rejects else { return Ok(()) };
        let dropped = |why: &str| {
            let queue = &self.queue;
            BrokerError::new(
                Kind::PreconditionFailed,
                format!(
                    "rejected messages of '{queue}' would be dropped: {why}; or use dead_letter = \"publish\""
                ),
            )
        };
        if let Some(exchange) = &rejects.exchange {
            return if exchange_exists(connection, exchange).await? {
                Ok(())
            } else {
                Err(dropped(&format!("there is no exchange '{exchange}': make it")))
            };
        }
        match dead_letter_route(connection, &self.queue).await? {
            Route::To { .. } => Ok(()),
            Route::Broken { why } => Err(dropped(&why)),
            Route::NotSeen => Err(dropped(
                "it has no dead-letter exchange; if a policy sets one, name it with dead_letter_exchange",
            )),
            Route::Unknown { why } => Err(dropped(&format!(
                "its dead-letter exchange cannot be seen ({why}); name it with dead_letter_exchange"
            ))),
        }
    }

    /// Why the broker may drop messages of this queue, if that can be seen; see [`why_dropped`].
    /// A source that may not look, or whose rejects were looked at, says nothing.
    pub async fn why_dropped(&self, session: &Session) -> Option<String> {
        if self.declare == Declare::None || self.rejects.is_some() {
            return None;
        }
        // Only advice: what is wrong with the connection, the session reports.
        let looked = timeout(ADVICE_TIMEOUT, why_dropped(&session.connection, &self.queue)).await;
        looked.map_or(None, |looked| looked.unwrap_or(None))
    }
}

/// Looks for the dead-letter route of an existing queue.
///
/// # Errors
///
/// Only if the connection fails.
pub async fn dead_letter_route(connection: &Connection, queue: &str) -> Result<Route, BrokerError> {
    let arguments = match arguments(connection, queue).await {
        Ok(Ok(arguments)) => arguments,
        Ok(Err(why)) => return Ok(Route::Unknown { why }),
        Err(error) => return Err(error),
    };
    route(connection, queue, &arguments).await
}

async fn route(connection: &Connection, queue: &str, arguments: &Table) -> Result<Route, BrokerError> {
    let text = |name: &str| arguments.get(name).and_then(Value::to_text);
    let Some(exchange) = text("x-dead-letter-exchange") else { return Ok(Route::NotSeen) };
    if exchange.is_empty() {
        let target = text("x-dead-letter-routing-key").unwrap_or_else(|| queue.to_owned());
        return Ok(match topology::look(connection, &target).await? {
            Some(_) => Route::To { exchange },
            None => {
                Route::Broken { why: format!("it dead-letters to the queue '{target}', which is not there") }
            }
        });
    }
    Ok(if exchange_exists(connection, &exchange).await? {
        Route::To { exchange }
    } else {
        Route::Broken { why: format!("its dead-letter exchange '{exchange}' does not exist") }
    })
}

/// What can be seen of an existing queue; `Err` inside says why it cannot.
///
/// # Errors
///
/// Only if the connection fails.
pub async fn seen(connection: &Connection, queue: &str) -> Result<Result<Seen, String>, BrokerError> {
    let arguments = match arguments(connection, queue).await? {
        Ok(arguments) => arguments,
        Err(why) => return Ok(Err(why)),
    };
    let route = route(connection, queue, &arguments).await?;
    let number = |name: &str| match arguments.get(name) {
        Some(Value::I64(number)) => Some(*number),
        _ => None,
    };
    // A queue that states no type is a classic one, unless its virtual host has another default.
    let kind = arguments.get("x-queue-type").and_then(Value::to_text).unwrap_or("classic".to_owned());
    Ok(Ok(Seen {
        kind,
        route,
        delivery_limit: number("x-delivery-limit"),
        consumer_timeout: number("x-consumer-timeout")
            .and_then(|ms| u64::try_from(ms).ok())
            .map(Duration::from_millis),
    }))
}

/// Why the broker may drop messages of an existing queue, if that can be seen: a quorum queue drops what
/// was delivered more often than its limit (20 on RabbitMQ 4), unless it dead-letters.
///
/// # Errors
///
/// Only if the connection fails.
pub async fn why_dropped(connection: &Connection, queue: &str) -> Result<Option<String>, BrokerError> {
    let Ok(arguments) = arguments(connection, queue).await? else { return Ok(None) };
    if arguments.get("x-queue-type").and_then(Value::to_text).as_deref() != Some("quorum") {
        return Ok(None);
    }
    Ok(match route(connection, queue, &arguments).await? {
        Route::NotSeen => Some("it has no dead-letter exchange of its own".to_owned()),
        Route::Broken { why } => Some(why),
        Route::To { .. } | Route::Unknown { .. } => None,
    })
}

/// Whether there is an exchange of that name.
///
/// # Errors
///
/// Anything but 404.
pub async fn exchange_exists(connection: &Connection, exchange: &str) -> Result<bool, BrokerError> {
    let name = short(exchange, "the exchange's name")?;
    let channel = connection.channel().await?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let declared = channel.exchange_declare(name, lapin::ExchangeKind::Direct, options, Default::default());
    match topology::bounded(declared).await {
        Ok(()) => {
            topology::goodbye(&channel).await;
            Ok(true)
        }
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The queue's arguments; `Ok(Err(why))` if the broker will not tell.
pub(super) async fn arguments(
    connection: &Connection,
    queue: &str,
) -> Result<Result<Table, String>, BrokerError> {
    let mut asked = Asked::about(queue);
    if topology::look(connection, queue).await?.is_none() {
        return Ok(Err(format!("there is no queue '{queue}'")));
    }
    for _ in 0..ROUNDS_MAX {
        match topology::declare(connection, &asked.spec, asked.options).await {
            Ok(_) => return Ok(Ok(asked.learnt())),
            Err(error) if error.kind() == Kind::PreconditionFailed => match asked.learn(&error.to_string()) {
                Learnt::More => {}
                Learnt::All => return Ok(Ok(asked.learnt())),
                Learnt::Nothing => return Ok(Err(error.to_string())),
            },
            Err(error) if error.is_permanent() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(Err("its arguments could not be found out".to_owned()))
}

/// What the next question says.
struct Asked {
    spec: topology::QueueSpec,
    options: QueueDeclareOptions,
}

/// What a refusal has taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learnt {
    /// One argument: ask again.
    More,
    /// It is about [`NEVER`], the last that is compared.
    All,
    /// Nothing new: no question helps.
    Nothing,
}

impl Asked {
    fn about(queue: &str) -> Self {
        let arguments = Table::from([(NEVER.0.into(), Value::text(NEVER.1))]);
        Self {
            spec: topology::QueueSpec { name: queue.to_owned(), arguments },
            options: QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() },
        }
    }

    /// All that is known of the queue's arguments.
    fn learnt(mut self) -> Table {
        self.spec.arguments.remove(NEVER.0);
        self.spec.arguments
    }

    fn learn(&mut self, refusal: &str) -> Learnt {
        if refusal.contains(&format!("inequivalent arg '{}'", NEVER.0)) {
            return Learnt::All;
        }
        if self.takes_in(refusal) { Learnt::More } else { Learnt::Nothing }
    }

    /// `false` if it teaches nothing new.
    fn takes_in(&mut self, refusal: &str) -> bool {
        let quoted = |after: &str| {
            let (_, rest) = refusal.split_once(after)?;
            rest.split_once('\'').map(|(value, _)| value.to_owned())
        };
        let Some(name) = quoted("inequivalent arg '") else { return false };
        if let (Some(value), Some(kind)) = (quoted("current is the value '"), quoted("of type '")) {
            let number = value.parse::<i64>();
            let value = match (kind.as_str(), number) {
                ("longstr", _) => Value::text(value),
                ("bool" | "boolean", _) => Value::Bool(value == "true"),
                (_, Ok(number)) => Value::I64(number),
                _ => return false,
            };
            return self.spec.arguments.insert(name, value).is_none();
        }
        let Some(current) = quoted("current is '") else { return false };
        if name == "x-queue-type" {
            // RabbitMQ 4 words it in this way.
            return self.spec.arguments.insert(name, Value::text(current)).is_none();
        }
        let flag = match name.as_str() {
            "durable" => &mut self.options.durable,
            "auto_delete" => &mut self.options.auto_delete,
            "exclusive" => &mut self.options.exclusive,
            _ => return false,
        };
        let current = current == "true";
        let is_new = *flag != current;
        *flag = current;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_teaches_one_argument() {
        let mut asked = Asked::about("q");
        let said = |rest: &str| format!("the broker says 406 PRECONDITION_FAILED - inequivalent arg {rest}");
        assert!(
            asked.takes_in(&said(
                "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"
            ))
        );
        assert!(!asked.options.durable);
        let dlx = said(
            "'x-dead-letter-exchange' for queue 'q' in vhost '/': received none but current is the value 'dlx' of type 'longstr'",
        );
        assert!(asked.takes_in(&dlx));
        assert!(!asked.takes_in(&dlx), "nothing new: give up, do not ask for ever");
        assert!(asked.takes_in(&said(
            "'x-message-ttl' for queue 'q' in vhost '/': received none but current is the value '60000' of type 'signedint'"
        )));
        assert_eq!(asked.spec.arguments["x-dead-letter-exchange"], Value::text("dlx"));
        assert_eq!(asked.spec.arguments["x-message-ttl"], Value::I64(60_000));
        let kind =
            said("'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'");
        assert!(asked.takes_in(&kind) && !asked.takes_in(&kind));
        assert_eq!(asked.spec.arguments["x-queue-type"], Value::text("quorum"));
        assert!(!asked.takes_in("the broker says 406 PRECONDITION_FAILED - something else"));
    }

    /// The last question is about an argument that no queue can be made with.
    #[test]
    fn all_is_learnt_when_the_impossible_argument_is_refused() {
        let mut asked = Asked::about("q");
        let refused = "the broker says 406 PRECONDITION_FAILED - inequivalent arg 'x-queue-leader-locator' for \
                       queue 'q' in vhost '/': received the value 'ackonce-only-looks' of type 'longstr' but current is none";
        assert_eq!(asked.learn(refused), Learnt::All);
        assert_eq!(asked.learnt(), Table::new());
        let gone =
            "the broker says 406 PRECONDITION_FAILED - invalid arg 'x-queue-leader-locator' for queue 'q'";
        assert_eq!(Asked::about("q").learn(gone), Learnt::Nothing);
    }
}
