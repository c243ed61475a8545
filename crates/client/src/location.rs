//! The cache of region locations: filled from hbase:meta, and invalidated by servers' exceptions.
//!
//! A lookup works as in HBase: it is a reversed scan of hbase:meta from `table,row,99999999999999`,
//! whose first row is the region that holds the row; the rows after it are cached too. hbase:meta
//! itself is found through the registry. Lookups of one table are a single flight: a caller that
//! waited checks the cache again, or takes the other caller's error if hbase:meta could not be
//! reached. The operation timeout bounds waiting and lookup together. The cache holds one entry for
//! each region of the tables in use.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableName};
use evenkeel_protocol::{PB_MAGIC, pb};
use parking_lot::{Mutex, RwLock};
use prost::Message;

use crate::error::{Error, Result};
use crate::result::RowResult;
use crate::rpc::{Endpoint, Pool, Service};

/// The region id in a search key that sorts after every existing id.
const LAST_ID: &str = "99999999999999";
/// The region id in a search key that sorts before every existing id.
const FIRST_ID: &str = "00000000000000";

/// A region and the server that last held it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLocation {
    /// The region.
    pub region: RegionInfo,
    /// Its server.
    pub server: ServerName,
    /// The sequence number of its opening there; -1 when unknown.
    pub seq_num: i64,
}

/// A location in the cache, with the endpoint for calls to it.
#[derive(Debug)]
pub(crate) struct CachedLocation {
    location: RegionLocation,
    /// ClientService of the region's server, set by the first call.
    endpoint: OnceLock<Arc<Endpoint>>,
    /// The region's other open replicas, by id.
    replicas: Vec<Arc<CachedLocation>>,
}

impl CachedLocation {
    pub(crate) fn new(location: RegionLocation) -> Self {
        Self { location, endpoint: OnceLock::new(), replicas: Vec::new() }
    }

    /// The region's other replicas.
    pub(crate) fn replicas(&self) -> &[Arc<CachedLocation>] {
        &self.replicas
    }

    /// The location of a replica; this one for id 0.
    ///
    /// # Errors
    /// [`Error::NoServer`] if it is not open.
    pub(crate) fn replica(self: &Arc<Self>, id: u32) -> Result<Arc<Self>> {
        let of_id = |location: &&Arc<Self>| u32::try_from(location.region.replica_id()) == Ok(id);
        std::iter::once(self).chain(&self.replicas).find(of_id).cloned().ok_or_else(|| {
            Error::NoServer(format!("replica {id} of {} is not open", self.region.name_text()))
        })
    }

    pub(crate) fn specifier(&self) -> pb::RegionSpecifier {
        region_specifier(&self.region)
    }

    pub(crate) fn address(&self) -> String {
        self.server.host_port()
    }

    /// ClientService of the region's server.
    pub(crate) fn endpoint(&self, pool: &Pool) -> &Endpoint {
        self.endpoint.get_or_init(|| pool.endpoint(&self.address(), Service::Client))
    }
}

impl Deref for CachedLocation {
    type Target = RegionLocation;

    fn deref(&self) -> &RegionLocation {
        &self.location
    }
}

/// Specifies a region by its full name.
pub(crate) fn region_specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    let kind = pb::region_specifier::RegionSpecifierType::RegionName;
    pb::RegionSpecifier { r#type: kind as i32, value: region.name().clone() }
}

/// Which region to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek<'a> {
    /// The region that holds the row.
    At(&'a [u8]),
    /// The region that holds the row before this row; the last region if this row is empty.
    Before(&'a [u8]),
}

impl Seek<'_> {
    fn holds(self, region: &RegionInfo) -> bool {
        match self {
            Self::At(row) => region.contains_row(row),
            Self::Before([]) => region.end_key().is_empty(),
            Self::Before(row) => {
                region.start_key()[..] < *row && (region.end_key().is_empty() || *row <= region.end_key()[..])
            }
        }
    }

    /// The row of hbase:meta to scan backwards from.
    pub(crate) fn meta_row(self, table: &TableName) -> Vec<u8> {
        let name = table.to_string().into_bytes();
        let (row, id) = match self {
            Self::At(row) => (row, LAST_ID),
            Self::Before([]) => return [&name[..], b"\0"].concat(),
            Self::Before(row) => (row, FIRST_ID),
        };
        [&name[..], b",", row, b",", id.as_bytes()].concat()
    }
}

