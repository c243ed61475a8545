//! `flush`, `compact`, and commands on servers.

use evenkeel_client::admin::{CacheEviction, ClusterOption, CompactionState};
use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::{ServerName, TableName};
use evenkeel_protocol::pb;

use super::{Command, ddl, regions};
use crate::args::{Args, table_name};
use crate::builtin;
use crate::error::{CommandError, CommandResult, RubyError};
use crate::shell::Shell;
use crate::text;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "flush",
        (1, 2),
        flush,
        "Flushes a table, a region or a server, or one family of a table.\n\n  hbase> flush 't1'\n  \
         hbase> flush 't1', 'f1'\n  hbase> flush 'REGIONNAME'\n  hbase> flush 'host,port,startcode'",
    ),
    Command::new(
        "compact",
        (1, 3),
        compact,
        "Requests a compaction of a table or region, or of one family.\n\n  hbase> compact 't1'\n  \
         hbase> compact 't1', 'f1'\n  hbase> compact 'REGIONNAME'",
    ),
    Command::new(
        "major_compact",
        (1, 3),
        major_compact,
        "Requests a major compaction of a table or region, or of one family.\n\n  hbase> major_compact 't1'\n  \
         hbase> major_compact 't1', 'f1'\n  hbase> major_compact 'REGIONNAME'",
    ),
    Command::new(
        "compact_rs",
        (1, 2),
        compact_rs,
        "Requests a compaction of all regions of a server; with true, a major one.\n\n  \
         hbase> compact_rs 'host,port,startcode'\n  hbase> compact_rs 'host,port,startcode', true",
    ),
    Command::new(
        "compaction_state",
        (1, 1),
        compaction_state,
        "Prints the compaction state of a table: NONE, MINOR, MAJOR or MAJOR_AND_MINOR.\n\n  hbase> compaction_state 't1'",
    ),
    Command::new(
        "compaction_switch",
        (1, 1),
        compaction_switch,
        "Allows or forbids compactions on all servers, or those given, and prints the previous states.\n\n  \
         hbase> compaction_switch false\n  hbase> compaction_switch true, 'host,port,startcode'",
    )
    .variadic(),
    Command::new(
        "clear_compaction_queues",
        (1, 2),
        clear_compaction_queues,
        "Empties a server's compaction queues, 'long' and 'short' unless one is named.\n\n  \
         hbase> clear_compaction_queues 'host,port,startcode', 'long'",
    ),
    Command::new(
        "wal_roll",
        (1, 1),
        wal_roll,
        "Makes a server roll its WAL; hlog_roll is the same.\n\n  hbase> wal_roll 'host,port,startcode'",
    )
    .alias(&["hlog_roll"]),
    Command::new(
        "clear_block_cache",
        (1, 1),
        clear_block_cache,
        "Drops a table's blocks from the block caches and prints their number.\n\n  hbase> clear_block_cache 't1'",
    ),
    Command::new("list_liveservers", (0, 0), list_liveservers, "Prints the live servers.\n\n  hbase> list_liveservers"),
    Command::new("list_deadservers", (0, 0), list_deadservers, "Prints the dead servers.\n\n  hbase> list_deadservers"),
    Command::new(
        "list_decommissioned_regionservers",
        (0, 0),
        list_decommissioned,
        "Prints the decommissioned servers.\n\n  hbase> list_decommissioned_regionservers",
    ),
    Command::new(
        "decommission_regionservers",
        (1, 2),
        decommission,
        "Stops assigning regions to servers; with true, also moves their regions away.\n\n  hbase> decommission_regionservers 'host,port'\n  \
         hbase> decommission_regionservers ['host1', 'host2,port'], true",
    ),
    Command::new(
        "recommission_regionserver",
        (1, 2),
        recommission,
        "Assigns regions to a server again, and moves the named regions back.\n\n  hbase> recommission_regionserver 'host,port'\n  \
         hbase> recommission_regionserver 'host,port', ['ENCODED_REGIONNAME']",
    ),
    Command::new("rit", (0, 0), rit, "Prints the regions in transition.\n\n  hbase> rit"),
    Command::new("regioninfo", (1, 1), regioninfo, "Prints a region by its name.\n\n  hbase> regioninfo 'REGIONNAME'"),
    Command::new("close_region", (1, 2), close_region, "Prints that close_region does nothing; use unassign.\n\n  hbase> unassign 'REGIONNAME'"),
    Command::new("list_unknownservers", (0, 0), list_unknownservers, "Prints the servers that hold regions and are neither live nor dead.\n\n  hbase> list_unknownservers"),
    Command::new(
        "clear_deadservers",
        (0, 0),
        clear_deadservers,
        "Removes dead servers from the list, all or those named, and returns those that could not be removed.\n\n  \
         hbase> clear_deadservers\n  hbase> clear_deadservers 'host,port,startcode'",
    )
    .variadic(),
];

