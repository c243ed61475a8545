//! [`ReplicaSenders`]: sends the edits of default replicas here to secondary replicas on other
//! servers, of Evenkeel or HBase (`RegionReplicaReplicationEndpoint`).
//!
//! ```text
//! a region's stream -> RegionQueue -> a queue for each secondary replica -> its task -> Replay
//!                           ^
//!     one task: which regions are here, and where their secondary replicas are (hbase:meta)
//! ```
//! HBase reads the edits from the log, as often as it must until they are sent. Here they come from
//! the region, and no log is read: what could not be sent in time is dropped. After that the
//! secondary replica waits for a flush of all families of its region, which the reader of the
//! stream requests at a limited pace. Its files have every edit that was dropped. So a write never
//! waits, and nothing is unbounded.
//!
//! **Tasks.** One for each secondary replica ([`calls`]), with one call in flight. It ends when the
//! default replica is closed, moved, split or merged here: that is seen after at most [`PERIOD`],
//! and a call, pause or lookup that runs ends first.
//!
//! **Lookups.** A region is looked up every second, and more rarely the more often nothing has
//! changed: up to [`LOOKUP_PAUSE_MAX`], or [`MISSING_PAUSE_MAX`] while a secondary replica is not
//! open anywhere. A call that fails causes a lookup, too. A table that is disabled or dropped has
//! no open default replica, and so costs nothing.
//!
//! Lock order: `regions` is not held while a region's `queue` is locked. Under the latter, only the
//! locks of [`SendBudget`], of the log's queue, and those that list the region's files are taken.

mod budget;
mod calls;
mod entries;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, RegionLocation};
use evenkeel_common::clock::{self, Clock};
use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_region::region::{Region, ReplicaEvent, ReplicaReplication, SENDER_BYTES_MAX};
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::replica_sender::{ReplicaSender, ReplicasElsewhere};
use evenkeel_wal::Txid;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use self::budget::SendBudget;
use self::calls::{ClusterDestinations, Destinations};
use self::entries::EntryMaker;
use self::queue::{Batch, MARKER_AGE_MAX, Next, RegionQueue};
use crate::session::Session;

/// How often the regions are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest time between two lookups of a region's secondary replicas.
const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The same while a secondary replica is not open.
const MISSING_PAUSE_MAX: Duration = Duration::from_secs(10);
/// The time after which a secondary replica is looked up whose calls have failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
/// Lookups in flight.
const LOOKUPS_MAX: usize = 8;
/// Repetitions of a lookup by the client. The next lookup comes soon.
const LOOKUP_RETRIES: u32 = 2;

/// What the tasks share.
pub(crate) struct Shared {
    destinations: Box<dyn Destinations>,
    budget: SendBudget,
    clock: Arc<dyn Clock>,
    /// Repetitions of a call.
    retries: u32,
    /// The first pause before one.
    pause: Duration,
    /// How long a call is repeated.
    repeat_max: Duration,
    lookups: Semaphore,
    server: Mutex<Weak<RegionServer>>,
}

/// See the module's documentation.
pub(crate) struct ReplicaSenders {
    shared: Arc<Shared>,
    replication: ReplicaReplication,
    runtime: Handle,
    /// By encoded name.
    regions: Mutex<HashMap<String, Arc<SentRegion>>>,
}

impl ReplicaSenders {
    /// Creates it without tasks, if MemStores are replicated.
    ///
    /// # Errors
    /// `IOException` about a setting of clients.
    pub(crate) fn new(
        runtime: &Handle,
        session: &Arc<Session>,
        clock: &Arc<dyn Clock>,
        conf: &Configuration,
    ) -> Result<Option<Arc<Self>>> {
        let bad = |error: evenkeel_common::config::ConfigError| HBaseError::io(error.to_string());
        let replication = ReplicaReplication::from_configuration(conf).map_err(bad)?;
        if !replication.is_enabled() {
            return Ok(None);
        }
        let config = ClientConfig::from_configuration(conf).map_err(|error| calls::io(&error))?;
        let retries = conf
            .get_u64_or("hbase.region.replica.replication.client.retries.number", config.retries.into())
            .map_err(bad)?;
        let pause = config.pause;
        let of_lookups = ClientConfig { retries: LOOKUP_RETRIES, ..config };
        let shared = Shared {
            destinations: Box::new(ClusterDestinations::new(session, of_lookups)),
            budget: SendBudget::new(SENDER_BYTES_MAX),
            clock: Arc::clone(clock),
            retries: u32::try_from(retries).unwrap_or(u32::MAX),
            pause,
            repeat_max: MARKER_AGE_MAX,
            lookups: Semaphore::new(LOOKUPS_MAX),
            server: Mutex::default(),
        };
        Ok(Some(Self::with(shared, replication, runtime)))
    }

