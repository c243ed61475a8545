//! Regions: `list_regions`, `move`, `assign`, `unassign`, `split`, `merge_region`.

use bytes::Bytes;
use evenkeel_client::RegionState;
use evenkeel_common::{RegionInfo, ServerName, TableName};

use super::{Command, ddl};
use crate::args::{Args, table_name};
use crate::builtin;
use crate::error::{CommandError, CommandResult, RubyError};
use crate::shell::Shell;
use crate::text;
use crate::value::Value;

/// The commands in the group ddl, as in HBase.
pub(super) const LISTS: &[Command] = &[Command::new(
    "list_regions",
    (1, 3),
    list_regions,
    "Prints a table's regions with their servers and load: list_regions table, server or options (SERVER_NAME, \
     LOCALITY_THRESHOLD), columns.\n\n  hbase> list_regions 't1'\n  hbase> list_regions 't1', 'server1'\n  \
     hbase> list_regions 't1', {LOCALITY_THRESHOLD => 0.8}, ['SERVER_NAME', 'SIZE']",
)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "move",
        (1, 2),
        move_region,
        "Moves a region by its encoded name to a server, or to any server if none is given.\n\n  hbase> move 'ENCODED_REGIONNAME'\n  \
         hbase> move 'ENCODED_REGIONNAME', 'host,port,startcode'",
    ),
    Command::new(
        "assign",
        (1, 1),
        assign,
        "Opens a region that is closed.\n\n  hbase> assign 'REGIONNAME'\n  hbase> assign 'ENCODED_REGIONNAME'",
    ),
    Command::new(
        "unassign",
        (1, 2),
        unassign,
        "Closes a region.\n\n  hbase> unassign 'REGIONNAME'\n  hbase> unassign 'ENCODED_REGIONNAME'",
    ),
    Command::new(
        "truncate_region",
        (1, 1),
        truncate_region,
        "Deletes the cells of one region.\n\n  hbase> truncate_region 'REGIONNAME'\n  \
         hbase> truncate_region 'ENCODED_REGIONNAME'",
    ),
    Command::new(
        "split",
        (1, 2),
        split,
        "Splits a region, or all regions of a table, at a row or in the middle.\n\n  hbase> split 't1'\n  \
         hbase> split 't1', 'row'\n  hbase> split 'ENCODED_REGIONNAME', 'row'",
    ),
    Command::new(
        "merge_region",
        (1, 1),
        merge_region,
        "Merges regions by their names; `true` as the last argument also merges regions that are not adjacent.\n\n  \
         hbase> merge_region 'ENCODED_REGIONNAME1', 'ENCODED_REGIONNAME2'\n  \
         hbase> merge_region ['ENCODED_REGIONNAME1', 'ENCODED_REGIONNAME2'], true",
    )
    .variadic(),
];

/// A region by its full or encoded name.
pub(super) fn find(shell: &mut Shell, name: &Value) -> CommandResult<Option<RegionState>> {
    let name = text::from_binary(&name.to_bytes());
    let looks = name.ends_with(b".") || name.len() == 32 || name.starts_with(b"hbase:meta,,");
    let encoded_meta = name == b"1588230740";
    if !looks && !encoded_meta {
        return Ok(None);
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.find_region(&name))
}

fn existing(shell: &mut Shell, name: &Value) -> CommandResult<RegionInfo> {
    match find(shell, name)? {
        Some(state) => Ok(state.region),
        None => Err(unknown(name)),
    }
}

/// The master's error for an unknown region.
fn unknown(name: &Value) -> CommandError {
    let name = text::binary(&name.to_bytes());
    RubyError::runtime(format!("org.apache.hadoop.hbase.UnknownRegionException: {name}")).into()
}

fn move_region(shell: &mut Shell, args: Args) -> CommandResult {
    let server: Option<ServerName> =
        args.optional_text(1).filter(|s| !s.is_empty()).map(|s| s.parse()).transpose()?;
    let region = existing(shell, args.get(0))?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.move_region(&region, server.as_ref()))?;
    Ok(Value::Nil)
}

fn assign(shell: &mut Shell, args: Args) -> CommandResult {
    let region = existing(shell, args.get(0))?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.assign_region(&region))?;
    Ok(Value::Nil)
}

fn unassign(shell: &mut Shell, args: Args) -> CommandResult {
    let region = existing(shell, args.get(0))?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.unassign_region(&region))?;
    Ok(Value::Nil)
}

fn truncate_region(shell: &mut Shell, args: Args) -> CommandResult {
    let region = existing(shell, args.get(0))?;
    let admin = shell.cluster.admin()?;
    shell.wait(admin.truncate_region(&region))?;
    Ok(Value::Nil)
}

fn split(shell: &mut Shell, args: Args) -> CommandResult {
    let row = args.optional_text(1).map(|_| Bytes::from(args.bytes(1)));
    let region = find(shell, args.get(0))?;
    let admin = shell.cluster.admin()?;
    match region {
        Some(state) => shell.wait(admin.split_region(&state.region, row))?,
        None => {
            let table = table_name(args.get(0))?;
            ddl::state(shell, &table)?;
            shell.wait(admin.split_table(&table, row))?;
        }
    }
    Ok(Value::Nil)
}

