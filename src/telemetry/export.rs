//! How spans leave the process: in batches, by a thread of their own, over OTLP. The worker never waits for it: what does
//! not fit into the thread's queue is lost.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::WithHttpConfig;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use super::settings::Settings;
use crate::{handler::http, worker::outage::Outage};

/// Of an answer, which nobody reads, no more is kept.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Must be called within a runtime, which sends the requests.
///
/// # Errors
///
/// What is wrong with the variables, in one sentence.
pub(super) fn provider(settings: &Settings) -> Result<SdkTracerProvider, String> {
    let wrong = |why: &dyn fmt::Display| format!("{}: {why}", settings.variable);
    let client = http::client_for(&settings.endpoint, settings.timeout).map_err(|why| wrong(&why))?;
    let failure = Failure::default();
    let posts =
        Posts { client, runtime: Handle::current(), timeout: settings.timeout, failure: failure.clone() };
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().with_http_client(posts).build();
    // Its words may quote the endpoint, which may hold a password.
    let exporter = exporter.map_err(|_| {
        wrong(&"it is no URL that can be posted to, or another OTEL_EXPORTER_OTLP_ variable is wrong")
    })?;
    let exporter = Exporter {
        otlp: exporter,
        failure,
        outage: Mutex::new(Outage::new(Duration::from_secs(1), Duration::from_secs(60))),
    };
    let mut resource =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !settings.is_named {
        resource = resource.with_service_name("ackonce");
    }
    let processor = BatchSpanProcessor::builder(exporter).build();
    Ok(SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource.build()).build())
}

/// Why the last request failed, which the exporter's own error does not say.
type Failure = Arc<Mutex<Option<String>>>;

/// Says that spans are lost: once, and then every minute.
struct Exporter {
    otlp: opentelemetry_otlp::SpanExporter,
    failure: Failure,
    outage: Mutex<Outage>,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.otlp.export(batch).await;
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        match &sent {
            Ok(()) => {
                if let Some(lasted) = outage.heal(Instant::now()) {
                    info!(seconds = lasted.as_secs(), "spans are sent again");
                }
            }
            Err(error) => {
                let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                let why = failure.unwrap_or_else(|| error.to_string());
                if outage.fail(Instant::now(), &why).mention {
                    warn!(spans, "spans cannot be sent, and are lost: {why}");
                }
            }
        }
        drop(outage);
        sent
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(limit)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

/// Sends requests with the HTTP client that is there already, on the process's own runtime.
#[derive(Clone, Debug)]
struct Posts {
    client: reqwest::Client,
    runtime: Handle,
    timeout: Duration,
    failure: Failure,
}

impl HttpClient for Posts {
    fn send_bytes<'life, 'future>(
        &'life self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        let Self { client, runtime, timeout: limit, failure } = self.clone();
        Box::pin(async move {
            let sent = runtime.spawn(async move { timeout(limit, send(&client, request)).await }).await?;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {limit:?}").into()));
            let why = sent.as_ref().err().map(ToString::to_string);
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
            sent
        })
    }
}

async fn send(client: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    // Without the URL, which may hold a password.
    let failed = |error: reqwest::Error| http::causes(&error);
    let mut answer = client.execute(request.try_into()?).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(failed)? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    Ok(response.body(body.into())?)
}
