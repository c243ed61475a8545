//! `status`: the cluster's state, in four levels of detail.

use evenkeel_common::ServerName;
use evenkeel_protocol::pb;

use super::Command;
use crate::args::Args;
use crate::error::{CommandResult, RubyError};
use crate::output::Output;
use crate::shell::Shell;
use crate::text;
use crate::value::{Value, inspect_bytes};

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "status",
    (0, 2),
    status,
    "Prints the state of the cluster: 'summary' (the default), 'simple' or 'detailed'.\n\n  hbase> status\n  \
     hbase> status 'simple'\n  hbase> status 'detailed'",
)];

fn status(shell: &mut Shell, args: Args) -> CommandResult {
    let format = args.optional_text(0).unwrap_or_else(|| "summary".to_owned());
    if format == "replication" {
        return Err(RubyError::runtime("status 'replication' is not supported by this shell yet").into());
    }
    let admin = shell.cluster.admin()?;
    let status = shell.wait(admin.cluster_status())?;
    match format.as_str() {
        "simple" => simple(&mut shell.out, &status)?,
        "detailed" => detailed(&mut shell.out, &status)?,
        _ => summary(&mut shell.out, &status)?,
    }
    Ok(Value::Nil)
}

fn summary(out: &mut Output, status: &pb::ClusterStatus) -> CommandResult<()> {
    let servers = status.live_servers.len();
    let regions: usize = status.live_servers.iter().map(|s| s.server_load.region_loads.len()).sum();
    let load = if servers == 0 { 0.0 } else { regions as f64 / servers as f64 };
    out.line(format!(
        "1 active master, {} backup masters, {servers} servers, {} dead, {load:.4} average load",
        status.backup_masters.len(),
        status.dead_servers.len()
    ))?;
    Ok(())
}

fn host_port_code(server: &pb::ServerName) -> String {
    let server = ServerName::from(server);
    format!("{}:{} {}", server.host, server.port, server.start_code)
}

fn masters(out: &mut Output, status: &pb::ClusterStatus) -> CommandResult<()> {
    let master = status.master.as_ref().map(host_port_code).unwrap_or_default();
    out.line(format!("active master:  {master}"))?;
    out.line(format!("{} backup masters", status.backup_masters.len()))?;
    for server in &status.backup_masters {
        out.line(format!("    {}", host_port_code(server)))?;
    }
    Ok(())
}

fn dead(out: &mut Output, status: &pb::ClusterStatus) -> CommandResult<()> {
    out.line(format!("{} dead servers", status.dead_servers.len()))?;
    for server in &status.dead_servers {
        out.line(format!("    {}", ServerName::from(server)))?;
    }
    Ok(())
}

fn simple(out: &mut Output, status: &pb::ClusterStatus) -> CommandResult<()> {
    masters(out, status)?;
    out.line(format!("{} live servers", status.live_servers.len()))?;
    for live in &status.live_servers {
        out.line(format!("    {}", host_port_code(&live.server)))?;
        out.line(format!("        {}", server_load(&live.server_load)))?;
    }
    dead(out, status)?;
    let load: u64 = status.live_servers.iter().map(|live| live.server_load.number_of_requests()).sum();
    let regions: usize = status.live_servers.iter().map(|live| live.server_load.region_loads.len()).sum();
    out.line(format!("Aggregate load: {load}, regions: {regions}"))?;
    Ok(())
}

fn detailed(out: &mut Output, status: &pb::ClusterStatus) -> CommandResult<()> {
    let version = status.hbase_version.as_ref().map(|v| v.version.as_str()).unwrap_or_default();
    out.line(format!("version {version}"))?;
    out.line(format!("{} regionsInTransition", status.regions_in_transition.len()))?;
    for transition in &status.regions_in_transition {
        let state = &transition.region_state;
        let name = text::binary(&transition.spec.value);
        out.line(format!("    {name} state={}", state.state().as_str_name()))?;
    }
    masters(out, status)?;
    let names: Vec<_> = status.master_coprocessors.iter().map(|c| c.name.as_str()).collect();
    out.line(format!("master coprocessors: [{}]", names.join(", ")))?;
    out.line(format!("{} live servers", status.live_servers.len()))?;
    for live in &status.live_servers {
        out.line(format!("    {}", host_port_code(&live.server)))?;
        out.line(format!("        {}", server_load(&live.server_load)))?;
        for region in &live.server_load.region_loads {
            let name = text::binary(&region.region_specifier.value);
            out.line(format!("        {}", inspect_bytes(name.as_bytes())))?;
            out.line(format!("            {}", region_load(region)))?;
        }
    }
    dead(out, status)
}