    fn with(shared: Shared, replication: ReplicaReplication, runtime: &Handle) -> Arc<Self> {
        let (shared, runtime) = (Arc::new(shared), runtime.clone());
        Arc::new(Self { shared, replication, runtime, regions: Mutex::default() })
    }

    /// Starts the task that finds regions and their secondary replicas.
    pub(crate) fn start(self: &Arc<Self>, server: &Arc<RegionServer>) {
        *self.shared.server.lock() = Arc::downgrade(server);
        let senders = Arc::downgrade(self);
        drop(self.runtime.spawn(async move {
            while let Some(senders) = senders.upgrade() {
                let Some(server) = senders.shared.server() else { return senders.close() };
                senders.look(&server.regions().all(), clock::monotonic());
                drop((senders, server));
                sleep(PERIOD).await;
            }
        }));
    }

    /// Ends the tasks of all regions.
    fn close(&self) {
        let regions = std::mem::take(&mut *self.regions.lock());
        regions.into_values().for_each(|gone| gone.close());
    }

    /// Compares the regions with those of before, and begins the lookups that are due.
    fn look(self: &Arc<Self>, online: &[Arc<Region>], now: Instant) {
        let is_enabled = |region: &Region| match region.info().is_meta() {
            true => self.replication.catalog,
            false => self.replication.user_tables,
        };
        let sent = online.iter().filter(|region| region.replica_stream().is_some() && is_enabled(region));
        // Only this task changes the map. Events are taken meanwhile.
        let mut before = self.regions.lock().clone();
        let mut regions = HashMap::new();
        for region in sent {
            let name = region.info().encoded_name();
            let known = match before.remove(name) {
                Some(known) if known.is_of(region) => known,
                replaced => {
                    // The region was closed and opened again since.
                    replaced.into_iter().for_each(|gone| gone.close());
                    Arc::new(SentRegion::new(region, &self.shared.clock))
                }
            };
            regions.insert(name.to_owned(), known);
        }
        let due: Vec<_> = regions.values().filter(|region| region.is_lookup_due(now)).cloned().collect();
        *self.regions.lock() = regions;
        before.into_values().for_each(|gone| gone.close());
        for region in due {
            let senders = Arc::clone(self);
            drop(self.runtime.spawn(async move { senders.look_up(&region).await }));
        }
    }

    async fn look_up(self: Arc<Self>, region: &Arc<SentRegion>) {
        region.look_up(&self.shared).await;
        region.lookup.lock().is_running = false;
        for id in region.take_new() {
            drop(self.runtime.spawn(calls::run(Arc::clone(&self.shared), Arc::clone(region), id)));
        }
    }

    fn of(&self, region: &Arc<Region>) -> Option<Arc<SentRegion>> {
        let known = self.regions.lock().get(region.info().encoded_name()).cloned();
        known.filter(|known| known.is_of(region))
    }
}

impl Drop for ReplicaSenders {
    fn drop(&mut self) {
        self.close();
    }
}

impl ReplicaSender for ReplicaSenders {
    fn replicas_elsewhere(&self, region: &Arc<Region>) -> ReplicasElsewhere {
        let sent = self.of(region);
        sent.map(|sent| sent.with_queue(|queue| queue.readers(&**region))).unwrap_or_default()
    }

    fn take_event(&self, region: &Arc<Region>, event: &ReplicaEvent) {
        self.of(region).into_iter().for_each(|sent| sent.with_queue(|queue| queue.take(event, &**region)));
    }

    fn flush_requested(&self, region: &Arc<Region>) {
        self.of(region).into_iter().for_each(|sent| sent.with_queue(RegionQueue::flush_requested));
    }

    fn lose_events(&self, region: &Arc<Region>) {
        self.of(region).into_iter().for_each(|sent| sent.with_queue(RegionQueue::lose));
    }
}

impl Shared {
    fn server(&self) -> Option<Arc<RegionServer>> {
        self.server.lock().upgrade()
    }
}

/// When a region is looked up next.
#[derive(Debug)]
struct Lookup {
    due: Instant,
    pause: Duration,
    /// True while the task of the chore runs. A lookup after a failed call may run beside it.
    is_running: bool,
}

/// A default replica here.
pub(crate) struct SentRegion {
    region: Weak<Region>,
    /// `None` once the region is gone.
    queue: Mutex<Option<RegionQueue>>,
    lookup: Mutex<Lookup>,
    /// Held during a lookup, so that an earlier outcome does not replace a later one.
    looking_up: tokio::sync::Mutex<()>,
    /// Secondary replicas without a task.
    new: Mutex<Vec<i32>>,
}

