//! Regions: find, split, merge, move; flush and compaction.

use bytes::Bytes;
use evenkeel_common::{ErrorKind, RegionInfo, ServerName, TableName};
use evenkeel_protocol::pb;
use prost::Message;

use super::{Admin, RegionState, TableState};
use crate::error::{Error, Result};
use crate::location::{CachedLocation, MetaRow, RegionLocation, Seek, region_specifier};
use crate::retry::Retry;
use crate::rpc::{BoxFuture, Param};

/// The running compactions of a region or table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionState {
    /// None.
    #[default]
    None,
    /// A minor one.
    Minor,
    /// A major one.
    Major,
    /// Both.
    MajorAndMinor,
}

impl CompactionState {
    pub(super) fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Minor,
            2 => Self::Major,
            3 => Self::MajorAndMinor,
            _ => Self::None,
        }
    }

    /// Combines the states of two regions.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, x) | (x, Self::None) => x,
            (a, b) if a == b => a,
            _ => Self::MajorAndMinor,
        }
    }
}

impl MetaRow {
    /// The states of the region and of its other replicas, in the order of their ids.
    fn into_states(mut self) -> Vec<RegionState> {
        let replicas = std::mem::take(&mut self.replicas);
        std::iter::once(self).chain(replicas).map(RegionState::from).collect()
    }
}

impl From<MetaRow> for RegionState {
    fn from(row: MetaRow) -> Self {
        Self { region: row.region, server: row.server, state: row.state.unwrap_or_default() }
    }
}

