//! One `[[worker]]` table becomes one validated worker.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use super::{
    handler::{self, HandlerConfig},
    retry::{self, longest_delay},
    section::{Given, Section},
};
use crate::{
    broker::{Declare, topology::QueueType},
    key::KeySpec,
    worker::policy::{DeadLetter, Policy, Retry},
};

/// One worker: a queue, its rules, and the handler for its messages.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub policy: Policy,
    pub handler: HandlerConfig,
    pub declare: Declare,
    pub queue_type: QueueType,
    /// With `dead_letter = "reject"`: the exchange that a policy sets for rejected messages, which
    /// AMQP cannot see. Without it, the queue's own arguments must name one.
    pub dead_letter_exchange: Option<String>,
    /// The longest time a message can be under way through all its attempts; shorter than the retention.
    pub horizon: Duration,
}

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const KILL_GRACE_DEFAULT: Duration = Duration::from_secs(5);
const CONCURRENCY_DEFAULT: u16 = 8;
const PREFETCH_DEFAULT: u16 = 64;
/// AMQP's short strings.
const NAME_BYTES_MAX: usize = 255;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What was read of one worker: all of it, and what its neighbours are checked against.
#[derive(Debug)]
pub(super) struct Read {
    /// `None` if a part is missing or wrong; then there is a problem that says so.
    pub config: Option<WorkerConfig>,
    pub queue: Option<Given<String>>,
    /// The longest time a message can be under way through all its attempts.
    pub horizon: Duration,
}

pub(super) fn read(worker: &mut Section, retry_section: &mut Section) -> Read {
    if !worker.has("queue") {
        worker.problem_here("no queue is named: give queue = \"NAME\", or --queue NAME");
    }
    let queue = worker.text("queue", "expected a queue's name");
    let scope = worker.text("scope", "expected a text");
    let key = key(worker);
    let prefetch_given = worker.has("prefetch");
    let (mut concurrency, mut prefetch) = concurrency_and_prefetch(worker);
    let times = Duration::from_millis(1)..=YEAR;
    let timeout = worker.time("timeout", times.clone()).map_or(TIMEOUT_DEFAULT, |time| time.value);
    let kill_grace = worker.time("kill_grace", times).map_or(KILL_GRACE_DEFAULT, |time| time.value);
    let retry = retry::read(retry_section);
    let declare = word_or_default(worker, "declare");
    let queue_type = word_or_default(worker, "queue_type");
    let dead_letter = word_or_default(worker, "dead_letter");
    let dead_letter_exchange = dead_letter_exchange(worker, dead_letter);
    let on_missing_key = word_or_default(worker, "on_missing_key");
    let on_mismatch = word_or_default(worker, "on_mismatch");
    let on_interrupted = word_or_default(worker, "on_interrupted");
    let handler = handler::read(worker, timeout, kill_grace, concurrency);
    if let Some(HandlerConfig::Pipe(pipe)) = &handler {
        // A slot is a message; what is claimed goes to a child at once.
        prefetch = if prefetch_given { prefetch } else { prefetch.max(pipe.slots()) };
        concurrency = pipe.slots().min(prefetch);
    }
    if let Some(queue) = &queue {
        check_queue(worker, queue, declare, dead_letter, &retry);
    }
    if let Some(scope) = scope.as_ref().filter(|scope| !(1..=NAME_BYTES_MAX).contains(&scope.value.len())) {
        let bytes = scope.value.len();
        worker.problem(format!("{}: it has {bytes} bytes: expected 1 to {NAME_BYTES_MAX}", scope.said));
    }
    let horizon = retry::horizon(&retry, timeout);
    let config = queue.as_ref().zip(key).zip(handler).map(|((queue, key), handler)| {
        let queue: Arc<str> = queue.value.as_str().into();
        let scope = scope.map_or_else(|| queue.clone(), |scope| scope.value.into());
        let concurrency = concurrency.into();
        let policy = Policy {
            queue,
            scope,
            key,
            on_missing_key,
            on_mismatch,
            on_interrupted,
            concurrency,
            prefetch,
            retry,
            dead_letter,
        };
        WorkerConfig { policy, handler, declare, queue_type, dead_letter_exchange, horizon }
    });
    Read { config, queue, horizon }
}

