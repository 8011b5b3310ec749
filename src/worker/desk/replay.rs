//! Letters go back to the work queue, as fresh runs.
//!
//! The ledger's rows are reset, in one transaction; then each letter is published to the work queue;
//! then, once the broker has confirmed it, it is removed. So an end at any point loses nothing, and
//! leaves at worst one copy here and one there, which the ledger tells apart by their key.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture, stream::FuturesUnordered};

use super::{DeadLetter, Desk};
use crate::{
    broker::PublishError,
    ledger::{Change, Changed, Inspect, LedgerError, unix_millis},
    worker::letter,
};

/// How letters become fresh runs.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    /// Without one, rows stay as they are: a fresh delivery claims a dead row in any case.
    pub ledger: Option<&'a dyn Inspect>,
    /// Of the keys, in the ledger.
    pub scope: &'a str,
    /// Let what is done already run again.
    pub even_done: bool,
    /// For each letter to be confirmed by the work queue.
    pub timeout: Duration,
}

/// What a letter's row was when its letter was sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWas {
    /// It runs from attempt 1.
    Reset,
    /// A live worker holds it; it stays.
    InFlight,
    /// It stays so: the letter comes as a duplicate.
    Done,
    None,
}

impl RowWas {
    pub fn as_str(self) -> &'static str {
        match self {
            RowWas::Reset => "reset",
            RowWas::InFlight => "in-flight",
            RowWas::Done => "done",
            RowWas::None => "none",
        }
    }
}

impl From<Changed> for RowWas {
    fn from(changed: Changed) -> Self {
        match changed {
            Changed { changed: 1.., .. } => RowWas::Reset,
            Changed { in_flight: 1.., .. } => RowWas::InFlight,
            Changed { done: 1.., .. } => RowWas::Done,
            _ => RowWas::None,
        }
    }
}

/// A letter whose copy is confirmed, and so is to be taken, or is not, and so is to be kept.
#[derive(Debug)]
pub struct Sent {
    pub letter: DeadLetter,
    /// `None` without a ledger.
    pub row: Option<RowWas>,
    pub result: Result<(), PublishError>,
}

/// Letters on their way. Dropped, each of them may be in the work queue as well as here.
pub type Sending = FuturesUnordered<BoxFuture<'static, Sent>>;

impl Desk {
    /// Resets the letters' rows, and then publishes the letters to the work queue.
    ///
    /// # Errors
    ///
    /// The rows cannot be reset: nothing was sent, and the letters are kept.
    pub async fn send_back(
        &mut self,
        letters: Vec<DeadLetter>,
        fresh: Fresh<'_>,
    ) -> Result<Sending, LedgerError> {
        let rows = match reset_rows(&letters, fresh).await {
            Ok(rows) => rows,
            Err(error) => {
                self.keep(letters).await;
                return Err(error);
            }
        };
        let one = |(letter, row): (DeadLetter, Option<RowWas>)| {
            let (publisher, limit) = (self.publisher.clone(), fresh.timeout);
            let copy = letter::replay(&letter.message, &self.queue);
            async move {
                let result = publisher.publish(copy, limit).await;
                Sent { letter, row, result }
            }
            .boxed()
        };
        Ok(letters.into_iter().zip(rows).map(one).collect())
    }
}

/// Lets the letters' rows run from attempt 1, before their copies can arrive.
async fn reset_rows(letters: &[DeadLetter], fresh: Fresh<'_>) -> Result<Vec<Option<RowWas>>, LedgerError> {
    let Some(ledger) = fresh.ledger else { return Ok(vec![None; letters.len()]) };
    let keys = letters.iter().map(|letter| letter.notes.key.clone().unwrap_or_default()).collect();
    let change = Change::Retry { even_done: fresh.even_done };
    let changed = ledger.change(keys, Some(fresh.scope), change, unix_millis()).await?;
    Ok(changed.into_iter().map(|changed| Some(RowWas::from(changed))).collect())
}

impl std::fmt::Debug for Fresh<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fresh").field("scope", &self.scope).finish_non_exhaustive()
    }
}
