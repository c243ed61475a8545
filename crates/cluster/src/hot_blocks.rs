//! [`HotBlocks`]: a region that moves between two Evenkeel servers takes its warm cache along.
//!
//! ```text
//! old server                                     new server
//! close of a move -> region_closes               AdminService, EvenkeelHotBlocks -> receive
//!   tell-hot-blocks: hot blocks of the cache  --->  list, held until the region is open
//!                                                open -> region_opened
//!                                                  fetch-hot-blocks: reads the blocks
//! ```
//!
//! The old server sends positions, no bytes: the new server reads the blocks from the file system,
//! like any reader. The list is a hint. If it is lost, late or wrong, the region is cold, as after
//! a move between HBase's servers, and nothing else follows. A close and an open only add to a
//! queue; neither waits, and neither fails because of a list.
//!
//! **Which moves.** A close that names another server as the destination: `move`, the balancer, and
//! a server that stops. A close for a split, a merge, or a disabled table names none. A destination
//! that is not Evenkeel is not called: its znode has its build ([`Peers`]). A server that refuses
//! is not called again.
//!
//! **Which blocks.** Those that the cache's policy counts as requested repeatedly, the hottest
//! first, up to the settings' numbers. On the new server a block is read and cached only if it fits
//! into free space, or if it was requested more often than blocks that the policy evicts next. So a
//! region that arrives never replaces hotter blocks of other regions.
//!
//! **What a wrong list can do.** Lists come from a socket. One is limited in bytes and blocks
//! (`list`), all held lists together are limited, too, and each expires. Files that the region
//! does not have are ignored, and so are positions without a block. Reads are limited to a rate, on
//! a thread of reduced priority.

mod arrivals;
mod list;
mod peers;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use evenkeel_block_cache::{BlockCache, FileId};
use evenkeel_common::thread::{catch_and_log, spawn_restarted};
use evenkeel_common::{Configuration, HBaseError, Result, ServerName, length, priority};
use evenkeel_process::io_error;
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_regionserver::RegionServer;

use self::arrivals::Arrivals;
pub use self::peers::{ClusterPeers, Peers};

/// Regions that close and whose list is not sent yet. Further ones are not told.
const DEPARTURES_MAX: usize = 1000;

/// How much is told and fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotBlockSettings {
    /// `evenkeel.regionserver.hot.blocks.max`: blocks told of one region; 0 tells none. At most
    /// 65,536.
    pub blocks_max: usize,
    /// `evenkeel.regionserver.hot.blocks.size.max`: their bytes in the store files.
    pub bytes_max: u64,
    /// `evenkeel.regionserver.hot.blocks.throughput`: bytes read per second for regions that
    /// arrive; 0 refuses lists.
    pub bytes_per_second: u64,
    /// How long a list waits for its region, and for its turn.
    pub wait: Duration,
}

impl Default for HotBlockSettings {
    fn default() -> Self {
        Self {
            blocks_max: list::BLOCKS_MAX,
            bytes_max: 1 << 30,
            bytes_per_second: 128 << 20,
            wait: Duration::from_secs(60),
        }
    }
}

impl HotBlockSettings {
    /// Reads the keys.
    ///
    /// # Errors
    /// Returns a one-line error that names the key, its value and the expected form.
    pub fn from(conf: &Configuration) -> Result<Self> {
        let default = Self::default();
        let number = |key: &str, default: u64| conf.get_u64_or(key, default).map_err(io_error);
        let blocks_max = number("evenkeel.regionserver.hot.blocks.max", list::BLOCKS_MAX as u64)?;
        let throughput = "evenkeel.regionserver.hot.blocks.throughput";
        Ok(Self {
            blocks_max: length::index(blocks_max.min(list::BLOCKS_MAX as u64)),
            bytes_max: number("evenkeel.regionserver.hot.blocks.size.max", default.bytes_max)?,
            bytes_per_second: number(throughput, default.bytes_per_second)?,
            ..default
        })
    }
}

