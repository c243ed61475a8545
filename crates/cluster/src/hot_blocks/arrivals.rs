//! [`Arrivals`]: lists of hot blocks of regions that open here, and the thread that fetches them.
//!
//! A list waits by the name of its region. It is queued when it is received and the region is open,
//! or when the region opens, whichever comes last. The thread takes it out, and fetches its blocks
//! while the region is online.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use evenkeel_common::thread::{catch_and_log, spawn_restarted};
use evenkeel_common::{HBaseError, Result, clock, length};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_regionserver::RegionServer;
use parking_lot::Mutex;

use super::{HotBlockSettings, list, lower_priority};

/// The limits on the lists that wait, all together. Further ones are dropped.
const LISTS_MAX: usize = 1000;
const HELD_BYTES_MAX: usize = 4 << 20;
/// The limit on a region's name: an encoded name has 32 bytes.
const NAME_BYTES_MAX: usize = 64;

/// A list that waits for its region, or for the thread.
struct HeldList {
    list: Bytes,
    /// The number of its blocks.
    blocks: u64,
    until: Instant,
}

/// See the module's documentation.
pub(super) struct Arrivals {
    server: Arc<RegionServer>,
    settings: HotBlockSettings,
    /// By the encoded name of the region.
    held: Mutex<HashMap<String, HeldList>>,
    /// Names of open regions with a list.
    queue: Sender<String>,
}

impl Arrivals {
    /// Starts the thread.
    pub fn start(server: &Arc<RegionServer>, settings: HotBlockSettings) -> io::Result<Arc<Self>> {
        let (queue, names) = bounded(LISTS_MAX);
        let arrivals = Arc::new(Self { server: Arc::clone(server), settings, held: Mutex::default(), queue });
        let (weak, rate) = (Arc::downgrade(&arrivals), settings.bytes_per_second);
        drop(spawn_restarted("fetch-hot-blocks", move || run(&weak, &names, Pacer::new(rate)))?);
        Ok(arrivals)
    }

    /// See [`super::HotBlocks::receive`].
    pub fn receive(&self, request: &pb::HotBlocksRequest) -> Result<()> {
        let region = std::str::from_utf8(&request.region).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
        let blocks = list::decode(&request.blocks).map(|groups| list::count(&groups));
        let (Some(region), Some(blocks)) = (region, blocks) else {
            return Err(HBaseError::do_not_retry("the list of hot blocks cannot be read"));
        };
        self.server.hot_block_counts().received.fetch_add(blocks, Relaxed);
        // A copy: a part of the frame would keep all of it.
        let list = Bytes::copy_from_slice(&request.blocks);
        self.hold(region, HeldList { list, blocks, until: clock::monotonic() + self.settings.wait });
        if self.server.regions().find(region).is_some() {
            self.region_opened(region);
        }
        Ok(())
    }

    /// Holds a list in place of an earlier one, if the limits permit it.
    fn hold(&self, region: &str, new: HeldList) {
        let mut held = self.held.lock();
        let now = clock::monotonic();
        held.retain(|name, list| {
            let stays = name != region && list.until > now;
            if !stays {
                self.count_dropped(list.blocks);
            }
            stays
        });
        let bytes = held.values().map(|list| list.list.len()).sum::<usize>() + new.list.len();
        if held.len() >= LISTS_MAX || bytes > HELD_BYTES_MAX {
            return self.count_dropped(new.blocks);
        }
        held.insert(region.to_owned(), new);
    }

    /// See [`super::HotBlocks::region_opened`].
    pub fn region_opened(&self, region: &str) {
        if self.held.lock().contains_key(region) {
            // If the queue is full, the list expires.
            drop(self.queue.try_send(region.to_owned()));
        }
    }

    fn fetch_of(&self, name: &str, pacer: &mut Pacer) {
        let Some(list) = self.held.lock().remove(name) else { return };
        let region = self.server.regions().find(name).filter(|_| list.until > clock::monotonic());
        match region {
            Some(region) => self.fetch(&region, &list, pacer),
            None => self.count_dropped(list.blocks),
        }
    }

    fn fetch(&self, region: &Arc<Region>, list: &HeldList, pacer: &mut Pacer) {
        let began = clock::monotonic();
        let mut may_read = |bytes: usize| {
            std::thread::sleep(pacer.delay(clock::monotonic(), bytes));
            self.server.regions().serves(region)
        };
        let mut fetched = 0;
        for group in list::decode(&list.list).unwrap_or_default() {
            match region.fetch_blocks(group.file, &group.blocks, group.heat, &mut may_read) {
                Ok(blocks) => {
                    fetched += blocks;
                    self.server.hot_block_counts().fetched.fetch_add(blocks, Relaxed);
                }
                Err(error) => {
                    tracing::warn!(region = %region.info().name_text(), %error, "hot blocks are not fetched");
                    break;
                }
            }
        }
        self.count_dropped(list.blocks.saturating_sub(fetched));
        let ms = length::whole_ms(clock::since(began));
        let name = region.info().name_text();
        tracing::info!(region = %name, told = list.blocks, fetched, ms, "fetched blocks that were hot on the region's previous server");
    }

    fn count_dropped(&self, blocks: u64) {
        self.server.hot_block_counts().dropped.fetch_add(blocks, Relaxed);
    }

    /// The number of lists that wait, and their bytes.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.len(), held.values().map(|list| list.list.len()).sum())
    }
}

/// The thread, which ends when the lists are dropped.
fn run(arrivals: &Weak<Arrivals>, names: &Receiver<String>, mut pacer: Pacer) {
    lower_priority("hot blocks are fetched");
    for name in names {
        let Some(arrivals) = arrivals.upgrade() else { return };
        catch_and_log("fetching hot blocks", || arrivals.fetch_of(&name, &mut pacer));
    }
}

/// Spreads reads over time. It has no burst: a read is due when the earlier ones would have ended
/// at the rate.
struct Pacer {
    bytes_per_second: u64,
    due: Option<Instant>,
}

impl Pacer {
    fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), due: None }
    }

    /// Returns how long a read has to wait from now.
    fn delay(&mut self, now: Instant, bytes: usize) -> Duration {
        let start = self.due.map_or(now, |due| due.max(now));
        let seconds = bytes as f64 / self.bytes_per_second as f64;
        self.due = Some(start + Duration::from_secs_f64(seconds.min(DELAY_MAX.as_secs_f64())));
        start - now
    }
}

/// The longest delay that one read causes.
const DELAY_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod pacer_tests {
    use super::*;

    #[test]
    fn reads_are_spread_over_time() {
        let (mut pacer, now) = (Pacer::new(1000), clock::monotonic());
        let ms = Duration::from_millis;
        assert_eq!(pacer.delay(now, 100), ms(0));
        assert_eq!(pacer.delay(now, 200), ms(100));
        assert_eq!(pacer.delay(now + ms(50), 1), ms(250));
        assert_eq!(pacer.delay(now + ms(5000), 1), ms(0), "time that was not used is lost");
        let mut slow = Pacer::new(0);
        slow.delay(now, usize::MAX);
        assert_eq!(slow.delay(now, 1), DELAY_MAX);
    }
}
