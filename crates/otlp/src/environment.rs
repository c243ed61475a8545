//! The `OTEL_*` variables that the SDK does not read itself.

/// The variables that name an endpoint.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables that name the protocol; the first one that is set takes precedence.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Returns true if calls are traced: `OTEL_TRACES_EXPORTER` is `otlp`, or it is not set and an
/// endpoint is. `OTEL_SDK_DISABLED=true` disables tracing.
///
/// # Errors
/// One line about an unsupported exporter or protocol, or about TLS.
pub(crate) fn asks_for_traces(variable: impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(false);
    }
    let endpoint = ENDPOINTS.into_iter().find_map(set);
    match set("OTEL_TRACES_EXPORTER").as_deref() {
        Some("none") => return Ok(false),
        None if endpoint.is_none() => return Ok(false),
        None | Some("otlp") => {}
        Some(other) => return Err(format!("OTEL_TRACES_EXPORTER is {other}: only otlp and none are known")),
    }
    if let Some(other) = PROTOCOLS.into_iter().find_map(set).filter(|name| name != "http/protobuf") {
        return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL is {other}: only http/protobuf is known"));
    }
    match endpoint.filter(|endpoint| !endpoint.starts_with("http://")) {
        Some(other) => Err(format!("the endpoint {other} of traces does not begin with http://")),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<bool, String> {
        asks_for_traces(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn traces_are_on_when_an_exporter_or_an_endpoint_is_named() {
        assert_eq!(of(&[]), Ok(false));
        assert_eq!(of(&[("OTEL_TRACES_EXPORTER", "otlp")]), Ok(true));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318");
        assert_eq!(of(&[endpoint]), Ok(true));
        assert_eq!(of(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Ok(false));
        assert_eq!(of(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Ok(false));
    }

    #[test]
    fn unsupported_exporters_are_named() {
        assert!(of(&[("OTEL_TRACES_EXPORTER", "zipkin")]).is_err_and(|why| why.contains("zipkin")));
        let on = ("OTEL_TRACES_EXPORTER", "otlp");
        assert!(of(&[on, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).is_err_and(|why| why.contains("grpc")));
        assert!(of(&[on, ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://h")]).is_err());
    }
}