/// The group of online configuration.
pub(super) const CONFIGURATION: &[Command] = &[
    Command::new(
        "update_config",
        (1, 1),
        update_config,
        "Makes a server reload its settings.\n\n  hbase> update_config 'host,port,startcode'",
    ),
    Command::new(
        "update_all_config",
        (0, 0),
        update_all_config,
        "Makes all servers reload their settings.\n\n  hbase> update_all_config",
    ),
];

fn flush(shell: &mut Shell, args: Args) -> CommandResult {
    let family = args.optional_text(1).map(String::into_bytes);
    let admin = shell.cluster.admin()?;
    if let Some(state) = regions::find(shell, args.get(0))? {
        shell.wait(admin.flush_region(&state.region, family.as_deref()))?;
        return Ok(Value::Nil);
    }
    if let Ok(server) = args.text(0).parse::<ServerName>() {
        shell.wait(admin.flush_server(&server))?;
        return Ok(Value::Nil);
    }
    let table = args.table(0)?;
    ddl::state(shell, &table)?;
    let flushed = match family {
        Some(family) => shell.wait(admin.flush_families(&table, &[&family])),
        None => shell.wait(admin.flush_table(&table)),
    };
    flushed.map_err(without_class)?;
    Ok(Value::Nil)
}

/// The stock shell prints no class if the procedure, instead of the call, reports the missing
/// family.
fn without_class(error: CommandError) -> CommandError {
    match &error {
        CommandError::Client(client) if error.remote_class() == "NoSuchColumnFamilyException" => {
            let message = client.remote().map(|remote| remote.message.clone()).unwrap_or_default();
            RubyError::runtime(message).into()
        }
        _ => error,
    }
}

fn compact(shell: &mut Shell, args: Args) -> CommandResult {
    compact_any(shell, &args, false)
}

fn major_compact(shell: &mut Shell, args: Args) -> CommandResult {
    compact_any(shell, &args, true)
}

fn compact_any(shell: &mut Shell, args: &Args, major: bool) -> CommandResult {
    let family = args.optional_text(1).map(String::into_bytes);
    match args.optional_text(2).as_deref() {
        None | Some("NORMAL") => {}
        Some("MOB") => return compact_mob(shell, args, family.as_deref()),
        Some(_) => return Err(RubyError::argument("only NORMAL or MOB accepted for type!").into()),
    }
    let admin = shell.cluster.admin()?;
    match regions::find(shell, args.get(0))? {
        Some(state) => shell.wait(admin.compact_region_family(&state.region, family.as_deref(), major))?,
        None => {
            let table = args.table(0)?;
            ddl::state(shell, &table)?;
            shell.wait(admin.compact_table(&table, family.as_deref(), major))?;
        }
    }
    Ok(Value::Nil)
}

/// A major compaction of the table's families with MOB files, or of one, which alone rewrites MOB
/// files.
fn compact_mob(shell: &mut Shell, args: &Args, family: Option<&[u8]>) -> CommandResult {
    let table = args.table(0)?;
    ddl::state(shell, &table)?;
    let admin = shell.cluster.admin()?;
    let descriptor = shell.wait(admin.describe(&table))?;
    let families =
        descriptor.families().filter(|of| of.is_mob() && family.is_none_or(|name| name == of.name()));
    for family in families {
        shell.wait(admin.compact_table(&table, Some(family.name()), true))?;
    }
    Ok(Value::Nil)
}

fn compact_rs(shell: &mut Shell, args: Args) -> CommandResult {
    let server: ServerName = args.text(0).parse()?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.compact_server(&server, args.flag(1)))?;
    Ok(Value::Nil)
}

