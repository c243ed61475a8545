//! The compared properties of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use evenkeel_client::{Admin, Connection, Error, Scan, TableState};
use evenkeel_common::TableName;

/// A cluster as its clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    pub tables: BTreeMap<String, Table>,
    /// With their settings.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub snapshots: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub state: TableState,
    /// Families and their VERSIONS.
    pub families: BTreeMap<String, String>,
    /// MAX_FILESIZE.
    pub file_bytes_max: Option<String>,
    /// Start keys of the regions, which cover all keys.
    pub starts: Vec<Bytes>,
    /// `row/family` of all cells; unknown while the table is disabled.
    pub cells: Option<Vec<String>>,
}

impl ClusterState {
    /// Queries all properties.
    pub async fn of(connection: &Connection) -> Result<Self, String> {
        let (admin, mut state) = (connection.admin(), Self::default());
        for name in admin.list_tables().await.map_err(say("list"))? {
            let table = Table::of(connection, &name).await.map_err(|e| format!("{name}: {e}"))?;
            state.tables.insert(name.to_string(), table);
        }
        for namespace in admin.list_namespaces().await.map_err(say("namespaces"))? {
            state.namespaces.insert(namespace.name, namespace.configuration);
        }
        let snapshots = admin.list_snapshots().await.map_err(say("snapshots"))?;
        state.snapshots = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
        Ok(state)
    }

    /// The tables whose cells are unknown.
    pub fn disabled_tables(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().filter(|(_, table)| table.cells.is_none()).map(|(name, _)| name.as_str())
    }

    /// The differences of another state, as text.
    pub fn differences(&self, found: &Self) -> String {
        let mut lines = Vec::new();
        let names: BTreeSet<_> = self.tables.keys().chain(found.tables.keys()).collect();
        for name in names {
            let (expected, found) = (self.tables.get(name), found.tables.get(name));
            if expected != found {
                lines.push(format!("{name} is {found:?}\n  not {expected:?}"));
            }
        }
        if self.namespaces != found.namespaces {
            lines.push(format!("namespaces {:?} not {:?}", found.namespaces, self.namespaces));
        }
        if self.snapshots != found.snapshots {
            lines.push(format!("snapshots {:?} not {:?}", found.snapshots, self.snapshots));
        }
        lines.join("\n")
    }
}

impl Table {
    async fn of(connection: &Connection, name: &TableName) -> Result<Self, String> {
        let admin = connection.admin();
        let state = admin.table_state(name).await.map_err(say("state"))?.ok_or("it has no state")?;
        let described = admin.describe(name).await.map_err(say("describe"))?;
        let versions = |family: &evenkeel_common::ColumnFamilyDescriptor| {
            (family.name_text(), family.text("VERSIONS").unwrap_or("1").to_owned())
        };
        let file_bytes_max = described.text("MAX_FILESIZE").map(str::to_owned);
        let families = described.families().map(versions).collect();
        let starts = cover(&admin, name, state).await?;
        let cells = match state {
            TableState::Enabled => Some(cells(connection, name).await.map_err(say("scan"))?),
            _ => None,
        };
        Ok(Self { state, families, file_bytes_max, starts, cells })
    }
}

fn say(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Start keys of the regions, which must cover all keys.
async fn cover(admin: &Admin, name: &TableName, state: TableState) -> Result<Vec<Bytes>, String> {
    let regions = admin.regions(name).await.map_err(say("regions"))?;
    let (mut end, mut starts) = (Some(Bytes::new()), Vec::new());
    for each in &regions {
        let region = &each.region;
        if end.as_ref() != Some(region.start_key()) {
            return Err(format!("a hole or an overlap before {}", region.name_text()));
        }
        end = Some(region.end_key().clone()).filter(|end| !end.is_empty());
        let expect = if state == TableState::Enabled { "OPEN" } else { "CLOSED" };
        if each.state != expect {
            return Err(format!("{} is {} in a table that is {state:?}", region.name_text(), each.state));
        }
        starts.push(region.start_key().clone());
    }
    if end.is_none() { Ok(starts) } else { Err("regions do not reach the end of the keys".to_owned()) }
}

async fn cells(connection: &Connection, name: &TableName) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let mut scanner = connection.table(name.clone()).scan(Scan::new());
    while let Some(row) = scanner.next().await? {
        for cell in row.cells() {
            let cell = cell.as_cell();
            let (row, value) = (cell.row().escape_ascii(), cell.value().escape_ascii());
            let wrong = if cell.row() == cell.value() { String::new() } else { format!("={value}") };
            found.push(format!("{row}/{}{wrong}", cell.family().escape_ascii()));
        }
    }
    Ok(found)
}
