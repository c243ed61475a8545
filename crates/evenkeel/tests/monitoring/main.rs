//! What an operator sees: pages, metrics and their sinks, traces, the causes of slow requests.

#[path = "../common/mod.rs"]
mod common;
mod computing_causes;
#[path = "../common/faulty_server.rs"]
mod faulty_server;
mod health;
mod in_progress;
mod metrics_sinks;
mod pages;
mod slow_causes;
mod tracing;
mod watching;
