//! [`Registry`]: the sources of a process. A sink reads all of them on demand; there is no
//! collecting thread.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::record::Record;

/// A provider of metrics.
///
/// A source reads counters of other threads without a lock that those threads take. Several threads
/// may call it at the same time.
pub trait Source: Send + Sync {
    /// Appends its records.
    fn collect(&self, records: &mut Vec<Record>);
}

impl<F: Fn(&mut Vec<Record>) + Send + Sync> Source for F {
    fn collect(&self, records: &mut Vec<Record>) {
        self(records);
    }
}

/// The sources of a process; see the module's documentation.
#[derive(Default)]
pub struct Registry {
    sources: RwLock<Vec<Arc<dyn Source>>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a source.
    pub fn register(&self, source: Arc<dyn Source>) {
        self.sources.write().push(source);
    }

    /// Returns the records of all sources, in the order of registration.
    pub fn collect(&self) -> Vec<Record> {
        let sources = self.sources.read().clone();
        let mut records = Vec::new();
        sources.iter().for_each(|source| source.collect(&mut records));
        records
    }
}
