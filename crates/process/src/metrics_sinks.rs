//! The metrics sinks in `hadoop-metrics2.properties` of the configuration directory: files,
//! Graphite, Ganglia.
//!
//! As in HBase, a sink that cannot be started is logged and skipped; the server starts and the
//! other sinks work. Without a configuration directory, or without the file in it, there are no
//! sinks.

use std::sync::Arc;

use evenkeel_common::clock::Clock;
use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_metrics::Registry;
use evenkeel_metrics::sink::properties::Properties;
use evenkeel_metrics::sink::{PeriodicSinks, SinkSettings};

/// Starts the sinks. They end when the result is dropped.
///
/// # Errors
/// I/O error if a thread cannot be started.
pub fn start(
    conf: &Configuration,
    registry: &Arc<Registry>,
    hostname: &str,
    clock: &Arc<dyn Clock>,
) -> Result<PeriodicSinks> {
    let settings = settings(conf);
    for sink in &settings {
        tracing::info!(name = sink.name, period = ?sink.period, to = ?sink.sink_type, "metrics sink");
    }
    PeriodicSinks::start(&settings, registry, hostname, clock)
        .map_err(|error| HBaseError::io(format!("a thread of a metrics sink: {error}")))
}

fn settings(conf: &Configuration) -> Vec<SinkSettings> {
    let Some(directory) = conf.directory() else { return Vec::new() };
    match Properties::load(directory) {
        Ok(properties) => {
            let (sinks, problems) = properties.sinks();
            problems.iter().for_each(|problem| tracing::warn!(problem, "skipped a metrics sink"));
            sinks
        }
        Err(error) => {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "hadoop-metrics2.properties cannot be read: no sinks");
            Vec::new()
        }
    }
}
