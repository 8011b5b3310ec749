//! The loop that keeps the window full and settles what comes back.

use std::{collections::BTreeMap, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Template,
    input::{Input, Item},
    report::{Reason, Report},
};
use crate::{
    broker::{Outgoing, PublishError, Publisher},
    cli::signals::Signals,
};

/// A message whose connection was lost is sent again so often, under the same id.
const RESEND_MAX: u32 = 3;
/// Between attempts to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
/// For closing the connection at the end.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);
/// After a signal, for the confirms of what is under way.
const LAST_CONFIRMS: Duration = Duration::from_secs(1);
/// For finding out what comes next in the input, once nothing more is sent.
const NEXT_LINE: Duration = Duration::from_millis(200);

/// One item's way to its end.
type Sent<'a> = BoxFuture<'a, (u64, Result<(), PublishError>)>;

/// What was handed over and not yet told, in order, with what became of it.
type Unreported = BTreeMap<u64, (Item, Option<Result<(), PublishError>>)>;

/// Publishes everything, at most `window` at once, each within `limit`.
pub(super) async fn send_all(
    publisher: &Publisher,
    template: &Template,
    mut input: Input,
    window: usize,
    limit: Duration,
    mut report: Report,
) -> Report {
    let mut signals = Signals::new();
    let mut under_way: FuturesUnordered<Sent<'_>> = FuturesUnordered::new();
    let mut unreported = Unreported::new();
    let mut number = 0;
    let mut more = true;
    let mut give_up_at: Option<Instant> = None;
    while more || !under_way.is_empty() {
        tokio::select! {
            biased;
            name = signals.next() => {
                report.stopped(format!("stopped by {name}"));
                // A second signal does not wait.
                let wait = if give_up_at.is_some() { Duration::ZERO } else { LAST_CONFIRMS };
                give_up_at = Some(Instant::now() + wait);
                more = false;
            }
            () = sleep_until(give_up_at.unwrap_or_else(Instant::now)), if give_up_at.is_some() => break,
            Some((number, result)) = under_way.next() => {
                if let Some(why) = result.as_ref().err().and_then(stops_all) {
                    report.stopped(why);
                    more = false;
                }
                if let Some((_, told)) = unreported.get_mut(&number) {
                    *told = Some(result);
                }
                report_in_order(&mut unreported, &mut report);
                more &= !report.is_broken();
            }
            item = input.next(), if more && unreported.len() < window => match item {
                Some(Ok(item)) => {
                    number += 1;
                    let outgoing = template.outgoing(&item.id, item.body.clone());
                    let deadline = Instant::now() + limit;
                    let sending = send(publisher, outgoing, deadline).map(move |result| (number, result));
                    under_way.push(sending.boxed());
                    unreported.insert(number, (item, None));
                }
                Some(Err(error)) => {
                    report.stopped(error);
                    more = false;
                }
                None => more = false,
            },
        }
    }
    for (item, result) in unreported.into_values() {
        match result {
            Some(result) => report.settled(&item, result),
            None => report.unconfirmed(&item, &Reason::Interrupted),
        }
    }
    tell_the_rest(&mut input, &mut report).await;
    report
}

/// Ids come out in the order of the input: whatever waits for an older one counts against the window.
fn report_in_order(unreported: &mut Unreported, report: &mut Report) {
    while let Some(first) = unreported.first_entry()
        && first.get().1.is_some()
    {
        if let (item, Some(result)) = first.remove() {
            report.settled(&item, result);
        }
    }
}

/// One message, sent again after a loss and while there is no connection, until it is settled.
async fn send(publisher: &Publisher, outgoing: Outgoing, deadline: Instant) -> Result<(), PublishError> {
    let mut resends = 0;
    loop {
        let result = match publisher.send(outgoing.clone(), deadline).await {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match result {
            Err(PublishError::Lost(_)) if resends < RESEND_MAX && Instant::now() < deadline => resends += 1,
            Err(PublishError::NotConnected(error))
                if !error.is_permanent() && Instant::now() + RECONNECT_PAUSE < deadline =>
            {
                sleep(RECONNECT_PAUSE).await;
            }
            settled => return settled,
        }
    }
}

/// What would befall every further message as well.
fn stops_all(error: &PublishError) -> Option<&'static str> {
    match error {
        PublishError::Blocked(_) | PublishError::Timeout => Some("the broker does not confirm"),
        PublishError::NotConnected(_) => Some("the connection does not come back"),
        PublishError::NotFound(_) | PublishError::Denied(_) | PublishError::Refused(_) => {
            Some("the broker refuses such messages")
        }
        PublishError::Unroutable(_)
        | PublishError::Nacked
        | PublishError::TooLarge(_)
        | PublishError::Lost(_) => None,
    }
}

/// Names what was not even sent. In order that is one line; shuffled, each message.
async fn tell_the_rest(input: &mut Input, report: &mut Report) {
    // A pipe that stays silent holds nothing that could be named.
    while let Ok(Some(Ok(item))) = timeout(NEXT_LINE, input.next()).await {
        if !input.is_shuffled() {
            return report.not_sent_from(&item);
        }
        report.unconfirmed(&item, &Reason::NotSent);
    }
}