impl SentRegion {
    fn new(region: &Arc<Region>, clock: &Arc<dyn Clock>) -> Self {
        let takes_edits = region.replica_stream().is_some_and(|stream| stream.takes_edits());
        let maker = EntryMaker::new(region.info().clone(), Arc::clone(clock));
        Self {
            region: Arc::downgrade(region),
            queue: Mutex::new(Some(RegionQueue::new(maker, takes_edits))),
            lookup: Mutex::new(Lookup { due: clock::monotonic(), pause: PERIOD, is_running: false }),
            looking_up: tokio::sync::Mutex::default(),
            new: Mutex::default(),
        }
    }

    fn is_of(&self, region: &Arc<Region>) -> bool {
        Weak::as_ptr(&self.region) == Arc::as_ptr(region)
    }

    /// Calls a function with the queue; returns a default value if the region is gone.
    fn with_queue<T: Default>(&self, then: impl FnOnce(&mut RegionQueue) -> T) -> T {
        self.queue.lock().as_mut().map(then).unwrap_or_default()
    }

    /// Drops all entries, and ends the tasks.
    fn close(&self) {
        let closed = self.queue.lock().take();
        closed.into_iter().for_each(|mut queue| queue.wake_all());
    }

    fn work_of(&self, id: i32) -> Option<Arc<Notify>> {
        self.with_queue(|queue| queue.work_of(id))
    }

    fn next(&self, id: i32) -> Next {
        let Some(region) = self.region.upgrade() else { return Next::Nothing };
        self.with_queue(|queue| queue.next(id, clock::monotonic(), &*region))
    }

    /// Wakes a task when an entry is in the log, or cannot be any more.
    fn notify_when_logged(&self, entry: Txid, work: &Arc<Notify>) {
        let work = Arc::clone(work);
        match self.region.upgrade() {
            Some(region) => region.when_logged(entry, move || work.notify_one()),
            None => work.notify_one(),
        }
    }

    fn prepare_repetition(&self, batch: &mut Batch) {
        self.with_queue(|queue| queue.prepare_repetition(batch));
    }

    fn is_current(&self, batch: &Batch) -> bool {
        self.with_queue(|queue| queue.is_current(batch))
    }

    fn fail(&self, shared: &Shared, batch: &Batch) {
        self.with_queue(|queue| queue.fail(batch, &shared.budget));
        self.lookup.lock().due = clock::monotonic() + FAILED_PAUSE;
    }

    fn take_new(&self) -> Vec<i32> {
        std::mem::take(&mut *self.new.lock())
    }

    /// Returns true if the caller must look the secondary replicas up now.
    fn is_lookup_due(&self, now: Instant) -> bool {
        let mut lookup = self.lookup.lock();
        let is_due = !lookup.is_running && lookup.due <= now;
        lookup.is_running |= is_due;
        is_due
    }

    /// Finds the secondary replicas. A lookup that fails changes nothing.
    async fn look_up(&self, shared: &Shared) {
        let _alone = self.looking_up.lock().await;
        let Ok(_permit) = shared.lookups.acquire().await else { return };
        let Some(region) = self.region.upgrade() else { return };
        let found = shared.destinations.locate(region.info()).await;
        let found = found.inspect_err(|error| {
            tracing::debug!(region = %region.info().name_text(), %error, "secondary replicas are not found");
        });
        let (is_missing, is_changed) = match found {
            Ok(found) => (is_missing(&region, &found), self.locate(&region, found, shared)),
            Err(_) => (true, false),
        };
        let pause_max = if is_missing { MISSING_PAUSE_MAX } else { LOOKUP_PAUSE_MAX };
        let mut lookup = self.lookup.lock();
        lookup.pause = if is_changed { PERIOD } else { (lookup.pause * 2).min(pause_max) };
        lookup.due = clock::monotonic() + lookup.pause;
    }

    /// Takes the outcome of a lookup. Returns true if anything has changed.
    fn locate(&self, region: &Arc<Region>, mut found: Vec<RegionLocation>, shared: &Shared) -> bool {
        let server = shared.server();
        let is_here = |at: &RegionLocation| {
            server.as_ref().is_some_and(|server| {
                at.server == *server.name() || server.regions().find(at.region.encoded_name()).is_some()
            })
        };
        found.retain(|at| !is_here(at));
        let (new, is_changed) = self.with_queue(|queue| queue.locate(&found, &shared.budget));
        self.new.lock().extend(new);
        if is_changed {
            // The reader of the stream must know.
            server.into_iter().for_each(|server| server.check_replica_streams(std::slice::from_ref(region)));
        }
        is_changed
    }
}

/// Returns true if a secondary replica is not among those that are open. The number of those of
/// hbase:meta is not known.
fn is_missing(region: &Region, found: &[RegionLocation]) -> bool {
    let secondaries = region.table().region_replication().saturating_sub(1);
    region.info().is_meta() || u64::try_from(found.len()).is_ok_and(|found| found < u64::from(secondaries))
}