/// The sum of a number over a server's regions.
fn sum(load: &pb::ServerLoad, of: impl Fn(&pb::RegionLoad) -> u64) -> u64 {
    load.region_loads.iter().map(of).sum()
}

/// `name=value` pairs as Java's `Strings.appendKeyValue` joins them.
fn pairs(pairs: &[(&str, String)]) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

fn ratio(part: u64, whole: u64) -> String {
    match whole {
        0 => "NaN".to_owned(),
        whole => text::double(f64::from(part as f32 / whole as f32)),
    }
}

/// A server's load in the format of `ServerLoad.toString`.
fn server_load(load: &pb::ServerLoad) -> String {
    let raw = sum(load, |r| r.store_uncompressed_size_mb().into());
    let stored = sum(load, |r| r.storefile_size_mb().into());
    let compacting = sum(load, pb::RegionLoad::total_compacting_k_vs);
    let compacted = sum(load, pb::RegionLoad::current_compacted_k_vs);
    let mut all = vec![
        ("requestsPerSecond", load.number_of_requests().to_string()),
        ("numberOfOnlineRegions", load.region_loads.len().to_string()),
        ("usedHeapMB", load.used_heap_mb().to_string()),
        ("maxHeapMB", load.max_heap_mb().to_string()),
        ("numberOfStores", sum(load, |r| r.stores().into()).to_string()),
        ("numberOfStorefiles", sum(load, |r| r.storefiles().into()).to_string()),
        ("storefileUncompressedSizeMB", raw.to_string()),
        ("storefileSizeMB", stored.to_string()),
    ];
    if raw != 0 {
        all.push(("compressionRatio", format!("{:.4}", stored as f32 / raw as f32)));
    }
    all.extend([
        ("memstoreSizeMB", sum(load, |r| r.mem_store_size_mb().into()).to_string()),
        ("storefileIndexSizeKB", sum(load, |r| r.storefile_index_size_kb()).to_string()),
        ("readRequestsCount", sum(load, |r| r.read_requests_count()).to_string()),
        ("filteredReadRequestsCount", sum(load, |r| r.filtered_read_requests_count()).to_string()),
        ("writeRequestsCount", sum(load, |r| r.write_requests_count()).to_string()),
        ("rootIndexSizeKB", sum(load, |r| r.root_index_size_kb().into()).to_string()),
        ("totalStaticIndexSizeKB", sum(load, |r| r.total_static_index_size_kb().into()).to_string()),
        ("totalStaticBloomSizeKB", sum(load, |r| r.total_static_bloom_size_kb().into()).to_string()),
        ("totalCompactingKVs", compacting.to_string()),
        ("currentCompactedKVs", compacted.to_string()),
        ("compactionProgressPct", ratio(compacted, compacting)),
        ("coprocessors", coprocessors(load)),
    ]);
    pairs(&all)
}

fn coprocessors(load: &pb::ServerLoad) -> String {
    let mut names: Vec<_> = load.coprocessors.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    format!("[{}]", names.join(", "))
}

/// A region's load in the format of `RegionLoad.toString`.
fn region_load(load: &pb::RegionLoad) -> String {
    let (raw, stored) = (load.store_uncompressed_size_mb(), load.storefile_size_mb());
    let mut all = vec![
        ("numberOfStores", load.stores().to_string()),
        ("numberOfStorefiles", load.storefiles().to_string()),
        ("storeRefCount", load.store_ref_count().to_string()),
        ("storefileUncompressedSizeMB", raw.to_string()),
        ("lastMajorCompactionTimestamp", load.last_major_compaction_ts().to_string()),
        ("storefileSizeMB", stored.to_string()),
    ];
    if raw != 0 {
        all.push(("compressionRatio", format!("{:.4}", stored as f32 / raw as f32)));
    }
    all.extend([
        ("memstoreSizeMB", load.mem_store_size_mb().to_string()),
        ("readRequestsCount", load.read_requests_count().to_string()),
        ("writeRequestsCount", load.write_requests_count().to_string()),
        ("rootIndexSizeKB", load.root_index_size_kb().to_string()),
        ("totalStaticIndexSizeKB", load.total_static_index_size_kb().to_string()),
        ("totalStaticBloomSizeKB", load.total_static_bloom_size_kb().to_string()),
        ("totalCompactingKVs", load.total_compacting_k_vs().to_string()),
        ("currentCompactedKVs", load.current_compacted_k_vs().to_string()),
        ("compactionProgressPct", ratio(load.current_compacted_k_vs(), load.total_compacting_k_vs())),
        ("completeSequenceId", load.complete_sequence_id().to_string()),
        ("dataLocality", text::double(f64::from(load.data_locality()))),
    ]);
    pairs(&all)
}