/// The known regions of one table by start key.
#[derive(Debug, Default)]
pub(crate) struct TableLocations {
    regions: RwLock<BTreeMap<Bytes, Arc<CachedLocation>>>,
    /// Held by the one lookup of the table in flight. Contains the last failure to reach
    /// hbase:meta.
    pub(crate) lookup: tokio::sync::Mutex<Option<Error>>,
    /// The number of such failures. A caller that waited compares it to know whether one happened
    /// meanwhile.
    pub(crate) failures: AtomicU64,
}

impl TableLocations {
    pub(crate) fn find(&self, seek: Seek<'_>) -> Option<Arc<CachedLocation>> {
        let regions = self.regions.read();
        let found = match seek {
            Seek::At(row) => regions.range::<[u8], _>((Unbounded, Included(row))).next_back(),
            Seek::Before([]) => regions.iter().next_back(),
            Seek::Before(row) => regions.range::<[u8], _>((Unbounded, Excluded(row))).next_back(),
        };
        found.map(|(_, location)| location).filter(|location| seek.holds(&location.region)).cloned()
    }

    fn add(&self, location: Arc<CachedLocation>) {
        self.regions.write().insert(location.region.start_key().clone(), location);
    }

    fn clear(&self) {
        self.regions.write().clear();
    }
}

/// Locations by table and start key.
#[derive(Debug, Default)]
pub(crate) struct LocationCache {
    tables: Mutex<HashMap<TableName, Arc<TableLocations>>>,
}

impl LocationCache {
    /// A table's part of the cache. It lives as long as the cache.
    pub(crate) fn of_table(&self, table: &TableName) -> Arc<TableLocations> {
        let mut tables = self.tables.lock();
        match tables.get(table) {
            Some(locations) => locations.clone(),
            None => tables.entry(table.clone()).or_default().clone(),
        }
    }

    pub(crate) fn add(&self, location: Arc<CachedLocation>) {
        self.of_table(location.region.table()).add(location);
    }

    /// Removes a location, unless another one has replaced it.
    pub(crate) fn remove(&self, location: &Arc<CachedLocation>) {
        let table = self.of_table(location.region.table());
        let mut regions = table.regions.write();
        if regions.get(location.region.start_key()).is_some_and(|known| known.location == location.location) {
            regions.remove(location.region.start_key());
        }
    }

    /// Removes the region of which a location is a replica.
    pub(crate) fn remove_with_replicas(&self, location: &CachedLocation) {
        self.of_table(location.region.table()).regions.write().remove(location.region.start_key());
    }

    pub(crate) fn remove_table(&self, table: &TableName) {
        self.of_table(table).clear();
    }

    fn remove_server(&self, server: &ServerName) {
        let tables: Vec<_> = self.tables.lock().values().cloned().collect();
        for table in tables {
            let elsewhere = |location: &CachedLocation| location.server != *server;
            table
                .regions
                .write()
                .retain(|_, location| elsewhere(location) && location.replicas.iter().all(|r| elsewhere(r)));
        }
    }

    /// Invalidates the locations that a call's failure shows to be stale.
    pub(crate) fn on_error(&self, location: &Arc<CachedLocation>, error: &Error) {
        if !error.clears_location() {
            return;
        }
        if error.clears_server() {
            return self.remove_server(&location.server);
        }
        if location.region.replica_id() != 0 {
            return self.remove_with_replicas(location);
        }
        self.remove(location);
        if let Some((host, port)) = moved_to(error) {
            let (region, seq_num) = (location.region.clone(), location.seq_num);
            let location = RegionLocation { region, server: ServerName::new(&host, port, -1), seq_num };
            let moved = Arc::new(CachedLocation::new(location));
            // An entry that was added meanwhile is newer and stays.
            let table = self.of_table(moved.region.table());
            table.regions.write().entry(moved.region.start_key().clone()).or_insert(moved);
        }
    }
}

