//! What is served where.
//!
//! `/healthz`, `/readyz` and `/metrics` are for machines that come under any name: probes, Prometheus. The status
//! page and what it asks for is for browsers, and checked as such (`access`).

use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
        REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
    http::request::Parts,
};
use serde_json::json;
use tokio::time::Instant;

use super::{Watched, api, metrics, page, refusal::Refusal, state};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// The answer to one request.
pub(super) async fn answer<B>(watched: &Watched, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    match head.uri.path() {
        "/healthz" | "/readyz" | "/metrics" if !is_read(&head) => only_read(),
        "/healthz" => verdict("ok", state::unhealthy(&watched.workers, Instant::now())),
        "/readyz" => verdict("ready", state::unready(&watched.workers, Instant::now())),
        "/metrics" => {
            let figures = watched.figures.fresh().await;
            match metrics::text(watched, figures.as_deref()) {
                Ok(text) => response(StatusCode::OK, metrics::CONTENT_TYPE, text),
                // Only a formatter fails so, and a text's never does.
                Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            }
        }
        _ => for_browsers(watched, &head, body).await,
    }
}

async fn for_browsers<B>(watched: &Watched, head: &Parts, body: B) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = head.uri.path();
    let mut answer = if let Err(refusal) = watched.access.check_host(head) {
        response(refusal.status, TEXT, format!("{}\n", printable(&refusal.sentence)))
    } else if path.starts_with("/api/") {
        match api::answer(watched, head, body).await {
            Ok(json) => response(StatusCode::OK, JSON, format!("{json}\n")),
            Err(refusal) => refused(&refusal, path),
        }
    } else if let Some(asset) = page::asset(path) {
        if is_read(head) { response(StatusCode::OK, asset.kind, asset.text) } else { only_read() }
    } else {
        let text = "here are the status page at /, and /healthz, /readyz and /metrics\n";
        response(StatusCode::NOT_FOUND, TEXT, text)
    };
    guard(answer.headers_mut());
    answer
}

fn refused(refusal: &Refusal, path: &str) -> Response<Full<Bytes>> {
    let error = json!({ "error": refusal.sentence });
    let mut answer = response(refusal.status, JSON, format!("{error}\n"));
    match refusal.status {
        StatusCode::UNAUTHORIZED => {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            let allowed = if path.ends_with("/replay") { "POST" } else { "GET, HEAD" };
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        _ => {}
    }
    answer
}

/// What a browser is told about each answer that a page of ours, or of somebody else's, may get.
fn guard(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::CONTENT_SECURITY_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), SAME_ORIGIN);
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), SAME_ORIGIN);
}

fn is_read(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
}

fn only_read() -> Response<Full<Bytes>> {
    let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
    refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refusal
}

/// All is well, or a line for each reason why not.
fn verdict(well: &str, reasons: Vec<String>) -> Response<Full<Bytes>> {
    if reasons.is_empty() {
        return response(StatusCode::OK, TEXT, format!("{well}\n"));
    }
    let text: String = reasons.into_iter().map(|reason| printable(&reason) + "\n").collect();
    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
}

/// On one line.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn response(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
