//! What a collector would see: an endpoint whose requests are read as OTLP.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;

use crate::harness::{Endpoint, LIMIT, Reply, World, until};

pub struct Collector(Endpoint);

/// One span, with its ids as W3C writes them.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub state: String,
    pub attributes: BTreeMap<String, String>,
    /// Of the resource.
    pub service: String,
    pub failed: bool,
    pub message: String,
}

impl Collector {
    pub async fn start() -> Self {
        Self(Endpoint::start(|_| Reply::status("200 OK")).await)
    }

    /// For a worker's environment.
    pub fn variable(&self) -> (&'static str, String) {
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.0.address))
    }

    pub fn spans(&self) -> Vec<Seen> {
        self.0
            .requests()
            .iter()
            .flat_map(|request| {
                assert_eq!(request.line, "POST /v1/traces HTTP/1.1");
                assert_eq!(request.header("content-type"), "application/x-protobuf");
                assert_eq!(request.header("x-tenant"), "shop", "from OTEL_EXPORTER_OTLP_HEADERS");
                seen(&request.body)
            })
            .collect()
    }

    pub async fn until_spans(&self, count: usize) -> Vec<Seen> {
        until(&format!("{count} spans have come"), LIMIT, async || self.spans().len() >= count).await;
        self.spans()
    }
}

/// A worker that sends its spans there.
pub fn traced(world: &World, collector: &Collector, arguments: &[&str]) -> crate::harness::Process {
    let (name, endpoint) = collector.variable();
    world.worker_with(
        |command| {
            command.env(name, endpoint).env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop");
            command.env("OTEL_BSP_SCHEDULE_DELAY", "50");
        },
        arguments,
    )
}

fn seen(body: &[u8]) -> Vec<Seen> {
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
    let mut all = Vec::new();
    for resource in request.resource_spans {
        let of_resource = attributes(&resource.resource.expect("a resource").attributes);
        for scope in resource.scope_spans {
            assert_eq!(scope.scope.expect("a scope").name, "ackonce");
            all.extend(scope.spans.into_iter().map(|span| one(span, &of_resource["service.name"])));
        }
    }
    all
}

fn one(span: Span, service: &str) -> Seen {
    assert_eq!(span.kind, SpanKind::Consumer as i32);
    assert!(
        span.start_time_unix_nano > 0 && span.end_time_unix_nano >= span.start_time_unix_nano,
        "{span:?}"
    );
    let status = span.status.unwrap_or_default();
    Seen {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state,
        attributes: attributes(&span.attributes),
        service: service.to_owned(),
        failed: status.code == StatusCode::Error as i32,
        message: status.message,
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
