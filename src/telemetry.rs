//! Spans of handlers' runs for OpenTelemetry, sent to the OTLP endpoint that its standard variables name.
//!
//! - `settings`: what the variables say;
//! - `span`: one run as a span, by the conventions for messaging;
//! - `traced`: a handler whose runs are spans;
//! - `export`: how spans leave the process.
//!
//! All but the first are there with the cargo feature `otel` only. Without it, and without an endpoint, a handler is what
//! it was: nothing is added to a run.

#[cfg(feature = "otel")]
mod export;
mod settings;
#[cfg(feature = "otel")]
mod span;
#[cfg(feature = "otel")]
mod traced;

use std::time::Duration;

use tracing::warn;

use crate::worker::Handling;
use settings::Settings;

/// Spans, or none.
#[derive(Debug)]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    spans: Option<span::Spans>,
}

impl Telemetry {
    /// As this process's environment says. What is wrong there is warned of, and then no spans are made: they are
    /// never a reason not to work.
    pub fn from_env() -> Self {
        let settings = Settings::read(|name| std::env::var(name).ok());
        match settings.map(|settings| settings.map(Self::begin).transpose()) {
            Ok(Ok(begun)) => begun.unwrap_or_else(Self::none),
            Ok(Err(why)) | Err(why) => {
                warn!("no spans are sent: {why}");
                Self::none()
            }
        }
    }

    #[cfg(feature = "otel")]
    fn none() -> Self {
        Self { spans: None }
    }

    #[cfg(not(feature = "otel"))]
    fn none() -> Self {
        Self {}
    }

    #[cfg(feature = "otel")]
    fn begin(settings: Settings) -> Result<Self, String> {
        Ok(Self { spans: Some(span::Spans::new(export::provider(&settings)?)) })
    }

    #[cfg(not(feature = "otel"))]
    fn begin(settings: Settings) -> Result<Self, String> {
        Err(format!(
            "{} is set, but this ackonce was built without OpenTelemetry: build it with --features otel",
            settings.variable
        ))
    }

    /// The same handling, with a span for each run if spans are made.
    #[cfg(feature = "otel")]
    pub fn traced(&self, queue: &str, handling: Handling) -> Handling {
        match &self.spans {
            Some(spans) => traced::traced(spans.of(queue), handling),
            None => handling,
        }
    }

    /// The same handling.
    #[cfg(not(feature = "otel"))]
    pub fn traced(&self, _queue: &str, handling: Handling) -> Handling {
        handling
    }

    /// Sends what is left, for so long; what is left then is lost. No span may be begun any more.
    pub async fn flush(self, limit: Duration) {
        #[cfg(feature = "otel")]
        if let Some(spans) = self.spans {
            spans.flush(limit).await;
        }
        #[cfg(not(feature = "otel"))]
        let _ = limit;
    }
}