/// A region that closes here and opens on another server.
struct Departure {
    region: String,
    files: Vec<FileId>,
    to: ServerName,
}

/// See the module's documentation.
pub struct HotBlocks {
    server: Arc<RegionServer>,
    settings: HotBlockSettings,
    departures: Sender<Departure>,
    arrivals: Arc<Arrivals>,
}

impl HotBlocks {
    /// Starts the threads. `cache` is that of the server's regions.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start(
        server: &Arc<RegionServer>,
        cache: &Arc<dyn BlockCache>,
        peers: Arc<dyn Peers>,
        settings: HotBlockSettings,
    ) -> io::Result<Arc<Self>> {
        let (departures, queue) = bounded(DEPARTURES_MAX);
        let teller = Teller { server: Arc::clone(server), cache: Arc::clone(cache), peers, settings, queue };
        drop(spawn_restarted("tell-hot-blocks", move || teller.run())?);
        let arrivals = Arrivals::start(server, settings)?;
        Ok(Arc::new(Self { server: Arc::clone(server), settings, departures, arrivals }))
    }

    /// A region is about to be closed, and opened on another server. Returns at once.
    pub fn region_closes(&self, region: &Region, to: &ServerName) {
        if self.settings.blocks_max == 0 || to == self.server.name() {
            return;
        }
        let region_name = region.info().encoded_name().to_owned();
        let departure = Departure { region: region_name, files: region.file_ids(), to: to.clone() };
        if self.departures.try_send(departure).is_err() {
            tracing::debug!(
                region = region.info().encoded_name(),
                "too many regions close to tell its blocks"
            );
        }
    }

    /// Takes the list of a region that is to open here. Returns at once.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the list cannot be read, or lists are refused.
    pub fn receive(&self, request: &pb::HotBlocksRequest) -> Result<()> {
        if self.settings.bytes_per_second == 0 {
            return Err(HBaseError::do_not_retry("evenkeel.regionserver.hot.blocks.throughput is 0"));
        }
        self.arrivals.receive(request)
    }

    /// A region was opened here. Returns at once.
    pub fn region_opened(&self, region: &Region) {
        self.arrivals.region_opened(region.info().encoded_name());
    }
}

/// The thread that tells other servers what is hot.
struct Teller {
    server: Arc<RegionServer>,
    cache: Arc<dyn BlockCache>,
    peers: Arc<dyn Peers>,
    settings: HotBlockSettings,
    queue: Receiver<Departure>,
}

impl Teller {
    fn run(&self) {
        lower_priority("hot blocks are told");
        for departure in &self.queue {
            catch_and_log("telling hot blocks", || self.tell(&departure));
        }
    }

    fn tell(&self, departure: &Departure) {
        let Departure { region, files, to } = departure;
        if files.is_empty() || !self.peers.takes_lists(to) {
            return;
        }
        let hottest = self.cache.hot_blocks(files, self.settings.blocks_max);
        let groups = list::group(&hottest, self.settings.bytes_max);
        let blocks = list::count(&groups);
        if blocks == 0 {
            return;
        }
        let request = pb::HotBlocksRequest {
            region: region.clone().into_bytes().into(),
            blocks: list::encode(&groups).into(),
        };
        match self.peers.tell(to, request) {
            Ok(()) => {
                self.server.hot_block_counts().told.fetch_add(blocks, Relaxed);
                tracing::info!(region, server = %to, blocks, "told hot blocks to the region's next server");
            }
            Err(error) => tracing::info!(region, server = %to, %error, "hot blocks could not be told"),
        }
    }
}

/// Lowers the calling thread's priority.
fn lower_priority(what: &str) {
    if let Err(error) = priority::lower(priority::REDUCED_NICE) {
        tracing::warn!(%error, "{what} at normal priority");
    }
}
