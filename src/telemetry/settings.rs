//! What OpenTelemetry's standard variables say.
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>

use std::time::Duration;

/// Where spans go. What else the variables say (headers, sampling, batches, resource attributes) is read by the
/// libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The one that names the endpoint.
    pub(super) variable: &'static str,
    /// May hold a user and a password: not for logs.
    pub(super) endpoint: String,
    /// For one request.
    pub(super) timeout: Duration,
    /// The service has a name of its own.
    pub(super) is_named: bool,
}

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

impl Settings {
    /// `None` if no endpoint is named, or spans are switched off.
    ///
    /// # Errors
    ///
    /// What is wrong, in one sentence.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        // By the specification an empty one is as one that is not set.
        let given =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        // The one for traces counts more than the one for all signals.
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, given(name)?)));
        let is = |name: &str, word: &str| given(name).is_some_and(|text| text.eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let endpoint = first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]);
        let Some((variable, endpoint)) = endpoint else { return Ok(None) };
        let protocol = first(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
        if let Some((name, protocol)) = protocol.filter(|(_, protocol)| protocol != "http/protobuf") {
            return Err(format!(
                "{name}={protocol:?}: only http/protobuf is spoken: set it to that, and the endpoint to a port that speaks it"
            ));
        }
        let timeout = match first(["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]) {
            Some((name, text)) => text
                .parse()
                .map(Duration::from_millis)
                .map_err(|_| format!("{name}={text:?}: expected milliseconds"))?,
            None => TIMEOUT_DEFAULT,
        };
        let is_named = given("OTEL_SERVICE_NAME").is_some()
            || given("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|text| text.contains("service.name="));
        Ok(Some(Self { variable, endpoint, timeout, is_named }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| {
            variables.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318");
    const TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/v1/traces");

    #[test]
    fn an_endpoint_turns_spans_on_unless_they_are_switched_off() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(ALL.0, " ")]), Ok(None));
        for off in [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(read(&[ALL, off]), Ok(None), "{off:?}");
        }
        let settings = read(&[ALL, ("OTEL_TRACES_EXPORTER", "otlp")]).unwrap().unwrap();
        assert_eq!(settings.variable, ALL.0);
        assert_eq!(read(&[ALL, TRACES]).unwrap().unwrap().variable, TRACES.0);
    }

    #[test]
    fn what_cannot_be_done_is_one_sentence() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ] {
            let why = read(&[ALL, (name, value)]).unwrap_err();
            assert!(why.starts_with(&format!("{name}=\"{value}\": ")), "{why}");
        }
        assert!(read(&[ALL, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).unwrap().is_some());
    }
}