/// The server to which a region moved, from the exception's fields or its text.
fn moved_to(error: &Error) -> Option<(String, u16)> {
    let remote = error.remote().filter(|_| error.kind() == Some(evenkeel_common::ErrorKind::RegionMoved))?;
    let in_text = || {
        let rest = remote.message.split_once("hostname=")?.1;
        let (host, rest) = rest.split_once(" port=")?;
        Some((host.to_owned(), rest.split(' ').next()?.parse().ok()?))
    };
    remote.moved_to.clone().or_else(in_text)
}

/// The information about a region in a row of hbase:meta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaRow {
    pub(crate) region: RegionInfo,
    pub(crate) server: Option<ServerName>,
    pub(crate) seq_num: i64,
    pub(crate) state: Option<String>,
    /// The region's other replicas, without replicas of their own.
    pub(crate) replicas: Vec<MetaRow>,
}

/// The largest replica id: columns of replicas have ids of four hexadecimal digits.
const REPLICAS_MAX: i32 = 0xffff;

impl MetaRow {
    /// Reads a row; `None` for one that describes no region.
    pub(crate) fn read(row: &RowResult) -> Result<Option<Self>> {
        let Some(info) = row.value("info", "regioninfo").and_then(|v| v.strip_prefix(&PB_MAGIC[..])) else {
            return Ok(None);
        };
        let region = RegionInfo::try_from(&pb::RegionInfo::decode(info)?)?;
        let state = row.value("info", "state").map(|v| String::from_utf8_lossy(v).into_owned());
        let seq_num = row.counter("info", "seqnumDuringOpen").unwrap_or(-1);
        let replicas = replica_ids(row).map(|id| replica_row(row, &region, id)).collect();
        Ok(Some(Self { region, server: server_of(row, ""), seq_num, state, replicas }))
    }

    /// The location of the region and its replicas; `None` if the region has no server.
    pub(crate) fn location(self) -> Option<CachedLocation> {
        let location = RegionLocation { region: self.region, server: self.server?, seq_num: self.seq_num };
        let open = |replica: &Self| replica.state.as_deref().is_none_or(|state| state == "OPEN");
        let replicas = self.replicas.into_iter().filter(open).filter_map(Self::location);
        let replicas = replicas.map(Arc::new).collect();
        Some(CachedLocation { replicas, ..CachedLocation::new(location) })
    }
}

/// The server that a row names in the columns with a suffix.
fn server_of(row: &RowResult, suffix: &str) -> Option<ServerName> {
    let address = std::str::from_utf8(row.value("info", format!("server{suffix}"))?).ok()?;
    let (host, port) = address.rsplit_once(':')?;
    let start_code = row.counter("info", format!("serverstartcode{suffix}")).unwrap_or(-1);
    Some(ServerName::new(host, port.parse().ok()?, start_code))
}

/// The ids of the replicas for which a row has a column `server_ID`.
fn replica_ids(row: &RowResult) -> impl Iterator<Item = i32> {
    let of_column = |qualifier: &[u8]| {
        let digits = std::str::from_utf8(qualifier.strip_prefix(b"server_")?).ok()?;
        i32::from_str_radix(digits, 16).ok().filter(|id| (1..=REPLICAS_MAX).contains(id))
    };
    row.cells().iter().filter_map(move |cell| of_column(cell.as_cell().qualifier()))
}

fn replica_row(row: &RowResult, region: &RegionInfo, id: i32) -> MetaRow {
    let suffix = format!("_{id:04X}");
    let state = row.value("info", format!("state{suffix}"));
    let state = state.map(|state| String::from_utf8_lossy(state).into_owned());
    let seq_num = row.counter("info", format!("seqnumDuringOpen{suffix}")).unwrap_or(-1);
    let server = server_of(row, &suffix);
    MetaRow { region: region.replica(id), server, seq_num, state, replicas: Vec::new() }
}

