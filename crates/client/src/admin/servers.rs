//! Administration of one RegionServer.

use bytes::Bytes;
use evenkeel_common::{HBaseError, RegionInfo, ServerName, TableName};
use evenkeel_protocol::pb;
use pb::slow_log_response_request::LogType;
use prost::Message;

use super::{Admin, RegionMetrics};
use crate::error::Result;
use crate::location::region_specifier;

/// The result of an eviction from a block cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheEviction {
    /// Blocks that were evicted.
    pub evicted_blocks: i64,
    /// The maximum size of the cache in bytes.
    pub cache_bytes_max: i64,
    /// Regions whose blocks could not be evicted, with the exceptions.
    pub failed_regions: usize,
}

/// Java class of the request message of GetLogEntries.
const SLOW_LOG_REQUEST_CLASS: &str =
    "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponseRequest";

/// A server's log of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLog {
    /// Calls that took long.
    Slow,
    /// Calls whose replies were large.
    Large,
}

impl Admin {
    /// The regions that are open on a server.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn online_regions(&self, server: &ServerName) -> Result<Vec<RegionInfo>> {
        let response: pb::GetOnlineRegionResponse =
            self.call_server(server, "GetOnlineRegion", &pb::GetOnlineRegionRequest {}).await?;
        response.region_info.iter().map(|region| Ok(region.try_into()?)).collect()
    }

    /// The load of a server's regions, or of those of one table.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn region_metrics(
        &self,
        server: &ServerName,
        table: Option<&TableName>,
    ) -> Result<Vec<RegionMetrics>> {
        let request = pb::GetRegionLoadRequest { table_name: table.map(Into::into) };
        let response: pb::GetRegionLoadResponse = self.call_server(server, "GetRegionLoad", &request).await?;
        Ok(response.region_loads.iter().map(RegionMetrics::of).collect())
    }

    /// Flushes all regions of a server.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn flush_server(&self, server: &ServerName) -> Result<()> {
        for region in self.online_regions(server).await? {
            let region = region_specifier(&region);
            let request = pb::FlushRegionRequest { region, ..Default::default() };
            let _: pb::FlushRegionResponse = self.call_server(server, "FlushRegion", &request).await?;
        }
        Ok(())
    }

    /// Requests a compaction of all regions of a server, without waiting for it.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn compact_server(&self, server: &ServerName, major: bool) -> Result<()> {
        for region in self.online_regions(server).await? {
            let region = region_specifier(&region);
            let request = pb::CompactRegionRequest { region, major: Some(major), family: None };
            let _: pb::CompactRegionResponse = self.call_server(server, "CompactRegion", &request).await?;
        }
        Ok(())
    }

    /// Enables or disables compactions of a server; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn set_compactions(&self, server: &ServerName, enabled: bool) -> Result<bool> {
        let request = pb::CompactionSwitchRequest { enabled };
        let response: pb::CompactionSwitchResponse =
            self.call_server(server, "CompactionSwitch", &request).await?;
        Ok(response.prev_state)
    }

    /// Clears compaction queues of a server: `long`, `short`.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn clear_compaction_queues(&self, server: &ServerName, queues: &[&str]) -> Result<()> {
        let queue_name = queues.iter().map(|q| (*q).to_owned()).collect();
        let request = pb::ClearCompactionQueuesRequest { queue_name };
        let _: pb::ClearCompactionQueuesResponse =
            self.call_server(server, "ClearCompactionQueues", &request).await?;
        Ok(())
    }

    /// Rolls a server's WAL; returns the encoded names of the regions that it wants flushed.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn roll_wal(&self, server: &ServerName) -> Result<Vec<Bytes>> {
        let response: pb::RollWalWriterResponse =
            self.call_server(server, "RollWALWriter", &pb::RollWalWriterRequest {}).await?;
        Ok(response.region_to_flush)
    }

    /// Makes a server reload its configuration files.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn update_configuration(&self, server: &ServerName) -> Result<()> {
        let request = pb::UpdateConfigurationRequest {};
        let _: pb::UpdateConfigurationResponse =
            self.call_server(server, "UpdateConfiguration", &request).await?;
        Ok(())
    }

    /// Returns the calls in a log of some servers, the latest call of each server first, with the
    /// request's filters and its limit per server.
    ///
    /// # Errors
    /// As [`Admin::call_server`]; `IOException` if a server answers with another message.
    pub async fn logged_calls(
        &self,
        servers: &[ServerName],
        log: CallLog,
        filters: &pb::SlowLogResponseRequest,
    ) -> Result<Vec<pb::SlowLogPayload>> {
        let log_type = Some(match log {
            CallLog::Slow => LogType::SlowLog.into(),
            CallLog::Large => LogType::LargeLog.into(),
        });
        let query = pb::SlowLogResponseRequest { log_type, ..filters.clone() };
        let request = pb::LogRequest {
            log_class_name: SLOW_LOG_REQUEST_CLASS.to_owned(),
            log_message: query.encode_to_vec().into(),
        };
        let mut calls = Vec::new();
        for server in servers {
            let response: pb::LogEntry = self.call_server(server, "GetLogEntries", &request).await?;
            let responses = pb::SlowLogResponses::decode(response.log_message)
                .map_err(|e| HBaseError::io(format!("{}: {e}", response.log_class_name)))?;
            calls.extend(responses.slow_log_payloads);
        }
        Ok(calls)
    }

    /// Clears the slow and large calls of some servers. Returns for each whether its log was
    /// cleared.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn clear_logged_calls(&self, servers: &[ServerName]) -> Result<Vec<bool>> {
        let mut cleared = Vec::new();
        for server in servers {
            let request = pb::ClearSlowLogResponseRequest {};
            let response: pb::ClearSlowLogResponses =
                self.call_server(server, "ClearSlowLogsResponses", &request).await?;
            cleared.push(response.is_cleaned);
        }
        Ok(cleared)
    }

    /// Drops a table's blocks from the block caches of all its servers.
    ///
    /// # Errors
    /// As [`Admin::call_server`].
    pub async fn clear_block_cache(&self, table: &TableName) -> Result<CacheEviction> {
        let mut servers: Vec<(ServerName, Vec<pb::RegionSpecifier>)> = Vec::new();
        for row in self.connection.meta_regions(table).await? {
            let Some(server) = row.server else { continue };
            let region = region_specifier(&row.region);
            match servers.iter_mut().find(|(known, _)| *known == server) {
                Some((_, regions)) => regions.push(region),
                None => servers.push((server, vec![region])),
            }
        }
        let mut total = CacheEviction::default();
        for (server, region) in servers {
            let request = pb::ClearRegionBlockCacheRequest { region };
            let response: pb::ClearRegionBlockCacheResponse =
                self.call_server(&server, "ClearRegionBlockCache", &request).await?;
            total.evicted_blocks += response.stats.evicted_blocks();
            total.cache_bytes_max += response.stats.max_cache_size();
            total.failed_regions += response.stats.exception.len();
        }
        Ok(total)
    }

    /// Decommissioned servers, which take no new regions.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn decommissioned_servers(&self) -> Result<Vec<ServerName>> {
        let request = pb::ListDecommissionedRegionServersRequest {};
        let response: pb::ListDecommissionedRegionServersResponse =
            self.call("ListDecommissionedRegionServers", &request).await?;
        Ok(response.server_name.iter().map(Into::into).collect())
    }

    /// Decommissions servers: they take no new regions, and with `offload` their regions are moved
    /// away.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn decommission_servers(&self, servers: &[ServerName], offload: bool) -> Result<()> {
        let server_name = servers.iter().map(Into::into).collect();
        let request = pb::DecommissionRegionServersRequest { server_name, offload };
        let _: pb::DecommissionRegionServersResponse =
            self.call("DecommissionRegionServers", &request).await?;
        Ok(())
    }

    /// Recommissions a server, and moves these regions (by encoded name) to it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn recommission_server(&self, server: &ServerName, regions: &[RegionInfo]) -> Result<()> {
        let region = regions.iter().map(region_specifier).collect();
        let request = pb::RecommissionRegionServerRequest { server_name: server.into(), region };
        let _: pb::RecommissionRegionServerResponse = self.call("RecommissionRegionServer", &request).await?;
        Ok(())
    }
}