fn compaction_state(shell: &mut Shell, args: Args) -> CommandResult {
    let table = args.table(0)?;
    ddl::state(shell, &table)?;
    let admin = shell.cluster.admin()?;
    let state = match shell.wait(admin.compaction_state(&table))? {
        CompactionState::None => "NONE",
        CompactionState::Minor => "MINOR",
        CompactionState::Major => "MAJOR",
        CompactionState::MajorAndMinor => "MAJOR_AND_MINOR",
    };
    shell.out.row(&[state])?;
    Ok(Value::text(state))
}

pub(super) fn live_servers(shell: &mut Shell) -> CommandResult<Vec<ServerName>> {
    let admin = shell.cluster.admin()?;
    shell.wait(admin.live_servers())
}

/// The servers that `host`, `host,port` or a full name matches.
pub(super) fn servers(shell: &mut Shell, names: &[Value]) -> CommandResult<Vec<ServerName>> {
    let live = live_servers(shell)?;
    let mut found = Vec::new();
    for name in names {
        let name = name.to_text();
        if let Ok(full) = name.parse() {
            found.push(full);
            continue;
        }
        let (host, port) = name.split_once(',').unwrap_or((&name, ""));
        let is_meant = |s: &&ServerName| s.host == host && (port.is_empty() || s.port.to_string() == port);
        found.extend(live.iter().filter(is_meant).cloned());
    }
    Ok(found)
}

fn compaction_switch(shell: &mut Shell, args: Args) -> CommandResult {
    let names = builtin::flatten(args.from(1).to_vec());
    let servers = if names.is_empty() { live_servers(shell)? } else { servers(shell, &names)? };
    // The stock shell prints the array's text, brackets and quotes included, as column names.
    shell.out.header(&["['SERVER'", "'PREV_STATE']"])?;
    let admin = shell.cluster.admin()?;
    for server in &servers {
        let before = shell.wait(admin.set_compactions(server, args.flag(0)))?;
        shell.out.row(&[&server.to_string(), &before.to_string()])?;
    }
    shell.out.footer(servers.len())?;
    Ok(Value::Nil)
}

fn clear_compaction_queues(shell: &mut Shell, args: Args) -> CommandResult {
    let server: ServerName = args.text(0).parse()?;
    let names: Vec<String> = match args.get(1) {
        Value::Nil => vec!["long".into(), "short".into()],
        other => builtin::flatten(vec![other.clone()]).iter().map(Value::to_text).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !matches!(name.as_str(), "long" | "short")) {
        return Err(RubyError::argument(format!("Unknown queue name {unknown}")).into());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let admin = shell.cluster.admin()?;
    shell.wait(admin.clear_compaction_queues(&server, &names))?;
    Ok(Value::Nil)
}

fn wal_roll(shell: &mut Shell, args: Args) -> CommandResult {
    let server: ServerName = args.text(0).parse()?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.roll_wal(&server))?;
    Ok(Value::Nil)
}

fn clear_block_cache(shell: &mut Shell, args: Args) -> CommandResult {
    let table: TableName = table_name(args.get(0))?;
    ddl::state(shell, &table)?;
    let admin = shell.cluster.admin()?;
    let evicted = shell.wait(admin.clear_block_cache(&table))?;
    shell.out.row(&[&cache_eviction(&evicted)])?;
    Ok(Value::Nil)
}

/// `CacheEvictionStats.toString`, without the names of regions that failed.
fn cache_eviction(stats: &CacheEviction) -> String {
    let CacheEviction { evicted_blocks, cache_bytes_max, failed_regions } = stats;
    format!(
        "CacheEvictionStats{{evictedBlocks={evicted_blocks}, maxCacheSize={cache_bytes_max}, \
         failedRegionsSize={failed_regions}, failedRegions=[]}}"
    )
}

fn show_servers(shell: &mut Shell, servers: &[ServerName]) -> CommandResult {
    shell.out.header(&["SERVERNAME"])?;
    for server in servers {
        shell.out.row(&[&server.to_string()])?;
    }
    shell.out.footer(servers.len())?;
    Ok(Value::Nil)
}

fn list_liveservers(shell: &mut Shell, _: Args) -> CommandResult {
    let servers = live_servers(shell)?;
    show_servers(shell, &servers)
}

fn list_deadservers(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let metrics = shell.wait(admin.cluster_metrics(&[ClusterOption::DeadServers]))?;
    show_servers(shell, &metrics.dead_servers)
}

fn list_unknownservers(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let metrics = shell.wait(admin.cluster_metrics(&[ClusterOption::UnknownServers]))?;
    show_servers(shell, &metrics.unknown_servers)
}

