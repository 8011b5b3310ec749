//! One run as a span, by the semantic conventions for messaging, and for RabbitMQ in particular.
//! <https://opentelemetry.io/docs/specs/semconv/messaging/rabbitmq/>

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
        TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use crate::{
    handler::Verdict,
    key::Key,
    ledger::bounded_error,
    message::{Message, TraceContext},
};

/// Where spans are made.
pub(super) struct Spans {
    provider: SdkTracerProvider,
}

/// The spans of one queue.
#[derive(Clone)]
pub(super) struct QueueSpans {
    tracer: SdkTracer,
    queue: Arc<str>,
    /// `process QUEUE`
    name: Arc<str>,
}

/// A run that goes on. Dropped without an end, it was cut off.
pub(super) struct Running(Option<Span>);

impl Spans {
    pub(super) fn new(provider: SdkTracerProvider) -> Self {
        Self { provider }
    }

    pub(super) fn of(&self, queue: &str) -> QueueSpans {
        QueueSpans {
            tracer: self.provider.tracer("ackonce"),
            queue: queue.into(),
            name: format!("process {queue}").into(),
        }
    }

    /// Sends what is left, for so long.
    pub(super) async fn flush(self, limit: Duration) {
        let flushing = move || {
            // What it could not send it has lost, and has said so.
            let _ = self.provider.shutdown_with_timeout(limit);
        };
        // Fails only if that panicked, which the panic hook has told.
        let _ = tokio::task::spawn_blocking(flushing).await;
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").finish_non_exhaustive()
    }
}

impl QueueSpans {
    /// Begins the span of one run. The message's own context is its parent.
    pub(super) fn start(&self, message: &Message, key: &Key, attempt: u32, since: SystemTime) -> Running {
        let properties = &message.properties;
        let mut attributes = vec![
            KeyValue::new("messaging.system", "rabbitmq"),
            KeyValue::new("messaging.operation.name", "process"),
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.destination.name", self.destination(message)),
            KeyValue::new(
                "messaging.message.body.size",
                i64::try_from(message.body.len()).unwrap_or(i64::MAX),
            ),
            KeyValue::new("ackonce.key", key.as_str().to_owned()),
            KeyValue::new("ackonce.attempt", i64::from(attempt)),
        ];
        let optional = [
            ("messaging.message.id", properties.message_id.as_deref()),
            ("messaging.message.conversation_id", properties.correlation_id.as_deref()),
            ("messaging.rabbitmq.destination.routing_key", Some(message.routing_key.as_str())),
        ];
        let optional = optional
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.filter(|text| !text.is_empty())?)));
        attributes.extend(optional.map(|(name, text)| KeyValue::new(name, text.to_owned())));
        let builder = SpanBuilder::from_name(self.name.to_string())
            .with_kind(SpanKind::Consumer)
            .with_start_time(since)
            .with_attributes(attributes);
        let parent = TraceContext::of(properties).and_then(|context| remote(&context));
        let parent =
            parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        Running(Some(self.tracer.build_with_context(builder, &parent)))
    }

    /// Exchange, routing key and queue; an empty part is left out, and a queue that is the routing key.
    fn destination(&self, message: &Message) -> String {
        let queue = Some(&*self.queue).filter(|queue| *queue != message.routing_key);
        let parts = [Some(message.exchange.as_str()), Some(message.routing_key.as_str()), queue];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
    }
}

impl Running {
    /// This span as the parent of what the handler does.
    pub(super) fn context(&self) -> Option<TraceContext> {
        let context = self.0.as_ref()?.span_context();
        let flags = context.trace_flags().to_u8();
        let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
        TraceContext::parse(&parent, Some(&context.trace_state().header()))
    }

    pub(super) fn end(mut self, verdict: &Verdict) {
        let Some(mut span) = self.0.take() else { return };
        match verdict {
            Verdict::Done => {}
            Verdict::Retry { error, .. } => failed(&mut span, "retry", error),
            Verdict::GiveUp { error } => failed(&mut span, "give-up", error),
            Verdict::CannotStart { error } => failed(&mut span, "cannot-start", error),
            Verdict::Stopped => failed(&mut span, "stopped", "stopped at the drain deadline"),
        }
        span.end();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut span) = self.0.take() {
            failed(&mut span, "cut-off", "it panicked, or the worker was stopped at once");
            span.end();
        }
    }
}

fn failed(span: &mut Span, class: &'static str, error: &str) {
    span.set_attribute(KeyValue::new("error.type", class));
    span.set_status(Status::error(bounded_error(error).to_owned()));
}

/// A valid context is parsed by its places.
fn remote(context: &TraceContext) -> Option<SpanContext> {
    let parent = context.traceparent();
    let trace = TraceId::from_hex(parent.get(3..35)?).ok()?;
    let span = SpanId::from_hex(parent.get(36..52)?).ok()?;
    let flags = u8::from_str_radix(parent.get(53..55)?, 16).ok()?;
    let state = context.tracestate().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    Some(SpanContext::new(trace, span, TraceFlags::new(flags) & TraceFlags::SAMPLED, true, state))
}
