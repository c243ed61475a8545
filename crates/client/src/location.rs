//! Which server holds a row: looked up in hbase:meta, cached, and forgotten when a server says otherwise.
//!
//! A lookup is HBase's own: a reversed scan of hbase:meta from `table,row,99999999999999`, whose first row is the
//! region that holds the row; the rows after it are cached too. hbase:meta itself is found through the registry. One
//! lookup per table runs at a time, and who waited for it looks into the cache first. The cache holds one entry per
//! region of the tables in use.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableName};
use evenkeel_protocol::{PB_MAGIC, pb};
use parking_lot::Mutex;
use prost::Message;

use crate::error::{Error, Result};
use crate::result::RowResult;

/// The id in a search key: after every region id that exists.
const LAST_ID: &str = "99999999999999";
/// The id in a search key: before every region id that exists.
const FIRST_ID: &str = "00000000000000";

/// A region and the server that it was last seen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLocation {
    /// The region.
    pub region: RegionInfo,
    /// Its server.
    pub server: ServerName,
    /// The sequence number of its opening there; -1 when unknown.
    pub seq_num: i64,
}

impl RegionLocation {
    pub(crate) fn specifier(&self) -> pb::RegionSpecifier {
        region_specifier(&self.region)
    }

    pub(crate) fn address(&self) -> String {
        self.server.host_port()
    }
}

/// A region by its full name.
pub(crate) fn region_specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    let kind = pb::region_specifier::RegionSpecifierType::RegionName;
    pb::RegionSpecifier { r#type: kind as i32, value: region.name().clone() }
}

/// Which region is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek<'a> {
    /// The one that holds the row.
    At(&'a [u8]),
    /// The one that holds the row before this one; the last one when this is empty.
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

type Regions = BTreeMap<Bytes, Arc<RegionLocation>>;

/// Locations by table and start key.
#[derive(Debug, Default)]
pub(crate) struct LocationCache {
    tables: Mutex<HashMap<TableName, Regions>>,
    lookups: Mutex<HashMap<TableName, Arc<tokio::sync::Mutex<()>>>>,
}

impl LocationCache {
    pub(crate) fn find(&self, table: &TableName, seek: Seek<'_>) -> Option<Arc<RegionLocation>> {
        let tables = self.tables.lock();
        let regions = tables.get(table)?;
        let found = match seek {
            Seek::At(row) => regions.range::<[u8], _>((Unbounded, Included(row))).next_back(),
            Seek::Before([]) => regions.iter().next_back(),
            Seek::Before(row) => regions.range::<[u8], _>((Unbounded, Excluded(row))).next_back(),
        };
        found.map(|(_, location)| location).filter(|location| seek.holds(&location.region)).cloned()
    }

    pub(crate) fn add(&self, location: Arc<RegionLocation>) {
        let mut tables = self.tables.lock();
        let regions = tables.entry(location.region.table().clone()).or_default();
        regions.insert(location.region.start_key().clone(), location);
    }

    /// Forgets a location, unless a newer one has taken its place.
    pub(crate) fn remove(&self, location: &Arc<RegionLocation>) {
        let mut tables = self.tables.lock();
        let Some(regions) = tables.get_mut(location.region.table()) else { return };
        if regions.get(location.region.start_key()).is_some_and(|known| known == location) {
            regions.remove(location.region.start_key());
        }
    }

    pub(crate) fn remove_table(&self, table: &TableName) {
        self.tables.lock().remove(table);
    }

    fn remove_server(&self, server: &ServerName) {
        self.tables.lock().values_mut().for_each(|regions| regions.retain(|_, l| l.server != *server));
    }

    /// Draws the conclusions from a call's failure.
    pub(crate) fn on_error(&self, location: &Arc<RegionLocation>, error: &Error) {
        if !error.clears_location() {
            return;
        }
        if error.clears_server() {
            return self.remove_server(&location.server);
        }
        self.remove(location);
        if let Some((host, port)) = moved_to(error) {
            let server = ServerName::new(&host, port, -1);
            self.add(Arc::new(RegionLocation { server, ..RegionLocation::clone(location) }));
        }
    }

    /// The lock that one lookup of a table at a time holds.
    pub(crate) fn lookup(&self, table: &TableName) -> Arc<tokio::sync::Mutex<()>> {
        self.lookups.lock().entry(table.clone()).or_default().clone()
    }
}

/// Where a region went, by the exception's fields or its text.
fn moved_to(error: &Error) -> Option<(String, u16)> {
    let remote = error.remote().filter(|_| error.kind() == Some(evenkeel_common::ErrorKind::RegionMoved))?;
    let in_text = || {
        let rest = remote.message.split_once("hostname=")?.1;
        let (host, rest) = rest.split_once(" port=")?;
        Some((host.to_owned(), rest.split(' ').next()?.parse().ok()?))
    };
    remote.moved_to.clone().or_else(in_text)
}

/// What a row of hbase:meta says about a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaRow {
    pub(crate) region: RegionInfo,
    pub(crate) server: Option<ServerName>,
    pub(crate) seq_num: i64,
    pub(crate) state: Option<String>,
}