fn merge_region(shell: &mut Shell, args: Args) -> CommandResult {
    let mut names = builtin::flatten(args.from(0).to_vec());
    let force = match names.last() {
        Some(Value::Bool(force)) if names.len() > 2 => Some(*force),
        _ => None,
    };
    names.truncate(names.len() - usize::from(force.is_some()));
    if names.len() < 2 {
        return Err(RubyError::argument("Must pass at least 2 regions to merge").into());
    }
    let mut regions = Vec::new();
    for name in &names {
        let found = find(shell, name)?;
        let why = || RubyError::runtime(format!("Can't invoke merge on unknown region {}", name.to_text()));
        regions.push(found.ok_or_else(why)?.region);
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.merge_regions(&regions, force.unwrap_or(false)))?;
    Ok(Value::Nil)
}

/// The columns of `list_regions` and their minimum widths.
const COLUMNS: &[(&str, usize)] = &[
    ("SERVER_NAME", 12),
    ("REGION_NAME", 12),
    ("START_KEY", 10),
    ("END_KEY", 10),
    ("SIZE", 5),
    ("REQ", 5),
    ("LOCALITY", 10),
];

fn chosen_columns(value: &Value) -> CommandResult<Vec<usize>> {
    let names = "Possible values are SERVER_NAME, REGION_NAME, START_KEY, END_KEY, SIZE, REQ, LOCALITY.";
    match value {
        Value::Nil => Ok((0..COLUMNS.len()).collect()),
        Value::Array(columns) => columns
            .iter()
            .map(|column| {
                let text = column.to_text();
                let found = COLUMNS.iter().position(|(name, _)| name.eq_ignore_ascii_case(&text));
                found.ok_or_else(|| {
                    RubyError::runtime(format!("{text} is not a valid column. {names}")).into()
                })
            })
            .collect(),
        other => {
            Err(RubyError::runtime(format!("{} must be an array of strings. {names}", other.to_text()))
                .into())
        }
    }
}

/// The selection of `list_regions`.
struct RegionSelection {
    server: Option<String>,
    locality_max: f64,
}

impl RegionSelection {
    fn of(value: &Value) -> CommandResult<Self> {
        let Value::Hash(options) = value else {
            let server = (*value != Value::Nil).then(|| value.to_text());
            return Ok(Self { server, locality_max: 1.0 });
        };
        let locality_max = match options.option("LOCALITY_THRESHOLD") {
            None => 1.0,
            Some(Value::Float(most)) if (0.0..=1.0).contains(most) => *most,
            Some(Value::Float(_)) => {
                return Err(
                    RubyError::runtime("LOCALITY_THRESHOLD must be between 0 and 1.0, inclusive").into()
                );
            }
            Some(_) => return Err(RubyError::runtime("LOCALITY_THRESHOLD must be a float value").into()),
        };
        Ok(Self { server: options.option("SERVER_NAME").map(Value::to_text), locality_max })
    }
}

fn list_regions(shell: &mut Shell, args: Args) -> CommandResult {
    let table = args.table(0)?;
    let wanted = RegionSelection::of(args.get(1))?;
    let columns = chosen_columns(args.get(2))?;
    if ddl::state(shell, &table)? != evenkeel_client::TableState::Enabled {
        return Err(RubyError::runtime(format!("Table {table} must be enabled.")).into());
    }
    let rows = region_rows(shell, &table, &wanted)?;
    let width =
        |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0).max(COLUMNS[column].1);
    let line = |cells: &dyn Fn(usize) -> String| -> String {
        columns.iter().map(|c| format!(" {:>width$} |", cells(*c), width = width(*c))).collect()
    };
    shell.out.line(line(&|c| COLUMNS[c].0.to_owned()))?;
    shell.out.line(line(&|c| "-".repeat(width(c))))?;
    for row in &rows {
        shell.out.line(line(&|c| row[c].clone()))?;
    }
    shell.out.line(format!(" {} rows", rows.len()))?;
    Ok(Value::Nil)
}

fn region_rows(
    shell: &mut Shell,
    table: &TableName,
    wanted: &RegionSelection,
) -> CommandResult<Vec<Vec<String>>> {
    let admin = shell.cluster.admin()?;
    let regions = shell.wait(admin.regions_and_replicas(table))?;
    let status = shell.wait(admin.cluster_status())?;
    let loads: Vec<_> = status.live_servers.iter().flat_map(|live| &live.server_load.region_loads).collect();
    let mut rows = Vec::new();
    for state in &regions {
        let Some(server) = &state.server else {
            return Err(RubyError::runtime(
                "Some regions might be splitting or merging or transitioning due to other reasons",
            )
            .into());
        };
        if wanted.server.as_ref().is_some_and(|wanted| !server.to_string().starts_with(wanted)) {
            continue;
        }
        let name = text::binary(state.region.name());
        let load = loads.iter().find(|load| load.region_specifier.value == *state.region.name());
        match load {
            Some(load) if f64::from(load.data_locality()) > wanted.locality_max => continue,
            None => {
                let why = "it may be disabled or in transition";
                shell.out.line(format!("Can not find all details for region: {name} , {why}"))?;
            }
            Some(_) => {}
        }
        rows.push(vec![
            server.to_string(),
            name,
            text::binary(state.region.start_key()),
            text::binary(state.region.end_key()),
            load.map(|load| load.storefile_size_mb().to_string()).unwrap_or_default(),
            load.map(|load| (load.read_requests_count() + load.write_requests_count()).to_string())
                .unwrap_or_default(),
            load.map(|load| text::double(f64::from(load.data_locality()))).unwrap_or_default(),
        ]);
    }
    Ok(rows)
}