/// Reads rows of a reversed scan of hbase:meta: the location of the region to find, then other
/// locations to cache.
pub(crate) fn locations_in_meta(
    seek: Seek<'_>,
    table: &TableName,
    rows: &[RowResult],
) -> Result<Vec<CachedLocation>> {
    if rows.is_empty() {
        return Err(Error::TableNotFound(table.clone()));
    }
    let mut locations: Vec<CachedLocation> = Vec::new();
    for row in rows.iter().map(MetaRow::read) {
        let Some(row) = row?.filter(|r| !r.region.is_split_parent() && r.region.table() == table) else {
            continue;
        };
        if locations.is_empty() && !seek.holds(&row.region) {
            return Err(Error::NoServer(format!("hbase:meta has a hole before {}", row.region.name_text())));
        }
        let (offline, name) = (row.region.is_offline(), row.region.name_text());
        match row.location().filter(|_| !offline) {
            Some(location) => locations.push(location),
            None if locations.is_empty() => return Err(Error::NoServer(format!("{name} is not online"))),
            None => {}
        }
    }
    match locations.is_empty() {
        true => Err(Error::NoServer(format!("no region of {table} for the row"))),
        false => Ok(locations),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;

    use super::*;
    use crate::error::RemoteException;

    fn table() -> TableName {
        "t".parse().expect("legal")
    }

    fn cached_location(start: &'static str, end: &'static str, port: u16) -> Arc<CachedLocation> {
        Arc::new(CachedLocation::new(location(start, end, port)))
    }

    fn location(start: &'static str, end: &'static str, port: u16) -> RegionLocation {
        let region = RegionInfo::new(table(), start.into(), end.into(), 1);
        RegionLocation { region, server: ServerName::new("h", port, 5), seq_num: 2 }
    }

    fn meta_row(location: &RegionLocation) -> RowResult {
        let name = location.region.name();
        let info = [&PB_MAGIC[..], &pb::RegionInfo::from(&location.region).encode_to_vec()].concat();
        let put = |q: &str, v: &[u8]| KeyValue::put(name, b"info", q.as_bytes(), 1, v);
        let cells = vec![
            put("regioninfo", &info),
            put("seqnumDuringOpen", &location.seq_num.to_be_bytes()),
            put("server", location.server.host_port().as_bytes()),
            put("serverstartcode", &location.server.start_code.to_be_bytes()),
        ];
        RowResult::new(cells, None, false)
    }

    fn found(seek: Seek<'_>, rows: &[RowResult]) -> Vec<RegionLocation> {
        locations_in_meta(seek, &table(), rows)
            .expect("found")
            .into_iter()
            .map(|location| location.location)
            .collect()
    }

    #[test]
    fn replicas_are_found_in_their_columns() {
        let location = location("", "g", 1);
        let name = location.region.name();
        let put = |q: &str, v: &[u8]| KeyValue::put(name, b"info", q.as_bytes(), 1, v);
        let mut cells = meta_row(&location).into_cells();
        cells.extend([put("server_0001", b"h2:7"), put("serverstartcode_0001", &9i64.to_be_bytes())]);
        cells.extend([put("server_000A", b"h3:8"), put("state_000A", b"OPEN")]);
        cells.extend([put("server_0002", b"h4:9"), put("state_0002", b"CLOSED"), put("server_x", b"h5:1")]);
        let row = RowResult::new(cells, None, false);
        let location =
            Arc::new(MetaRow::read(&row).expect("reads").and_then(MetaRow::location).expect("a location"));
        let known: Vec<_> =
            location.replicas().iter().map(|r| (r.region.replica_id(), r.server.port)).collect();
        assert_eq!(known, [(1, 7), (10, 8)]);
        assert_eq!(location.replica(1).expect("open").server.start_code, 9);
        assert_eq!(location.replica(0).expect("itself").server.port, 1);
        assert!(matches!(location.replica(2), Err(Error::NoServer(_))), "it is closed");
        assert_ne!(
            location.replica(1).expect("open").region.name(),
            name,
            "replicas have names of their own"
        );
        let cache = LocationCache::default();
        let known = || cache.of_table(&table()).find(Seek::At(b"")).is_some();
        cache.add(location.clone());
        let moved = RemoteException::new("org.apache.hadoop.hbase.NotServingRegionException", "");
        cache.on_error(&location.replicas()[0], &Error::Remote(Box::new(moved)));
        assert!(!known(), "a replica that has gone has the region looked up again");
    }

    #[test]
    fn rows_are_found_in_their_region_and_before_it() {
        let cache = LocationCache::default();
        cache.add(cached_location("", "g", 1));
        cache.add(cached_location("g", "p", 2));
        let port = |seek| cache.of_table(&table()).find(seek).map(|l| l.server.port);
        assert_eq!(port(Seek::At(b"")), Some(1));
        assert_eq!(port(Seek::At(b"g")), Some(2));
        assert_eq!(port(Seek::At(b"p")), None, "past the region that is known");
        assert_eq!(port(Seek::Before(b"g")), Some(1));
        assert_eq!(port(Seek::Before(b"p")), Some(2));
        assert_eq!(port(Seek::Before(b"")), None, "the last region is not known");
        cache.add(cached_location("p", "", 3));
        assert_eq!(port(Seek::Before(b"")), Some(3));
    }

    #[test]
    fn errors_invalidate_the_affected_locations() {
        let cache = LocationCache::default();
        let (a, b) = (cached_location("", "g", 1), cached_location("g", "", 1));
        let refill = || [&a, &b].map(|l| cache.add(Arc::clone(l)));
        let remote = |class: &str, text: &str| {
            Error::Remote(Box::new(RemoteException::new(&format!("org.apache.hadoop.hbase.{class}"), text)))
        };
        let known = || {
            [&b""[..], b"g"].map(|row| cache.of_table(&table()).find(Seek::At(row)).map(|l| l.server.port))
        };
        refill();
        cache.on_error(&a, &remote("RegionTooBusyException", ""));
        assert_eq!(known(), [Some(1), Some(1)]);
        cache.on_error(&a, &remote("NotServingRegionException", ""));
        assert_eq!(known(), [None, Some(1)]);
        refill();
        let text = "Region moved to: hostname=h2 port=7 startCode=1. As of locationSeqNum=5.";
        cache.on_error(&a, &remote("exceptions.RegionMovedException", text));
        assert_eq!(known(), [Some(7), Some(1)]);
        cache.on_error(&a, &remote("NotServingRegionException", ""));
        assert_eq!(known(), [Some(7), Some(1)], "an old location says nothing about a newer one");
        refill();
        cache.on_error(&a, &Error::Connection("lost".into()));
        assert_eq!(known(), [None, None]);
    }

    #[test]
    fn meta_rows_are_read_and_holes_are_not_covered_up() {
        let (a, b) = (location("", "g", 1), location("g", "", 1));
        let rows = [meta_row(&b), meta_row(&a)];
        assert_eq!(found(Seek::At(b"x"), &rows), [b, a]);
        assert!(matches!(locations_in_meta(Seek::At(b"x"), &table(), &rows[1..]), Err(Error::NoServer(_))));
        assert!(matches!(locations_in_meta(Seek::At(b"x"), &table(), &[]), Err(Error::TableNotFound(_))));
    }

    #[test]
    fn parents_of_splits_are_passed_over() {
        let mut parent = location("", "", 1);
        parent.region = parent.region.with_flags(true, true);
        let daughter = location("", "g", 2);
        let rows = [meta_row(&parent), meta_row(&daughter)];
        assert_eq!(found(Seek::At(b"c"), &rows), [daughter]);
    }

    #[test]
    fn meta_search_rows_are_those_of_hbase() {
        assert_eq!(Seek::At(b"r").meta_row(&table()), b"t,r,99999999999999");
        assert_eq!(Seek::Before(b"r").meta_row(&table()), b"t,r,00000000000000");
        assert_eq!(Seek::Before(b"").meta_row(&table()), b"t\0");
    }
}