impl MetaRow {
    /// Reads a row; `None` for one that describes no region.
    pub(crate) fn read(row: &RowResult) -> Result<Option<Self>> {
        let Some(info) = row.value("info", "regioninfo").and_then(|v| v.strip_prefix(&PB_MAGIC[..])) else {
            return Ok(None);
        };
        let region = RegionInfo::try_from(&pb::RegionInfo::decode(info)?)?;
        let state = row.value("info", "state").map(|v| String::from_utf8_lossy(v).into_owned());
        let seq_num = row.counter("info", "seqnumDuringOpen").unwrap_or(-1);
        Ok(Some(Self { region, server: server_of(row), seq_num, state }))
    }

    pub(crate) fn location(&self) -> Option<RegionLocation> {
        let server = self.server.clone()?;
        Some(RegionLocation { region: self.region.clone(), server, seq_num: self.seq_num })
    }
}

fn server_of(row: &RowResult) -> Option<ServerName> {
    let address = std::str::from_utf8(row.value("info", "server")?).ok()?;
    let (host, port) = address.rsplit_once(':')?;
    let start_code = row.counter("info", "serverstartcode").unwrap_or(-1);
    Some(ServerName::new(host, port.parse().ok()?, start_code))
}

/// The location of the sought region among rows of hbase:meta that were scanned backwards, and the others to cache.
pub(crate) fn pick(seek: Seek<'_>, table: &TableName, rows: &[RowResult]) -> Result<Vec<RegionLocation>> {
    if rows.is_empty() {
        return Err(Error::TableNotFound(table.clone()));
    }
    let mut locations: Vec<RegionLocation> = Vec::new();
    for row in rows.iter().map(MetaRow::read) {
        let Some(row) = row?.filter(|r| !r.region.is_split_parent() && r.region.table() == table) else {
            continue;
        };
        if locations.is_empty() && !seek.holds(&row.region) {
            return Err(Error::NoServer(format!("hbase:meta has a hole before {}", row.region.name_text())));
        }
        match row.location().filter(|_| !row.region.is_offline()) {
            Some(location) => locations.push(location),
            None if locations.is_empty() => {
                return Err(Error::NoServer(format!("{} is not online", row.region.name_text())));
            }
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
            put("server", location.address().as_bytes()),
            put("serverstartcode", &location.server.start_code.to_be_bytes()),
        ];
        RowResult::new(cells, None, false)
    }

    #[test]
    fn rows_are_found_in_their_region_and_before_it() {
        let cache = LocationCache::default();
        cache.add(location("", "g", 1).into());
        cache.add(location("g", "p", 2).into());
        let port = |seek| cache.find(&table(), seek).map(|l| l.server.port);
        assert_eq!(port(Seek::At(b"")), Some(1));
        assert_eq!(port(Seek::At(b"g")), Some(2));
        assert_eq!(port(Seek::At(b"p")), None, "past the region that is known");
        assert_eq!(port(Seek::Before(b"g")), Some(1));
        assert_eq!(port(Seek::Before(b"p")), Some(2));
        assert_eq!(port(Seek::Before(b"")), None, "the last region is not known");
        cache.add(location("p", "", 3).into());
        assert_eq!(port(Seek::Before(b"")), Some(3));
    }

    #[test]
    fn failures_forget_what_they_should() {
        let cache = LocationCache::default();
        let (a, b): (Arc<_>, Arc<_>) = (location("", "g", 1).into(), location("g", "", 1).into());
        let refill = || [&a, &b].map(|l| cache.add(Arc::clone(l)));
        let remote = |class: &str, text: &str| {
            Error::Remote(Box::new(RemoteException::new(&format!("org.apache.hadoop.hbase.{class}"), text)))
        };
        let known = || [&b""[..], b"g"].map(|row| cache.find(&table(), Seek::At(row)).map(|l| l.server.port));
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
        assert_eq!(pick(Seek::At(b"x"), &table(), &rows).expect("found"), [b, a]);
        assert!(matches!(pick(Seek::At(b"x"), &table(), &rows[1..]), Err(Error::NoServer(_))));
        assert!(matches!(pick(Seek::At(b"x"), &table(), &[]), Err(Error::TableNotFound(_))));
    }

    #[test]
    fn parents_of_splits_are_passed_over() {
        let mut parent = location("", "", 1);
        parent.region = parent.region.with_flags(true, true);
        let daughter = location("", "g", 2);
        let rows = [meta_row(&parent), meta_row(&daughter)];
        assert_eq!(pick(Seek::At(b"c"), &table(), &rows).expect("found"), [daughter]);
    }

    #[test]
    fn search_keys_are_hbases() {
        assert_eq!(Seek::At(b"r").meta_row(&table()), b"t,r,99999999999999");
        assert_eq!(Seek::Before(b"r").meta_row(&table()), b"t,r,00000000000000");
        assert_eq!(Seek::Before(b"").meta_row(&table()), b"t\0");
    }
}