fn clear_deadservers(shell: &mut Shell, args: Args) -> CommandResult {
    let names = builtin::flatten(args.from(0).to_vec());
    let named: Result<Vec<ServerName>, _> = names.iter().map(|name| name.to_text().parse()).collect();
    let admin = shell.cluster.admin()?;
    let servers = match named? {
        none if none.is_empty() => {
            shell.wait(admin.cluster_metrics(&[ClusterOption::DeadServers]))?.dead_servers
        }
        named => named,
    };
    let request =
        pb::ClearDeadServersRequest { server_name: servers.iter().map(pb::ServerName::from).collect() };
    let response: pb::ClearDeadServersResponse =
        shell.wait(admin.call_master("ClearDeadServers", &request))?;
    let left: Vec<String> = response.server_name.iter().map(|s| ServerName::from(s).to_string()).collect();
    if left.is_empty() {
        shell.out.row(&["true"])?;
        return Ok(Value::Array(Vec::new()));
    }
    for line in
        ["Some dead server clear failed", "SERVERNAME"].into_iter().chain(left.iter().map(String::as_str))
    {
        shell.out.row(&[line])?;
    }
    shell.out.footer(left.len())?;
    Ok(Value::texts(left))
}

fn list_decommissioned(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let servers = shell.wait(admin.decommissioned_servers())?;
    shell.out.header(&["DECOMMISSIONED REGION SERVERS"])?;
    for server in &servers {
        shell.out.row(&[&server.to_string()])?;
    }
    shell.out.footer(servers.len())?;
    Ok(Value::Nil)
}

fn decommission(shell: &mut Shell, args: Args) -> CommandResult {
    let names = builtin::flatten(vec![args.get(0).clone()]);
    let servers = servers(shell, &names)?;
    if servers.is_empty() {
        let names = args.text(0);
        return Err(RubyError::argument(format!(
            "Could not find any server(s) with specified name(s): {names}"
        ))
        .into());
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.decommission_servers(&servers, args.flag(1)))?;
    Ok(Value::Nil)
}

fn recommission(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.text(0);
    let server = servers(shell, &[args.get(0).clone()])?.into_iter().next();
    let server =
        server.ok_or_else(|| RubyError::argument(format!("Could not find any server with name {name}")))?;
    let mut moved = Vec::new();
    for region in builtin::flatten(vec![args.get(1).clone()]).iter().filter(|name| **name != Value::Nil) {
        let found = regions::find(shell, region)?;
        moved.push(found.ok_or_else(|| RubyError::runtime(region.to_text()))?.region);
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.recommission_server(&server, &moved))?;
    Ok(Value::Nil)
}

/// `RegionState.toDescriptiveString`; the message does not contain the server.
fn transition_text(transition: &pb::RegionInTransition, now_ms: i64) -> String {
    let (name, state) = (text::binary(&transition.spec.value), &transition.region_state);
    let since_ms = state.stamp.map_or(0, |ms| ms as i64);
    let (shown, seconds) = (text::java_date(since_ms), now_ms.saturating_sub(since_ms) / 1000);
    format!("{name} state={}, ts={shown} ({seconds}s ago), server=null", state.state().as_str_name())
}

fn rit(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let status = shell.wait(admin.cluster_status())?;
    for transition in &status.regions_in_transition {
        shell.out.row(&[&transition_text(transition, SystemClock.now_ms())])?;
    }
    shell.out.footer(status.regions_in_transition.len())?;
    Ok(Value::Nil)
}

fn regioninfo(shell: &mut Shell, args: Args) -> CommandResult {
    let found = regions::find(shell, args.get(0))?;
    let state = found.ok_or_else(|| RubyError::runtime(args.text(0)))?;
    shell.out.line(text::region(&state.region))?;
    Ok(Value::Nil)
}

fn update_config(shell: &mut Shell, args: Args) -> CommandResult {
    let server: ServerName = args.text(0).parse()?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.update_configuration(&server))?;
    Ok(Value::Nil)
}

fn update_all_config(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    for server in live_servers(shell)? {
        shell.wait(admin.update_configuration(&server))?;
    }
    Ok(Value::Nil)
}

fn close_region(shell: &mut Shell, _: Args) -> CommandResult {
    shell.out.line("DEPRECATED!!! Use 'unassign' command instead.")?;
    Ok(Value::Nil)
}
