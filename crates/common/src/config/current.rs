//! [`CurrentConfiguration`]: the settings in force, for pages.

use parking_lot::RwLock;

use super::Configuration;

/// The settings in force, which may change while the process runs.
#[derive(Debug)]
pub struct CurrentConfiguration(RwLock<Configuration>);

impl CurrentConfiguration {
    /// Creates it with the settings of the start.
    pub fn new(configuration: Configuration) -> Self {
        Self(RwLock::new(configuration))
    }

    /// Returns the settings. The copy shares their memory.
    pub fn get(&self) -> Configuration {
        self.0.read().clone()
    }

    /// Replaces the settings.
    pub fn set(&self, configuration: Configuration) {
        *self.0.write() = configuration;
    }
}
