//! Where a queue's rejected messages go, as far as AMQP lets one see it.

mod arguments;

use std::time::Duration;

use lapin::options::ExchangeDeclareOptions;
use tokio::time::timeout;

use crate::message::{Table, Value};

pub(super) use self::arguments::arguments;
use super::{BrokerError, Connection, Declare, Kind, Session, Source, convert::short, topology};

/// For all questions behind a warning, which the first deliveries wait for.
const ADVICE_TIMEOUT: Duration = Duration::from_secs(5);

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
