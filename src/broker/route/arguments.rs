//! A queue's arguments, learnt from refusals.
//!
//! There is no question for a queue's arguments. But declaring an existing queue with other arguments
//! is refused with 406, and the refusal names the first argument that differs and its true value
//! (RabbitMQ's "inequivalent arg"); so asking again and again, each time with what was learnt, ends
//! with all of them. Nothing is changed by that. What a policy sets stays unseen.

use lapin::options::QueueDeclareOptions;

use super::super::{BrokerError, Connection, Kind, topology};
use crate::message::{Table, Value};

/// More arguments than RabbitMQ knows.
const ROUNDS_MAX: usize = 32;
/// Compared last of all, and refused for a queue that has to be made. So no question can make one, not
/// even if the queue is deleted amid them.
const NEVER: (&str, &str) = ("x-queue-leader-locator", "ackonce-only-looks");

/// The queue's arguments; `Ok(Err(why))` if the broker will not tell.
pub(in super::super) async fn arguments(
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
