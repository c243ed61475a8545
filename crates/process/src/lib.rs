//! What every server process has, whatever it is: settings, the memory and its parts, write-ahead
//! logs, caches, background threads, an RPC port and an info port.
//!
//! A standalone server (`evenkeel_standalone`) and a RegionServer of a cluster (`evenkeel_cluster`)
//! are built of these parts, each in the order of its own start.
//!
//! | module | contents |
//! |---|---|
//! | [`connections`] | how many connections each port may have |
//! | [`ignored`] | settings that have no effect |
//! | [`info`] | the info ports: pages and metrics over HTTP |
//! | [`memory_plan`] | what each part may take of `evenkeel.memory.size` |
//! | [`memory_trim`] | memory that a quiet server no longer needs |
//! | [`memory_use`] | what each part takes now |
//! | [`metrics_sinks`] | the sinks of `hadoop-metrics2.properties` |
//! | [`ports`] | an RPC port, and what the connections of all ports share |
//! | [`readiness`] | whether clients are served, and why not |
//! | [`runtime_settings`] | settings that are changed while the server runs |
//! | [`security`] | settings that ask for security, and an address beyond loopback |
//! | [`server`] | the process itself, and what its regions are opened with |
//! | [`settings`] | ports, directory and memory from the configuration |
//! | [`stop`] | the progress of a stop |
//! | [`wals`] | the write-ahead logs of this life |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod connections;
pub mod ignored;
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
pub mod stop;
pub mod wals;

use std::sync::{Arc, OnceLock};

use evenkeel_common::{Configuration, HBaseError};
pub use evenkeel_info_server::LogLevels;

pub use self::memory_plan::MemoryPlan;
pub use self::memory_use::MemoryUse;
pub use self::settings::Settings;
pub use self::stop::StopProgress;

/// Asks the process to stop, with the reason.
pub type StopRequest = Arc<dyn Fn(&str) + Send + Sync>;

/// Reads the settings again, or says in one line why it cannot.
pub type ConfigurationSource = Arc<dyn Fn() -> std::result::Result<Configuration, String> + Send + Sync>;

/// What the server asks of the process around it.
pub struct ProcessControl {
    /// Asked to stop.
    pub stop: StopRequest,
    /// The levels of its log.
    pub log_levels: Arc<dyn LogLevels>,
    /// Where its settings are from.
    pub settings: ConfigurationSource,
}

impl ProcessControl {
    /// A process that keeps the settings and the log levels that it has.
    pub fn fixed(stop: StopRequest) -> Self {
        let settings = Arc::new(|| Err("settings are read at start only".to_owned()));
        Self { stop, log_levels: Arc::new(FixedLogLevels), settings }
    }
}

/// Why the server cannot go on: the first reason counts.
pub type Failure = Arc<OnceLock<String>>;

/// `IOException` with the text of an error of any kind.
pub fn bad(error: impl std::fmt::Display) -> HBaseError {
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
