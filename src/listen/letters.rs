//! Dead letters for the status page: looked at and sent back one at a time, by the desk that `ackonce dead` works
//! at, and only when somebody asks for it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::{sync::Semaphore, time::timeout};
use tracing::info;

use crate::{
    broker::{Endpoint, Kind, topology},
    ledger::Inspect,
    worker::desk::{DeadLetter, Desk, Fresh, RowWas, Sent},
};

use super::refusal::Refusal;

/// So many letters are listed, the oldest.
const LISTED_MAX: u64 = 100;
/// So many are searched for the one that is to be sent back.
const SEARCHED_MAX: u64 = 10_000;
/// For a letter's copy to be confirmed.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever asks waits so long: less than a connection may take.
const PATIENCE: Duration = Duration::from_secs(12);
/// Then it is given up. The broker takes back what was not sent.
const WORK_LIMIT: Duration = Duration::from_secs(120);
/// Of each text that a letter carries, so much is shown.
const TEXT_CHARS_MAX: usize = 1024;

/// A worker's queues and rows.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) queue: Arc<str>,
    pub(super) scope: Arc<str>,
}

/// Which letter, as it was listed; which queue, beside it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    pub(super) queue: String,
    key: Option<String>,
    message_id: Option<String>,
    dead_ms: Option<i64>,
}

impl Which {
    fn is(&self, letter: &DeadLetter) -> bool {
        letter.notes.key == self.key
            && letter.message_id() == self.message_id.as_deref()
            && letter.notes.dead_ms == self.dead_ms
    }
}

/// See the module.
pub(super) struct Letters {
    endpoints: Vec<Endpoint>,
    ledger: Arc<dyn Inspect>,
    /// One look at a time: each takes letters out of their queue for a moment.
    turn: Arc<Semaphore>,
}

impl Letters {
    pub(super) fn new(endpoints: Vec<Endpoint>, ledger: Arc<dyn Inspect>) -> Self {
        Self { endpoints, ledger, turn: Arc::new(Semaphore::new(1)) }
    }

    /// The oldest letters of a queue, without their bodies.
    pub(super) async fn list(&self, place: Place) -> Result<Json, Refusal> {
        let endpoints = self.endpoints.clone();
        self.alone("look again in a moment", list(endpoints, place)).await
    }

    /// Sends one letter back to its work queue, as a fresh run.
    pub(super) async fn replay(&self, place: Place, which: Which) -> Result<Json, Refusal> {
        let (endpoints, ledger) = (self.endpoints.clone(), self.ledger.clone());
        self.alone(
            "look at the dead letters again to see whether it is sent",
            replay(endpoints, ledger, place, which),
        )
        .await
    }

    /// In a task: it comes to its end, and gives back what it holds, whether or not somebody waits for it.
    async fn alone(
        &self,
        then: &str,
        work: impl Future<Output = Result<Json, Refusal>> + Send + 'static,
    ) -> Result<Json, Refusal> {
        let Ok(turn) = self.turn.clone().try_acquire_owned() else {
            let sentence = "dead letters are being looked at already: try again in a moment";
            return Err(Refusal::new(StatusCode::CONFLICT, sentence));
        };
        let task = tokio::spawn(async move {
            let done = timeout(WORK_LIMIT, work).await;
            drop(turn);
            done
        });
        let late = || Refusal::new(StatusCode::GATEWAY_TIMEOUT, format!("the broker takes its time: {then}"));
        match timeout(PATIENCE, task).await {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(late()),
        }
    }
}

/// What a desk warns of.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn add(&self, warning: impl Into<String>) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(warning.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

async fn open(endpoints: Vec<Endpoint>, queue: &str) -> Result<(Desk, Warnings), Refusal> {
    let warnings = Warnings::default();
    let warn = warnings.clone();
    let dead_queue = topology::dead_letter_queue(queue);
    let opened = Desk::open(endpoints, queue, &dead_queue, move |warning| warn.add(warning)).await;
    let desk = opened.map_err(|error| match error.kind() {
        Kind::NotFound => {
            Refusal::new(StatusCode::NOT_FOUND, format!("{error}: nothing was dead-lettered there yet"))
        }
        _ => Refusal::from(error),
    })?;
    Ok((desk, warnings))
}

