//! What is served where.

use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tokio::time::Instant;

use super::{Watched, metrics, state};

const TEXT: &str = "text/plain; charset=utf-8";

pub(super) async fn answer(watched: &Watched, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
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
        _ => response(StatusCode::NOT_FOUND, TEXT, "here are /healthz, /readyz and /metrics\n".to_owned()),
    }
}

/// All is well, or a line for each reason why not.
fn verdict(well: &str, reasons: Vec<String>) -> Response<Full<Bytes>> {
    if reasons.is_empty() {
        return response(StatusCode::OK, TEXT, format!("{well}\n"));
    }
    let text = reasons.into_iter().map(|reason| reason.replace(char::is_control, " ") + "\n").collect();
    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
