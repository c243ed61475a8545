//! [`OnlineRegions`]: the regions that are online on this server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use evenkeel_common::clock::Clock;
use evenkeel_common::{ErrorKind, HBaseError, Result, ServerName, TableName, quoted};
use evenkeel_region::region::Region;
use parking_lot::Mutex;

/// How long a server remembers where a region moved (`TIMEOUT_REGION_MOVED`).
const MOVED_MS: i64 = 120_000;

type Map = HashMap<String, Arc<Region>>;

struct Moved {
    to: ServerName,
    seq_num: i64,
    until_ms: i64,
}

#[derive(Default)]
struct Transitions {
    opening: HashSet<String>,
    moved: HashMap<String, Moved>,
}

/// Regions by encoded name. Readers load a pointer to an immutable map; a change replaces the map.
pub struct OnlineRegions {
    server: ServerName,
    clock: Arc<dyn Clock>,
    map: ArcSwap<Map>,
    changes: AtomicU64,
    transitions: Mutex<Transitions>,
}

impl OnlineRegions {
    /// Creates an empty map.
    pub fn new(server: ServerName, clock: Arc<dyn Clock>) -> Self {
        Self {
            server,
            clock,
            map: ArcSwap::default(),
            changes: AtomicU64::new(0),
            transitions: Mutex::default(),
        }
    }

    /// Returns the region with an encoded name, if it is online.
    pub fn find(&self, encoded_name: &str) -> Option<Arc<Region>> {
        self.map.load().get(encoded_name).cloned()
    }

    /// Returns the region with an encoded name; `asked` is the name that the client sent.
    ///
    /// # Errors
    /// `RegionMovedException`, `RegionOpeningException` or `NotServingRegionException`.
    pub fn get(&self, encoded_name: &str, asked: &[u8]) -> Result<Arc<Region>> {
        self.find(encoded_name).ok_or_else(|| self.absent(encoded_name, asked))
    }

    /// Returns true if exactly this region, not another one of the same name, is online.
    pub fn serves(&self, region: &Arc<Region>) -> bool {
        self.map.load().get(region.info().encoded_name()).is_some_and(|online| Arc::ptr_eq(online, region))
    }

    /// Returns all regions, unordered.
    pub fn all(&self) -> Vec<Arc<Region>> {
        self.map.load().values().cloned().collect()
    }

    /// Returns a table's regions, ordered by start key, with their secondary replicas.
    pub fn of_table(&self, table: &TableName) -> Vec<Arc<Region>> {
        let map = self.map.load();
        let mut regions: Vec<_> =
            map.values().filter(|region| region.info().table() == table).cloned().collect();
        regions.sort_by(|a, b| a.info().start_key().cmp(b.info().start_key()));
        regions
    }

    /// As [`OnlineRegions::of_table`], without secondary replicas.
    pub fn primaries_of_table(&self, table: &TableName) -> Vec<Arc<Region>> {
        let mut regions = self.of_table(table);
        regions.retain(|region| !region.is_secondary());
        regions
    }

    /// Returns the number of a table's regions, without secondary replicas.
    pub fn count_of(&self, table: &TableName) -> usize {
        let is_counted = |region: &&Arc<Region>| region.info().table() == table && region.info().is_primary();
        self.map.load().values().filter(is_counted).count()
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.map.load().len()
    }

    /// Returns how often a region was added or removed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Returns true if there are no regions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Marks a region as opening or not, so that clients wait for it instead of locating it again.
    pub fn set_opening(&self, encoded_name: &str, opening: bool) {
        let names = &mut self.transitions.lock().opening;
        match opening {
            true => _ = names.insert(encoded_name.to_owned()),
            false => _ = names.remove(encoded_name),
        }
    }

    /// Adds a region. Returns the region of the same name that was online before.
    pub fn add(&self, region: Arc<Region>) -> Option<Arc<Region>> {
        let name = region.info().encoded_name().to_owned();
        let mut transitions = self.transitions.lock();
        transitions.opening.remove(&name);
        transitions.moved.remove(&name);
        let before = self.find(&name);
        self.change(|map| _ = map.insert(name, region));
        before
    }

    /// Removes a region. With `moved_to` (server, open sequence number), clients are redirected to
    /// the new server.
    pub fn remove(&self, encoded_name: &str, moved_to: Option<(ServerName, i64)>) -> Option<Arc<Region>> {
        let mut transitions = self.transitions.lock();
        let now_ms = self.clock.now_ms();
        transitions.moved.retain(|_, moved| moved.until_ms > now_ms);
        if let Some((to, seq_num)) = moved_to.filter(|(to, _)| *to != self.server) {
            let moved = Moved { to, seq_num, until_ms: now_ms + MOVED_MS };
            transitions.moved.insert(encoded_name.to_owned(), moved);
        }
        let region = self.find(encoded_name);
        self.change(|map| _ = map.remove(encoded_name));
        region
    }

    /// Replaces the map. Called only with the transitions locked, so no change is lost.
    fn change(&self, edit: impl FnOnce(&mut Map)) {
        let mut map = Map::clone(&self.map.load());
        edit(&mut map);
        self.map.store(Arc::new(map));
        self.changes.fetch_add(1, Relaxed);
    }

    fn absent(&self, encoded_name: &str, asked: &[u8]) -> HBaseError {
        let transitions = self.transitions.lock();
        let now_ms = self.clock.now_ms();
        if let Some(moved) = transitions.moved.get(encoded_name).filter(|moved| moved.until_ms > now_ms) {
            return HBaseError::region_moved(
                &moved.to.host,
                moved.to.port,
                moved.to.start_code,
                moved.seq_num,
            );
        }
        let name = quoted(asked).to_string();
        if transitions.opening.contains(encoded_name) {
            let message = format!("Region {name} is opening on {}", self.server);
            return HBaseError::new(ErrorKind::RegionOpening, message);
        }
        HBaseError::not_serving(&name, &self.server.to_string())
    }
}