impl Admin {
    /// A table's regions in hbase:meta, in the order of their rows, without parents of splits.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn regions(&self, table: &TableName) -> Result<Vec<RegionState>> {
        Ok(self.connection.meta_regions(table).await?.into_iter().map(Into::into).collect())
    }

    /// As [`Admin::regions`], with the secondary replicas of each region behind it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn regions_and_replicas(&self, table: &TableName) -> Result<Vec<RegionState>> {
        Ok(self.connection.meta_regions(table).await?.into_iter().flat_map(MetaRow::into_states).collect())
    }

    /// The region of a full name or of an encoded one (32 hex digits; `1588230740` for hbase:meta);
    /// `None` when hbase:meta has no such region. A search by encoded name scans all of hbase:meta.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn find_region(&self, name: &[u8]) -> Result<Option<RegionState>> {
        let meta = RegionInfo::meta();
        if name == &meta.name()[..] || name == meta.encoded_name().as_bytes() {
            return Ok(self.regions(&TableName::meta()).await?.pop());
        }
        if let Some(row) = self.connection.meta_row(name).await? {
            return Ok(Some(row.into()));
        }
        let rows = self.connection.all_meta_regions().await?;
        let mut states = rows.into_iter().flat_map(MetaRow::into_states);
        let is_named = |region: &RegionInfo| {
            region.encoded_name().as_bytes() == name || (!region.is_primary() && region.name()[..] == *name)
        };
        Ok(states.find(|state| is_named(&state.region)))
    }

    /// The secondary replicas of a region that are open, by the region's row in hbase:meta; none if
    /// there is no such row. Those of hbase:meta are not found.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn open_replicas(&self, region: &RegionInfo) -> Result<Vec<RegionLocation>> {
        let location = self.connection.meta_row(region.name()).await?.and_then(MetaRow::location);
        let replicas = location.iter().flat_map(CachedLocation::replicas);
        Ok(replicas.map(|replica| RegionLocation::clone(replica)).collect())
    }

    /// Splits a region at a row, or without one in the middle of its largest file.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn split_region(&self, region: &RegionInfo, row: Option<Bytes>) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request =
            pb::SplitTableRegionRequest { region_info: region.into(), split_row: row, nonce_group, nonce };
        let response: pb::SplitTableRegionResponse = self.call("SplitRegion", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Splits the region that holds a row at that row, or without one each region of the table in
    /// its middle. The latter case skips regions that cannot be split yet.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn split_table(&self, table: &TableName, row: Option<Bytes>) -> Result<()> {
        let regions = self.connection.meta_regions(table).await?;
        if regions.is_empty() {
            return Err(Error::TableNotFound(table.clone()));
        }
        for MetaRow { region, .. } in regions {
            match &row {
                Some(row) if !region.contains_row(row) => {}
                Some(row) => self.split_region(&region, Some(row.clone())).await?,
                None => match self.split_region(&region, None).await {
                    Err(error) if error.remote().is_some() => {
                        tracing::info!(%error, region = region.encoded_name(), "not split");
                    }
                    outcome => outcome?,
                },
            }
        }
        Ok(())
    }

    /// Merges regions into one. They must be adjacent unless `forcible`.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn merge_regions(&self, regions: &[RegionInfo], forcible: bool) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let region = regions.iter().map(encoded_specifier).collect();
        let request = pb::MergeTableRegionsRequest { region, forcible: Some(forcible), nonce_group, nonce };
        let response: pb::MergeTableRegionsResponse = self.call("MergeTableRegions", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Moves a region to a server, or to one that the master chooses; returns when it is open
    /// there.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn move_region(&self, region: &RegionInfo, to: Option<&ServerName>) -> Result<()> {
        let request =
            pb::MoveRegionRequest { region: encoded_specifier(region), dest_server_name: to.map(Into::into) };
        let _: pb::MoveRegionResponse = self.call("MoveRegion", &request).await?;
        Ok(())
    }

    /// Opens a region.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn assign_region(&self, region: &RegionInfo) -> Result<()> {
        let request = pb::AssignRegionRequest { region: region_specifier(region), r#override: None };
        let _: pb::AssignRegionResponse = self.call("AssignRegion", &request).await?;
        Ok(())
    }

    /// Closes a region.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn unassign_region(&self, region: &RegionInfo) -> Result<()> {
        let request = pb::UnassignRegionRequest { region: region_specifier(region), force: None };
        let _: pb::UnassignRegionResponse = self.call("UnassignRegion", &request).await?;
        Ok(())
    }

    /// Empties a region.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn truncate_region(&self, region: &RegionInfo) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::TruncateRegionRequest { region_info: region.into(), nonce_group, nonce };
        let response: pb::TruncateRegionResponse = self.call("TruncateRegion", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Flushes a table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn flush_table(&self, table: &TableName) -> Result<()> {
        self.flush_families(table, &[]).await
    }

    /// Flushes some families of a table, or all if none is named.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn flush_families(&self, table: &TableName, families: &[&[u8]]) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let column_family = families.iter().map(|f| Bytes::copy_from_slice(f)).collect();
        let request = pb::FlushTableRequest { table_name: table.into(), column_family, nonce_group, nonce };
        let response: pb::FlushTableResponse = self.call("FlushTable", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Flushes a region, or one family of it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn flush_region(&self, region: &RegionInfo, family: Option<&[u8]>) -> Result<()> {
        let request = pb::FlushRegionRequest {
            region: region_specifier(region),
            family: family.map(Bytes::copy_from_slice),
            ..Default::default()
        };
        let _: pb::FlushRegionResponse = self.call_region(region, "FlushRegion", &request).await?;
        Ok(())
    }

    /// Requests a compaction of a region, without waiting for it. A major compaction rewrites all
    /// its files into one.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn compact_region(&self, region: &RegionInfo, major: bool) -> Result<()> {
        self.compact_region_family(region, None, major).await
    }

    /// As [`Admin::compact_region`], for one family if it is given.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn compact_region_family(
        &self,
        region: &RegionInfo,
        family: Option<&[u8]>,
        major: bool,
    ) -> Result<()> {
        let request = pb::CompactRegionRequest {
            region: region_specifier(region),
            major: Some(major),
            family: family.map(Bytes::copy_from_slice),
        };
        let _: pb::CompactRegionResponse = self.call_region(region, "CompactRegion", &request).await?;
        Ok(())
    }

    /// Requests a compaction of all regions of a table, or of one family, without waiting for it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn compact_table(&self, table: &TableName, family: Option<&[u8]>, major: bool) -> Result<()> {
        let regions = self.connection.meta_regions(table).await?;
        if regions.is_empty() {
            return Err(Error::TableNotFound(table.clone()));
        }
        for row in regions {
            passing_over(self.compact_region_family(&row.region, family, major).await)?;
        }
        Ok(())
    }

    /// The running compactions of a table; none if it is not enabled.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn compaction_state(&self, table: &TableName) -> Result<CompactionState> {
        match self.table_state(table).await? {
            None => return Err(Error::TableNotFound(table.clone())),
            Some(TableState::Enabled) => {}
            Some(_) => return Ok(CompactionState::None),
        }
        let mut state = CompactionState::None;
        for row in self.connection.meta_regions(table).await? {
            let of_region = passing_over(self.compaction_state_of_region(&row.region).await)?;
            state = state.and(of_region.unwrap_or_default());
        }
        Ok(state)
    }

    /// The running compactions of a region.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn compaction_state_of_region(&self, region: &RegionInfo) -> Result<CompactionState> {
        let request = pb::GetRegionInfoRequest {
            region: region_specifier(region),
            compaction_state: Some(true),
            best_split_row: None,
        };
        let response: pb::GetRegionInfoResponse = self.call_region(region, "GetRegionInfo", &request).await?;
        Ok(CompactionState::from_number(response.compaction_state.unwrap_or_default()))
    }

    /// The time of the oldest last major compaction among a table's regions: ms since 1970, 0 for
    /// never.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn last_major_compaction(&self, table: &TableName) -> Result<i64> {
        let request = pb::MajorCompactionTimestampRequest { table_name: table.into() };
        let response: pb::MajorCompactionTimestampResponse =
            self.call("getLastMajorCompactionTimestamp", &request).await?;
        Ok(response.compaction_timestamp)
    }

    /// Calls AdminService on a region's server, with retries.
    async fn call_region<M: Message, R: Message + Default>(
        &self,
        region: &RegionInfo,
        method: &'static str,
        param: &M,
    ) -> Result<R> {
        Ok(R::decode(self.ask_region(region, method, param).await?)?)
    }

    /// As [`Admin::call_region`], undecoded.
    fn ask_region<'a>(
        &'a self,
        region: &'a RegionInfo,
        method: &'static str,
        param: &'a dyn Param,
    ) -> BoxFuture<'a, Bytes> {
        Box::pin(async move {
            let mut retry = Retry::new(self.connection.config());
            loop {
                let seek = Seek::At(region.start_key());
                let error = match self.connection.locate_once(region.table(), seek, &retry).await {
                    Err(error) => error,
                    Ok(at) if at.region.encoded_name() != region.encoded_name() => {
                        self.connection.locations().remove(&at);
                        return self.ask_moved(region, method, param).await;
                    }
                    Ok(at) => match self.ask_server(&at.server, method, param).await {
                        Ok(response) => return Ok(response),
                        Err(error) => {
                            self.connection.locations().on_error(&at, &error);
                            error
                        }
                    },
                };
                retry.after(error).await?;
            }
        })
    }

    /// As [`Admin::ask_region`], once, at the server that hbase:meta names for this region.
    async fn ask_moved(&self, region: &RegionInfo, method: &'static str, param: &dyn Param) -> Result<Bytes> {
        let gone = || Error::NoServer(format!("{} is not online", region.name_text()));
        let row = self.connection.meta_row(region.name()).await?;
        let server = row.and_then(|row| row.server).ok_or_else(gone)?;
        self.ask_server(&server, method, param).await
    }
}

/// Specifies a region by its encoded name, as HBase's client does for the master.
fn encoded_specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    let kind = pb::region_specifier::RegionSpecifierType::EncodedRegionName;
    pb::RegionSpecifier {
        r#type: kind as i32,
        value: Bytes::copy_from_slice(region.encoded_name().as_bytes()),
    }
}

/// Ignores that a region is no longer open on its server, for operations on all regions of a table.
fn passing_over<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoServer(_)) => Ok(None),
        Err(error) if error.kind() == Some(ErrorKind::NotServingRegion) => Ok(None),
        Err(error) => Err(error),
    }
}
