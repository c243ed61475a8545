//! [`Registry`]: the sources of a process. A sink reads them all; no thread collects in advance.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::record::Record;

/// Tells what it has counted when it is asked.
///
/// A source reads counters of other threads without a lock that those threads take. It may be
/// called by several threads at once.
pub trait Source: Send + Sync {
    /// Appends its records.
    fn collect(&self, records: &mut Vec<Record>);
}

impl<F: Fn(&mut Vec<Record>) + Send + Sync> Source for F {
    fn collect(&self, records: &mut Vec<Record>) {
        self(records);
    }
}

/// The sources of a process. See the module's documentation.
#[derive(Default)]
pub struct Registry {
    sources: RwLock<Vec<Arc<dyn Source>>>,
}

impl Registry {
    /// A registry without sources.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a source.
    pub fn register(&self, source: Arc<dyn Source>) {
        self.sources.write().push(source);
    }

    /// The records of all sources, in the order in which they were registered.
    pub fn collect(&self) -> Vec<Record> {
        let sources = self.sources.read().clone();
        let mut records = Vec::new();
        sources.iter().for_each(|source| source.collect(&mut records));
        records
    }
}