async fn list(endpoints: Vec<Endpoint>, place: Place) -> Result<Json, Refusal> {
    let (mut desk, warnings) = open(endpoints, &place.queue).await?;
    let total = desk.total();
    let mut listed = Vec::new();
    let read = loop {
        match desk.next(LISTED_MAX.saturating_sub(listed.len() as u64)).await {
            Ok(letters) if letters.is_empty() => break Ok(()),
            Ok(letters) => {
                listed.extend(letters.iter().map(|letter| shortened(letter.json())));
                desk.keep(letters).await;
            }
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = desk.close().await {
        warnings.add(error.to_string());
    }
    read?;
    Ok(json!({ "queue": &*place.queue, "total": total, "letters": listed, "warnings": warnings.all() }))
}

/// What was forged may be long. A key that was shortened names no letter.
fn shortened(mut letter: Json) -> Json {
    for value in letter.as_object_mut().into_iter().flat_map(|letter| letter.values_mut()) {
        if let Some((end, _)) = value.as_str().and_then(|text| text.char_indices().nth(TEXT_CHARS_MAX)) {
            *value = json!(format!("{}…", &value.as_str().unwrap_or_default()[..end]));
        }
    }
    letter
}

async fn replay(
    endpoints: Vec<Endpoint>,
    ledger: Arc<dyn Inspect>,
    place: Place,
    which: Which,
) -> Result<Json, Refusal> {
    let (mut desk, warnings) = open(endpoints, &place.queue).await?;
    let sent = find_and_send(&mut desk, &*ledger, &place, &which).await;
    if let Err(error) = desk.close().await {
        warnings.add(error.to_string());
    }
    let sent = sent?;
    let key = which.key.as_deref().unwrap_or_default();
    info!(
        queue = &*place.queue,
        key,
        row = sent.as_str(),
        "a dead letter was sent back through the status page"
    );
    Ok(json!({ "row": sent.as_str(), "said": told(sent), "warnings": warnings.all() }))
}

async fn find_and_send(
    desk: &mut Desk,
    ledger: &dyn Inspect,
    place: &Place,
    which: &Which,
) -> Result<RowWas, Refusal> {
    let letter = find(desk, which).await?;
    let fresh =
        Fresh { ledger: Some(ledger), scope: &place.scope, even_done: false, timeout: CONFIRM_TIMEOUT };
    let mut sending = desk.send_back(vec![letter], fresh).await?;
    let Some(Sent { letter, row, result }) = sending.next().await else {
        return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "nothing was sent"));
    };
    match result {
        Ok(()) => {
            desk.take([letter]);
            Ok(row.unwrap_or(RowWas::None))
        }
        Err(error) => {
            desk.keep(vec![letter]).await;
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("the letter stays: {error}")))
        }
    }
}

/// The first that is meant; the others are kept.
async fn find(desk: &mut Desk, which: &Which) -> Result<DeadLetter, Refusal> {
    let mut searched = 0;
    while searched < SEARCHED_MAX {
        let mut letters = desk.next(SEARCHED_MAX - searched).await?;
        if letters.is_empty() {
            let gone = "there is no such letter any more: look again";
            return Err(Refusal::new(StatusCode::NOT_FOUND, gone));
        }
        searched += letters.len() as u64;
        let found = letters.iter().position(|letter| which.is(letter)).map(|at| letters.remove(at));
        desk.keep(letters).await;
        if let Some(letter) = found {
            return Ok(letter);
        }
    }
    let sentence = format!("it is not among the first {SEARCHED_MAX} letters: use ackonce dead replay --key");
    Err(Refusal::new(StatusCode::NOT_FOUND, sentence))
}

fn told(row: RowWas) -> &'static str {
    match row {
        RowWas::Reset | RowWas::None => "sent back: it runs again from attempt 1",
        RowWas::Done => "sent back: it is done in the ledger, and so comes as a duplicate",
        RowWas::InFlight => "sent back: another copy of it is being run, and decides what becomes of it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forged_is_shortened_between_characters() {
        let letter =
            shortened(json!({ "key": "a", "error": "é".repeat(5000), "dead_ms": 7, "reason": null }));
        assert_eq!(letter["error"], json!(format!("{}…", "é".repeat(1024))));
        assert_eq!(letter["key"], json!("a"));
        assert_eq!(letter["dead_ms"], json!(7));
    }
}
