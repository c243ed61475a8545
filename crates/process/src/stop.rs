//! The progress of a stop, and the closing of regions.

use std::sync::Arc;

use parking_lot::Mutex;

/// The progress of a stop, for callers that wait for it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopProgress(Arc<Mutex<String>>);

impl StopProgress {
    /// Returns the step that is under way; empty before the first step and after the last.
    pub fn step(&self) -> String {
        self.0.lock().clone()
    }

    /// Sets the step that begins; empty after the last step.
    pub fn begin(&self, step: impl Into<String>) {
        *self.0.lock() = step.into();
    }
}
