//! The status pages of this process: their sources, and the thread that maintains their history.

use std::sync::Arc;

use evenkeel_common::{Configuration, Result};
use evenkeel_info_server::Routes;
use evenkeel_process::memory_use::MemoryMeter;
use evenkeel_process::wals::Wals;
use evenkeel_process::{MemoryPlan, ignored};
use evenkeel_status_pages::{History, IgnoredSetting, MemoryPart, NamedWal, Sampler, Sources, StatusPages};

/// The pages, with the sampler that maintains their history.
pub(crate) struct Status {
    pages: StatusPages,
    sampler: Sampler,
}

impl Status {
    /// Starts to maintain the history.
    ///
    /// # Errors
    /// I/O error if its thread cannot be started.
    pub(crate) fn start(sources: Sources) -> Result<Self> {
        let (sources, history) = (Arc::new(sources), Arc::new(History::default()));
        let sampler = Sampler::start(&sources, &history)?;
        Ok(Self { pages: StatusPages::new(sources, history), sampler })
    }

    /// Adds the pages to others.
    pub(crate) fn add_to(&self, routes: Routes) -> Routes {
        self.pages.add_to(routes)
    }

    /// Returns the history's thread, which the caller keeps as long as the pages answer.
    pub(crate) fn into_sampler(self) -> Sampler {
        self.sampler
    }
}

/// Returns the WALs, named by their contents.
pub(crate) fn named(wals: &Wals) -> Vec<NamedWal> {
    let named = |name, log| NamedWal { name, log: Arc::clone(log) };
    vec![named("regions of users", &wals.user), named("hbase:meta", &wals.meta)]
}

/// Returns the settings that have no effect.
pub(crate) fn ignored_settings(conf: &Configuration) -> Vec<IgnoredSetting> {
    let setting = |(key, value, instead)| IgnoredSetting { key, value, instead };
    ignored::lines(conf).into_iter().map(setting).collect()
}

/// Returns the use and the limit of each part of the memory.
pub(crate) fn memory(meter: MemoryMeter, plan: MemoryPlan) -> Arc<dyn Fn() -> Vec<MemoryPart> + Send + Sync> {
    Arc::new(move || {
        let parts = meter.read().parts(&plan);
        parts.into_iter().map(|(name, used, limit)| MemoryPart { name, used, limit }).collect()
    })
}
