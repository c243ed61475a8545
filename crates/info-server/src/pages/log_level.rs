//! `/logLevel`: shows and sets the level of a logger.
//!
//! `log` names the logger and `level` the level to set. HBase's command `hbase loglevel` reads the
//! lines that begin with [`MARKER`], without their tags. `hbase.master.ui.readonly` forbids the
//! page, and `hbase.ui.logLevels.readonly.loggers` lists prefixes of loggers whose levels cannot be
//! changed.

use std::sync::Arc;

use evenkeel_common::Configuration;

use crate::request::Request;
use crate::response::{Response, escape_html};
use crate::routes::Page;

const MARKER: &str = "<!-- OUTPUT -->";
const READONLY: &str = "hbase.master.ui.readonly";
const READONLY_LOGGERS: &str = "hbase.ui.logLevels.readonly.loggers";

/// Uses the style sheet of the status pages, if the process has them.
const FORMS: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Log Level</title>\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
    <link rel=\"stylesheet\" href=\"/static/evenkeel.css\"></head><body class=\"plain\"><main>\
    <p><a href=\"/\">All pages</a></p><h1>Log Level</h1>\n\
    <p class=\"about\">A logger is a module: evenkeel_regionserver. A level holds for it and all below.</p>\n\
    <form class=\"search\"><label>Logger <input name=\"log\" size=\"40\" required></label> \
    <button>Show</button></form>\n\
    <form class=\"search\"><label>Logger <input name=\"log\" size=\"40\" required></label> \
    <label>level <input name=\"level\" size=\"8\" required></label> <button>Set</button></form>\n";

/// The loggers of the process. Must not block.
pub trait LogLevels: Send + Sync {
    /// Returns the effective level of a logger, `INFO`.
    fn level_of(&self, logger: &str) -> String;

    /// Sets the level of a logger and of those below it.
    ///
    /// # Errors
    /// Why the level is not set, one line.
    fn set_level(&self, logger: &str, level: &str) -> Result<(), String>;

    /// Sets the levels of all loggers: `info,evenkeel_region=debug`.
    ///
    /// # Errors
    /// Why the levels are not set, one line.
    fn set_levels(&self, directives: &str) -> Result<(), String>;
}

/// HBase's LogLevel servlet.
pub(super) struct LogLevel {
    loggers: Arc<dyn LogLevels>,
    is_readonly: bool,
    readonly_loggers: Vec<String>,
}

impl LogLevel {
    pub(super) fn new(configuration: &Configuration, loggers: Arc<dyn LogLevels>) -> Self {
        // A value that cannot be parsed forbids the page, to be safe.
        let is_readonly = configuration.get_bool_or(READONLY, false).unwrap_or(true);
        let readonly_loggers = configuration.get_list(READONLY_LOGGERS).unwrap_or_default();
        Self { loggers, is_readonly, readonly_loggers }
    }

    fn is_kept(&self, logger: &str) -> bool {
        self.readonly_loggers.iter().any(|kept| logger.starts_with(kept.as_str()))
    }

    fn set(&self, logger: &str, level: &str) -> String {
        let shown = escape_html(level);
        match self.loggers.set_level(logger, level) {
            Ok(()) => format!("Setting Level to <strong>{shown}</strong> ...<br />"),
            Err(reason) => format!("Bad level : <strong>{shown}</strong> {}<br />", escape_html(&reason)),
        }
    }
}

impl Page for LogLevel {
    fn respond(&self, request: &Request) -> Response {
        if self.is_readonly {
            return Response::error(403, "Modification of HBase via the UI is disallowed in configuration.");
        }
        let parameter = |name| request.parameter(name).map(str::trim).filter(|value| !value.is_empty());
        let mut lines = Vec::new();
        if let Some(logger) = parameter("log") {
            lines.push(format!("Submitted Log Name: <b>{}</b><br />", escape_html(logger)));
            if let Some(level) = parameter("level") {
                if self.is_kept(logger) {
                    let message = format!("Modification of logger {logger} is disallowed in configuration.");
                    return Response::error(412, &message);
                }
                lines.push(format!("Submitted Level: <b>{}</b><br />", escape_html(level)));
                lines.push(self.set(logger, level));
            }
            let level = escape_html(&self.loggers.level_of(logger));
            lines.push(format!("Effective level: <b>{level}</b><br />"));
        }
        let results: String = lines.iter().map(|line| format!("{MARKER}{line}\n")).collect();
        Response::html(format!("{FORMS}{results}</main></body></html>\n"))
    }
}