fn dead_letter_exchange(worker: &mut Section, dead_letter: DeadLetter) -> Option<String> {
    let given = worker.text("dead_letter_exchange", "expected an exchange's name")?;
    let said = &given.said;
    let bytes = given.value.len();
    if !(1..=NAME_BYTES_MAX).contains(&bytes) {
        worker.problem(format!("{said}: it has {bytes} bytes: expected 1 to {NAME_BYTES_MAX}"));
    } else if dead_letter == DeadLetter::Publish {
        worker.problem(format!("{said}: it means something only with dead_letter = \"reject\": add that"));
    }
    Some(given.value)
}

fn word_or_default<T: Default + for<'de> Deserialize<'de>>(worker: &mut Section, key: &'static str) -> T {
    worker.word(key).map(|word| word.value).unwrap_or_default()
}

fn key(worker: &mut Section) -> Option<KeySpec> {
    const EXPECTED: &str = "expected a text such as \"message-id\" or \"header:NAME\", or a list of these";
    if !worker.has("key") {
        worker.know("key");
        return Some(KeySpec::default());
    }
    let given = worker.texts("key", true, EXPECTED)?;
    match KeySpec::parse(given.value.iter().map(String::as_str)) {
        Ok(key) => Some(key),
        Err(error) => {
            worker.problem(format!("{}: {error}", given.said));
            None
        }
    }
}

/// If only one of the two is given, the other's default follows it.
fn concurrency_and_prefetch(worker: &mut Section) -> (u16, u16) {
    let range = 1..=u32::from(u16::MAX);
    let concurrency = worker.whole("concurrency", range.clone(), "expected a whole number from 1 to 65535");
    let prefetch = worker.whole(
        "prefetch",
        range,
        "expected a whole number from 1 to 65535 (in AMQP, 0 would mean unlimited)",
    );
    // Cannot fail: the range ends at `u16::MAX`.
    let small = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    match (concurrency, prefetch) {
        (None, None) => (CONCURRENCY_DEFAULT, PREFETCH_DEFAULT),
        (Some(concurrency), None) => {
            let concurrency = small(concurrency.value);
            (concurrency, PREFETCH_DEFAULT.max(concurrency))
        }
        (None, Some(prefetch)) => {
            let prefetch = small(prefetch.value);
            (CONCURRENCY_DEFAULT.min(prefetch), prefetch)
        }
        (Some(concurrency), Some(prefetch)) => {
            if prefetch.value < concurrency.value {
                worker.problem(format!(
                    "{}: it is less than the concurrency, {}, so handlers would wait for messages: raise it",
                    prefetch.said, concurrency.value
                ));
            }
            (small(concurrency.value), small(prefetch.value))
        }
    }
}

/// AMQP's limits on the queue's name, and on the names made from it.
fn check_queue(
    worker: &mut Section,
    queue: &Given<String>,
    declare: Declare,
    dead_letter: DeadLetter,
    retry: &Retry,
) {
    let (name, said) = (&queue.value, &queue.said);
    let own_dead_queue = dead_letter == DeadLetter::Publish || declare == Declare::Create;
    let delay_ms = longest_delay(retry).as_millis();
    let suffixes = [
        Some(".dead".to_owned()).filter(|_| own_dead_queue),
        Some(format!(".retry.{delay_ms}")).filter(|_| retry.max_attempts > 1),
    ];
    let longest = suffixes.into_iter().flatten().max_by_key(String::len).unwrap_or_default();
    let bytes = name.len();
    if name.is_empty() {
        worker.problem(format!("{said}: a queue's name has 1 to {NAME_BYTES_MAX} bytes: give one"));
    } else if bytes > NAME_BYTES_MAX {
        worker.problem(format!("{said}: it has {bytes} bytes, AMQP allows {NAME_BYTES_MAX}: shorten it"));
    } else if bytes + longest.len() > NAME_BYTES_MAX {
        worker.problem(format!(
            "{said}: it has {bytes} bytes, and with '{longest}' at its end more than the {NAME_BYTES_MAX} \
             that AMQP allows: shorten it to {}",
            NAME_BYTES_MAX - longest.len()
        ));
    }
    if name.contains('\0') {
        worker.problem(format!("{said}: a NUL character stands in the name: take it out"));
    }
    if name.starts_with("amq.") && own_dead_queue {
        worker.problem(format!(
            "{said}: names that begin with 'amq.' are the broker's own, neither this queue nor \
             '{name}.dead' can be created: set declare = \"passive\" and dead_letter = \"reject\""
        ));
    }
}
