//! Traces as HBase 2.6 has them: spans of calls, regions and the log, sent by OTLP over HTTP.
//!
//! | module | contents |
//! |---|---|
//! | `client` | POST of a message to a collector, over HTTP/1.1 |
//! | `environment` | the `OTEL_*` variables that enable tracing |
//! | `spans` | the spans of a call, by HBase's names |
//!
//! HBase is configured by OpenTelemetry's Java agent, which reads `OTEL_*`. The SDK used here reads
//! the same variables: sampler, service name, resource, batches, endpoint, headers. A call that the
//! sampler excludes costs one span that records nothing.
//!
//! A thread of the SDK sends batches. Its queue is bounded (`OTEL_BSP_MAX_QUEUE_SIZE`, 2048 spans);
//! further spans are dropped, so a slow or unavailable collector delays no call.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod client;
mod environment;
mod spans;

use std::env;

use evenkeel_metrics::trace;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

use crate::client::Client;
use crate::spans::Spans;

/// The name of the instrumentation, which is HBase's.
const SCOPE: &str = "org.apache.hbase";
/// The default service name; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override it.
const SERVICE: &str = "HBase";

/// Sends the queued spans when it is dropped.
#[derive(Debug)]
pub struct Tracing(Option<SdkTracerProvider>);

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Enables tracing if the environment requests it; otherwise does nothing.
///
/// # Errors
/// One line about a variable with an unsupported value.
pub fn from_environment() -> Result<Tracing, String> {
    if !environment::asks_for_traces(|name| env::var(name).ok())? {
        return Ok(Tracing(None));
    }
    let client = Client::new().map_err(|error| format!("no client for traces: {error}"))?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
    let exporter = exporter.map_err(|error| format!("OTEL_EXPORTER_OTLP_*: {error}"))?;
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
    let scope = opentelemetry::InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION"));
    let spans = Spans { tracer: provider.tracer_with_scope(scope.build()) };
    if !trace::install(Box::new(spans)) {
        return Err("calls are traced already".to_owned());
    }
    tracing::info!("calls are traced");
    Ok(Tracing(Some(provider)))
}

fn resource() -> Resource {
    let attributes = env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named = env::var_os("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=");
    let builder = Resource::builder();
    if is_named { builder.build() } else { builder.with_service_name(SERVICE).build() }
}
