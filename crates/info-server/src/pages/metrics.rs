//! `/jmx` and `/prometheus`: the documents of `evenkeel_metrics::sink` with HBase's headers.

use std::sync::Arc;

use evenkeel_metrics::Registry;
use evenkeel_metrics::sink::JmxQuery;
use evenkeel_metrics::sink::prometheus::PrometheusQuery;

use crate::request::Request;
use crate::response::Response;
use crate::routes::Page;

/// HBase's JMXJsonServlet.
pub(super) struct Jmx {
    pub(super) registry: Arc<Registry>,
    pub(super) hostname: String,
}

/// HBase's PrometheusHadoopServlet.
pub(super) struct Prometheus {
    pub(super) registry: Arc<Registry>,
    pub(super) hostname: String,
}

impl Page for Jmx {
    fn respond(&self, request: &Request) -> Response {
        let callback = request.parameter("callback");
        if callback.is_some_and(|name| !is_callback(name)) {
            return Response::error(500, "Server Error");
        }
        let query = JmxQuery {
            qry: request.parameter("qry"),
            excl: request.parameter("excl"),
            get: request.parameter("get"),
            description: request.is_true("description"),
        };
        let document = query.answer(self.registry.collect(), &self.hostname);
        let held_bytes = document.held_bytes();
        let Some(name) = callback else {
            return Response::in_pieces("application/json;charset=utf-8", held_bytes, document);
        };
        let (begin, end) = ([format!("{name}(")], [");".to_owned()]);
        let call = begin.into_iter().chain(document).chain(end);
        Response::in_pieces("application/javascript;charset=utf-8", held_bytes, call)
    }
}

impl Page for Prometheus {
    fn respond(&self, request: &Request) -> Response {
        let query =
            PrometheusQuery { qry: request.parameter("qry"), description: request.is_true("description") };
        let text = query.answer(self.registry.collect(), &self.hostname);
        Response::in_pieces("text/plain;charset=utf-8", text.held_bytes(), text)
    }
}

/// Any other name could be a script; HBase answers 500 to it.
fn is_callback(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
