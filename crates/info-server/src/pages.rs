//! [`StandardPages`]: the pages that every process has.
//!
//! | path | contents |
//! |---|---|
//! | `/` | redirects the browser to the home page |
//! | `/conf` | the configuration, secrets masked |
//! | `/dump`, `/stacks` | the threads of the process |
//! | `/health` | `OK` while the process can answer |
//! | `/ready` | `OK`, or status 503 with a line for each reason |
//! | `/jmx`, `/prometheus` | the metrics, unless `hbase.http.metrics.servlets` leaves them out |
//! | `/logLevel` | shows and sets levels of loggers |
//!
//! HBase lists `/metrics` as a servlet, too. Hadoop 3 has no such servlet, so that path has no
//! page.
//!
//! | module | contents |
//! |---|---|
//! | `conf` | `/conf` |
//! | `log_level` | `/logLevel` |
//! | `metrics` | `/jmx` and `/prometheus` |
//! | `threads` | `/dump` and `/stacks` |

mod conf;
mod log_level;
mod metrics;
mod threads;

use std::sync::Arc;

use evenkeel_common::CurrentConfiguration;
use evenkeel_metrics::Registry;

use crate::request::Request;
use crate::response::Response;
use crate::routes::Routes;

pub use self::conf::{Property, properties};
pub use self::log_level::LogLevels;
pub use self::threads::{ThreadState, thread_dump, threads};

/// The setting that lists the servlets of metrics.
const SERVLETS: &str = "hbase.http.metrics.servlets";

/// Reports whether the process serves its clients.
pub trait Readiness: Send + Sync {
    /// Returns why it does not, one line per reason; empty if it does. Must not block.
    fn reasons(&self) -> Vec<String>;
}

impl<F: Fn() -> Vec<String> + Send + Sync> Readiness for F {
    fn reasons(&self) -> Vec<String> {
        self()
    }
}

/// The contents of the pages.
pub struct StandardPages {
    /// The sources of metrics.
    pub registry: Arc<Registry>,
    /// The name of this machine, which is a tag of every record.
    pub hostname: String,
    /// The settings in force.
    pub configuration: Arc<CurrentConfiguration>,
    /// The loggers.
    pub log_levels: Arc<dyn LogLevels>,
    /// Reports whether the process serves its clients.
    pub readiness: Arc<dyn Readiness>,
    /// The path of the home page: `/rs-status`.
    pub home: String,
}

impl StandardPages {
    /// Returns the routes of all pages. The caller may add others and replace these.
    pub fn routes(self) -> Routes {
        let Self { registry, hostname, configuration, log_levels, readiness, home } = self;
        // A list that cannot be resolved counts as empty: metrics are off.
        let of_start = configuration.get();
        let servlets = of_start.get_list(SERVLETS).unwrap_or_default();
        let mut routes = Routes::new();
        if servlets.iter().any(|servlet| servlet == "jmx") {
            let page = metrics::Jmx { registry: Arc::clone(&registry), hostname: hostname.clone() };
            routes = routes.page("/jmx", Arc::new(page));
        }
        if servlets.iter().any(|servlet| servlet == "prometheus") {
            routes = routes.page("/prometheus", Arc::new(metrics::Prometheus { registry, hostname }));
        }
        let dump = Arc::new(|_: &Request| Response::text(thread_dump()));
        routes
            .page("/", Arc::new(move |_: &Request| Response::redirect(&home)))
            .page("/logLevel", Arc::new(log_level::LogLevel::new(&of_start, log_levels)))
            .page("/conf", Arc::new(conf::ConfPage(configuration)))
            .page("/dump", dump.clone())
            .page("/stacks", dump)
            .page("/health", Arc::new(|_: &Request| Response::text("OK\n")))
            .page("/ready", Arc::new(move |_: &Request| ready(&*readiness)))
    }
}

fn ready(readiness: &dyn Readiness) -> Response {
    let reasons = readiness.reasons();
    if reasons.is_empty() {
        return Response::text("OK\n");
    }
    let lines: String = reasons.iter().map(|reason| reason.replace('\n', " ") + "\n").collect();
    Response::text(lines).with_status(503)
}
