//! What the status page asks for, as JSON. Bodies of messages are never in it.

use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, StatusCode,
    body::{Body, Bytes},
    header::CONTENT_TYPE,
    http::request::Parts,
};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use crate::ledger::{Row, State, Stats, meaning::meaning, unix_millis};

use super::{
    Watched, WatchedWorker,
    access::{Standing, TOKEN_MISSING},
    letters::{Place, Which},
    refusal::Refusal,
    state,
};

/// A key has at most 1024 bytes, and JSON writes some of them as six.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// The answer to one request below `/api/`, or why there is none.
pub(super) async fn answer<B>(watched: &Watched, head: &Parts, body: B) -> Result<Json, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    watched.access.check_origin(head)?;
    let path = head.uri.path();
    if path == "/api/dead/replay" {
        if head.method != Method::POST {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only POST"));
        }
        watched.access.check_action(head)?;
        let which: Which = read(head, body).await?;
        let place = worker(watched, &which.queue)?.place();
        return watched.letters.replay(place, which).await;
    }
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"));
    }
    let standing = watched.access.check_token(head)?;
    let query = Query::of(head);
    match path {
        "/api/status" => Ok(status(watched, standing).await),
        "/api/history" => {
            let worker = query.text("queue").map(|queue| index(watched, &queue)).transpose()?;
            Ok(watched.history.json(worker))
        }
        "/api/failures" => {
            let rows = watched.failures.fresh().await;
            let rows = rows.ok_or_else(|| {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the ledger could not be read yet")
            })?;
            Ok(json!({ "rows": rows.iter().map(told).collect::<Vec<_>>() }))
        }
        "/api/message" => message(watched, &query).await,
        "/api/dead" => {
            let queue = query.text("queue").ok_or_else(|| Refusal::bad("queue: name a queue"))?;
            watched.letters.list(worker(watched, &queue)?.place()).await
        }
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing here")),
    }
}

async fn status(watched: &Watched, standing: Standing) -> Json {
    let figures = watched.figures.fresh().await;
    let (now, now_ms) = (Instant::now(), unix_millis());
    let may_act = standing == Standing::Holder;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now_ms": now_ms,
        "workers": watched.workers.iter().map(|worker| shown(worker, now)).collect::<Vec<_>>(),
        "ledger": figures.as_deref().map(ledger),
        "may_act": may_act,
        "has_token": watched.access.has_token(),
        "why_not": match (may_act, watched.access.has_token()) {
            (true, _) => None,
            (false, true) => Some("enter the token to allow this"),
            (false, false) => Some(TOKEN_MISSING),
        },
    })
}

fn shown(worker: &WatchedWorker, now: Instant) -> Json {
    let shown = worker.signs.shown();
    let counts = *worker.counts.borrow();
    let (well, said) = state::words(worker, now);
    json!({
        "queue": &*worker.queue,
        "scope": &*worker.scope,
        "well": well,
        "said": said,
        "in_flight": shown.in_flight,
        "held": shown.held,
        "counts": {
            "handled": counts.handled,
            "duplicates": counts.duplicates,
            "retried": counts.retried,
            "dead_lettered": counts.dead_lettered + counts.rejected,
        },
    })
}

fn ledger(stats: &Stats) -> Json {
    let sum = |state: State| -> u64 { stats.scopes.iter().map(|scope| scope.rows(state)).sum() };
    let rows: serde_json::Map<_, _> =
        State::ALL.into_iter().map(|state| (state.as_str().to_owned(), sum(state).into())).collect();
    json!({ "rows": rows, "bytes": stats.bytes })
}

/// A row as it is, and what it means.
fn told(row: &Row) -> Json {
    let mut json = json!(row);
    json["meaning"] = meaning(row, unix_millis()).into();
    json
}

async fn message(watched: &Watched, query: &Query) -> Result<Json, Refusal> {
    let key = query.text("key").ok_or_else(|| Refusal::bad("key: name a message by its key"))?;
    let scope =
        query.text("queue").map(|queue| worker(watched, &queue)).transpose()?.map(|worker| &*worker.scope);
    let rows = watched.ledger.show(&key, scope).await?;
    Ok(json!({ "key": key, "rows": rows.iter().map(told).collect::<Vec<_>>() }))
}

fn worker<'a>(watched: &'a Watched, queue: &str) -> Result<&'a WatchedWorker, Refusal> {
    index(watched, queue).map(|index| &watched.workers[index])
}

fn index(watched: &Watched, queue: &str) -> Result<usize, Refusal> {
    let index = watched.workers.iter().position(|worker| *worker.queue == *queue);
    index
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("no worker here has the queue '{queue}'")))
}

impl WatchedWorker {
    fn place(&self) -> Place {
        Place { queue: self.queue.clone(), scope: self.scope.clone() }
    }
}

/// What stands behind the path.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(head: &Parts) -> Self {
        let text = head.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// `None` if it is absent or empty.
    fn text(&self, name: &str) -> Option<String> {
        let given = self.0.iter().find(|(given, _)| given == name);
        given.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    }
}

/// The body, which must be JSON and say that it is: a form of another site's page cannot.
async fn read<B, T>(head: &Parts, body: B) -> Result<T, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    T: serde::de::DeserializeOwned,
{
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected application/json"));
    }
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let sentence = format!("the request is larger than {BODY_BYTES_MAX} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, sentence)
        } else {
            Refusal::bad("the request did not come whole")
        }
    })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| Refusal::bad(format!("the request is not right: {error}")))
}
