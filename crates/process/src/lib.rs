//! The parts that every server process has: settings, the memory and its parts, WALs, caches,
//! background threads, an RPC port and an info port.
//!
//! A standalone server (`evenkeel_standalone`) and a RegionServer of a cluster (`evenkeel_cluster`)
//! are built from these parts, each with its own order of start.
//!
//! | module | contents |
//! |---|---|
//! | [`connections`] | the maximum number of connections of each port |
//! | [`ignored_settings`] | settings that have no effect |
//! | [`info`] | the info ports: pages and metrics over HTTP |
//! | [`memory_plan`] | the limit of each part of `evenkeel.memory.size` |
//! | [`memory_trim`] | returns memory that a quiet server does not need |
//! | [`memory_use`] | the current memory use of each part |
//! | [`metrics_sinks`] | the sinks of `hadoop-metrics2.properties` |
//! | [`ports`] | an RPC port, and the budgets that all ports share |
//! | [`readiness`] | whether clients are served, and why not |
//! | [`runtime_settings`] | settings that are changed while the server runs |
//! | [`security`] | settings that require security, and addresses beyond loopback |
//! | [`server`] | the process itself, and the environment that its regions are opened with |
//! | [`settings`] | ports, directory and memory from the configuration |
//! | [`status`] | the status pages, and their history |
//! | [`stop`] | the progress of a stop |
//! | [`storage`] | the file system of `hbase.rootdir` |
//! | [`wals`] | the WALs of this run |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod connections;
pub mod ignored_settings;
pub mod info;
pub mod memory_plan;
pub mod memory_trim;
pub mod memory_use;
pub mod metrics_sinks;
pub mod ports;
pub mod readiness;
pub mod runtime_settings;
pub mod security;
pub mod server;
pub mod settings;
pub mod status;
pub mod stop;
pub mod storage;
pub mod wals;

use std::sync::{Arc, OnceLock};

use evenkeel_common::{Configuration, HBaseError};
pub use evenkeel_info_server::LogLevels;

pub use self::memory_plan::MemoryPlan;
pub use self::memory_use::MemoryUse;
pub use self::settings::Settings;
pub use self::stop::StopProgress;

/// Requests that the process stops, with the reason.
pub type StopRequest = Arc<dyn Fn(&str) + Send + Sync>;

/// Reloads the settings; the error is one line.
pub type ConfigurationSource = Arc<dyn Fn() -> std::result::Result<Configuration, String> + Send + Sync>;

/// The interface of the server to the process around it.
pub struct ProcessControl {
    /// Called to stop the process.
    pub stop: StopRequest,
    /// The levels of the process's log.
    pub log_levels: Arc<dyn LogLevels>,
    /// The source of its settings.
    pub settings: ConfigurationSource,
}

impl ProcessControl {
    /// A process whose settings and log levels cannot be changed.
    pub fn fixed(stop: StopRequest) -> Self {
        let settings = Arc::new(|| Err("settings are read at start only".to_owned()));
        Self { stop, log_levels: Arc::new(FixedLogLevels), settings }
    }
}

/// Why the server must stop. Only the first reason is kept.
pub type FailureReason = Arc<OnceLock<String>>;

/// Returns an `IOException` with the text of any error.
pub fn io_error(error: impl std::fmt::Display) -> HBaseError {
    HBaseError::io(error.to_string())
}

/// Log levels that cannot be changed.
pub struct FixedLogLevels;

impl LogLevels for FixedLogLevels {
    fn level_of(&self, _: &str) -> String {
        "INFO".to_owned()
    }

    fn set_level(&self, _: &str, _: &str) -> std::result::Result<(), String> {
        Err("this process does not change its log levels".to_owned())
    }
    fn set_levels(&self, _: &str) -> std::result::Result<(), String> {
        Err("this process does not change its log levels".to_owned())
    }
}
