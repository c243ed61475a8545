//! What an operator sees: pages, metrics and their sinks, traces, the causes of slow requests.

#[path = "../common/mod.rs"]
mod common;
mod health;
mod metrics_sinks;
mod pages;
mod slow_causes;
mod tracing;
mod watching;
