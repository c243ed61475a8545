//! The subscriber of the process: the events that become lines, and the format of the lines.

use std::sync::Arc;

use chrono::{DateTime, Local, SecondsFormat};
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

use super::settings::Format;
use crate::log_levels::Levels;

/// The module named in lines that the log writes about itself.
const TARGET: &str = "evenkeel::log";

/// The time of day by the machine's clock, for a person at a terminal.
struct TimeOfDay;

impl FormatTime for TimeOfDay {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        write!(to, "{}", now().format("%H:%M:%S"))
    }
}

/// The time of a line, in the machine's time zone.
#[allow(clippy::disallowed_methods, reason = "a line has the time to the microsecond, which Clock has not")]
fn now() -> DateTime<Local> {
    Local::now()
}

/// Sends events to a writer, which must never fail: the subscriber reports a failure by
/// `eprintln!`, which panics. Returns a handle to change the levels.
pub fn subscribe(
    levels: String,
    format: Format,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Arc<Levels> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&levels));
    tracing_subscriber::registry().with(filter).with(layer(format, writer)).init();
    Levels::new(handle, levels)
}

fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    format: Format,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false).with_writer(writer);
    match format {
        Format::Short => {
            let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            lines.compact().with_ansi(is_coloured).with_target(false).with_timer(TimeOfDay).boxed()
        }
        Format::Text => lines.with_ansi(false).boxed(),
        Format::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    }
}

/// A warning of the log itself, which bypasses the subscriber.
pub fn warning(format: Format, message: &str) -> String {
    let now = now();
    let time = now.to_utc().to_rfc3339_opts(SecondsFormat::Micros, true);
    match format {
        Format::Short => format!("{}  WARN {message}\n", now.format("%H:%M:%S")),
        Format::Text => format!("{time}  WARN {TARGET}: {message}\n"),
        Format::Json => {
            let line = serde_json::json!({
                "timestamp": time, "level": "WARN", "message": message, "target": TARGET,
            });
            format!("{line}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that collects lines in memory.
    #[derive(Clone, Default)]
    struct Memory(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The line of an event in a format.
    fn line(format: Format) -> String {
        let memory = Memory::default();
        let of_layer = memory.clone();
        let subscriber = tracing_subscriber::registry().with(layer(format, move || of_layer.clone()));
        tracing::subscriber::with_default(subscriber, || tracing::warn!(bytes = 7, "a \"quoted\" word"));
        let text = memory.0.lock().clone();
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn lines_have_the_configured_format() {
        let text = line(Format::Text);
        assert!(
            text.ends_with("Z  WARN evenkeel::log::format::tests: a \"quoted\" word bytes=7\n"),
            "{text}"
        );
        let short = line(Format::Short);
        assert!(short.contains("WARN") && !short.contains("evenkeel::log"), "{short}");
        for json in [line(Format::Json), warning(Format::Json, "a \"quoted\" word")] {
            let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!((&value["level"], &value["message"]), (&"WARN".into(), &"a \"quoted\" word".into()));
            assert!(value["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{json}");
        }
        let event: serde_json::Value = serde_json::from_str(&line(Format::Json)).expect("JSON");
        assert_eq!(event["bytes"], 7);
    }
}
