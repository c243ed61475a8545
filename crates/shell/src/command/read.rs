//! `get`, `get_counter`, `scan`, `count`, `get_splits`: commands that read data.

use evenkeel_client::filter::Filter;
use evenkeel_client::{Consistency, Get, RowResult, Scan, Scanner};
use evenkeel_common::length;

use super::Command;
use super::column::{CellFormat, Column, columns};
use super::write::{attributes_of, prefix_scan, row};
use crate::args::{self, Args};
use crate::error::{CommandError, CommandResult, RubyError};
use crate::shell::Shell;
use crate::text;
use crate::value::{Hash, Value};

/// The attribute of raw scans (`Scan.RAW_ATTR`), and its value: Java's `Bytes.toBytes(true)`.
const RAW_ATTRIBUTE: (&str, &[u8]) = ("_raw_", &[0xff]);
/// The attribute of a scan's isolation level (`Query.ISOLATION_LEVEL`).
const ISOLATION_ATTRIBUTE: &str = "_isolationlevel_";
/// Print timestamps as numbers (`HConstants.SHELL_TIMESTAMP_FORMAT_EPOCH_KEY`).
const EPOCH_KEY: &str = "hbase.shell.timestamp.format.epoch";

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "get",
        (2, 2),
        get,
        "Reads a row: get table, row, and columns or options (COLUMN, TIMESTAMP, TIMERANGE, VERSIONS, FILTER, MAXLENGTH, \
         FORMATTER, ATTRIBUTES, CONSISTENCY, REGION_REPLICA_ID).\n\n  hbase> get 't1', 'r1'\n  hbase> get 't1', 'r1', 'f:q1', 'f:q2'\n  \
         hbase> get 't1', 'r1', {COLUMN => ['f:q1', 'g'], VERSIONS => 4}\n  \
         hbase> get 't1', 'r1', {TIMERANGE => [ts1, ts2]}\n  \
         hbase> get 't1', 'r1', {FILTER => \"ValueFilter(=, 'binary:abc')\"}\n\nA column may name a method of Bytes that \
         shows its values: toInt, toLong, toShort, toFloat, toDouble, toBoolean, toString, toHex. FORMATTER names one for \
         all:\n\n  hbase> get 't1', 'r1', 'f:count:toLong'\n  hbase> get 't1', 'r1', {FORMATTER => 'toString'}",
    )
    .variadic(),
    Command::new(
        "get_counter",
        (3, 3),
        get_counter,
        "Prints a counter: get_counter table, row, column.\n\n  hbase> get_counter 't1', 'r1', 'f:q'",
    ),
    Command::new(
        "scan",
        (1, 2),
        scan,
        "Reads rows: scan table, and options (COLUMNS, STARTROW, STOPROW, ROWPREFIXFILTER, LIMIT, FILTER, TIMESTAMP, \
         TIMERANGE, VERSIONS, REVERSED, RAW, CACHE, BATCH, ALLOW_PARTIAL_RESULTS, CACHE_BLOCKS, MAXLENGTH, FORMATTER, ATTRIBUTES, ISOLATION_LEVEL, \
         READ_TYPE).\n\n  hbase> scan 't1'\n  hbase> scan 't1', {COLUMNS => ['f:q', 'g'], LIMIT => 10, STARTROW => 'xyz'}\n  \
         hbase> scan 't1', {ROWPREFIXFILTER => 'row2', FILTER => \"QualifierFilter(>=, 'binary:xyz') AND \
         TimestampsFilter(123, 456)\"}\n  hbase> scan 't1', {REVERSED => true, RAW => true, VERSIONS => 10}\n  \
         hbase> scan 't1', {COLUMNS => ['f:count:toLong']}\n\nA filter may be built by its constructor:\n\n  \
         hbase> import org.apache.hadoop.hbase.filter.PrefixFilter\n  \
         hbase> scan 't1', {FILTER => PrefixFilter.new(Bytes.toBytes('row2'))}",
    ),
    Command::new(
        "count",
        (1, 2),
        count,
        "Counts the rows of a table, printing after every INTERVAL rows (1000 unless given): count table, interval or options \
         (INTERVAL, CACHE, and those of scan that choose rows).\n\n  hbase> count 't1'\n  hbase> count 't1', 100000\n  \
         hbase> count 't1', INTERVAL => 10, CACHE => 1000\n  hbase> count 't1', FILTER => \"PrefixFilter('a')\"",
    ),
    Command::new(
        "get_splits",
        (1, 1),
        get_splits,
        "Prints the start keys of a table's regions.\n\n  hbase> get_splits 't1'",
    ),
];

/// Applies an option to a Get or a Scan, whose builders have the same methods but no common trait.
macro_rules! selected {
    ($shell:expr, $request:expr, $options:expr, $format:expr) => {{
        let mut request = $request;
        for text in columns($options.option("COLUMNS").or($options.option("COLUMN")).unwrap_or(&Value::Nil))?
        {
            let (column, formatter) = Column::parse(&text);
            if let Some(formatter) = formatter {
                $format.set_column(&column, &formatter)?;
            }
            request = match &column.qualifier {
                Some(qualifier) => request.column(&column.family, qualifier),
                None => request.family(&column.family),
            };
        }
        if let Some(versions) = given($options, "VERSIONS") {
            let versions = args::natural("VERSIONS", versions)?;
            request = request.max_versions(u32::try_from(versions).unwrap_or(u32::MAX));
        }
        if let Some((from, to)) = time_range($options)? {
            request = request.time_range(from, to);
        }
        if let Some(filter) = filter($options)? {
            request = request.filter(filter);
        }
        for (name, value) in attributes_of($options.option("ATTRIBUTES"))? {
            request = request.attribute(&name, value);
        }
        let consistency = consistency($options)?;
        request = request.consistency(consistency);
        if let Some(id) = replica($options, consistency)? {
            request = request.replica(id);
        }
        request
    }};
}

/// An option that is given and not `nil`.
fn given<'a>(options: &'a Hash, name: &str) -> Option<&'a Value> {
    options.option(name).filter(|value| **value != Value::Nil)
}

fn time_range(options: &Hash) -> CommandResult<Option<(u64, u64)>> {
    if let Some(range) = given(options, "TIMERANGE") {
        let Value::Array(range) = range else {
            return Err(RubyError::argument("TIMERANGE must be an Array").into());
        };
        let [from, to] = range.as_slice() else {
            return Err(RubyError::argument("TIMERANGE must have a first time and one after the last").into());
        };
        return Ok(Some((args::natural("TIMERANGE", from)?, args::natural("TIMERANGE", to)?)));
    }
    let Some(timestamp) = given(options, "TIMESTAMP") else { return Ok(None) };
    let timestamp = args::natural("TIMESTAMP", timestamp)?;
    Ok(Some((timestamp, timestamp.saturating_add(1))))
}

fn filter(options: &Hash) -> CommandResult<Option<Filter>> {
    let text = match given(options, "FILTER") {
        None => return Ok(None),
        Some(Value::Str(text)) => text.as_slice(),
        Some(Value::Filter(filter)) => filter.as_bytes(),
        Some(other) => {
            return Err(RubyError::argument(format!("FILTER cannot be {}", other.inspect())).into());
        }
    };
    Ok(Some(evenkeel_client::filter::parse_bytes(text)?))
}

/// Options whose effect on the result this shell cannot print; they are refused.
const REFUSED: &[&str] = &["AUTHORIZATIONS", "ALL_METRICS", "METRICS"];

fn reject(options: &Hash) -> CommandResult<()> {
    let refused = REFUSED.iter().find(|name| given(options, name).is_some_and(Value::is_true));
    if let Some(name) = refused {
        return Err(RubyError::runtime(format!("{name} is not supported by this shell")).into());
    }
    Ok(())
}

fn consistency(options: &Hash) -> CommandResult<Consistency> {
    match given(options, "CONSISTENCY").map(Value::to_text).as_deref() {
        None | Some("STRONG") => Ok(Consistency::Strong),
        Some("TIMELINE") => Ok(Consistency::Timeline),
        Some(other) => Err(no_constant("Consistency", other)),
    }
}

/// The replica that a read goes to, if it is one. As in HBase, a strong read goes to the default
/// replica, whatever `REGION_REPLICA_ID` is.
fn replica(options: &Hash, consistency: Consistency) -> CommandResult<Option<u32>> {
    let Some(id) = given(options, "REGION_REPLICA_ID") else { return Ok(None) };
    let id = args::natural("REGION_REPLICA_ID", id)?;
    Ok(Some(u32::try_from(id).unwrap_or(u32::MAX)).filter(|_| consistency == Consistency::Timeline))
}

/// The format of a table's cells.
fn format(
    shell: &Shell,
    table: &evenkeel_common::TableName,
    options: &mut Hash,
) -> CommandResult<CellFormat> {
    let epoch = shell.cluster.conf().get_bool_or(EPOCH_KEY, false).unwrap_or(false);
    CellFormat::take(options, epoch, table.is_meta())
}

/// The options of a get: a hash, or single columns.
fn get_options(args: &Args) -> CommandResult<Hash> {
    match args.from(2) {
        [Value::Hash(options), ..] => Ok(options.clone()),
        [Value::Filter(filter)] => {
            Ok([(Value::text("FILTER"), Value::Filter(filter.clone()))].into_iter().collect())
        }
        columns => {
            let columns =
                crate::builtin::flatten(columns.to_vec()).iter().map(Value::to_bytes).collect::<Vec<_>>();
            Ok([(Value::text("COLUMNS"), Value::texts(columns))].into_iter().collect())
        }
    }
}

/// If options are given, one of these is required.
const GET_NEEDS: &[&str] = &[
    "COLUMN",
    "COLUMNS",
    "TIMESTAMP",
    "TIMERANGE",
    "ATTRIBUTES",
    "VERSIONS",
    "FILTER",
    "CONSISTENCY",
    "REGION_REPLICA_ID",
];

fn get(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    shell.out.header(&["COLUMN", "CELL"])?;
    let mut options = get_options(&args)?;
    reject(&options)?;
    let mut format = format(shell, &name, &mut options)?;
    if !options.pairs().is_empty() && GET_NEEDS.iter().all(|need| options.option(need).is_none()) {
        let shown = Value::Hash(options).inspect();
        return Err(RubyError::argument(format!("Failed parse of {shown}, Hash")).into());
    }
    if let Some(column) = options.option("COLUMN").or(options.option("COLUMNS"))
        && !matches!(column, Value::Str(_) | Value::Symbol(_) | Value::Array(_) | Value::Nil)
    {
        let shown = Value::Hash(options).inspect();
        return Err(RubyError::argument(format!("Failed parse column argument type {shown}, Hash")).into());
    }
    let get = selected!(shell, Get::new(row(args.get(1))?), &options, &mut format);
    let table = shell.cluster.table(name)?;
    let result = shell.wait(table.get(get))?;
    for cell in result.cells() {
        let cell = cell.as_cell();
        shell.out.row(&[&format.column(&cell)?, &format.cell(&cell)?])?;
    }
    shell.out.footer_of_read(usize::from(!result.is_empty()), !result.is_empty() && result.is_stale())?;
    Ok(Value::Nil)
}

fn get_counter(shell: &mut Shell, args: Args) -> CommandResult {
    let (column, _) = Column::parse(&args.bytes(2));
    let get = Get::new(row(args.get(1))?).column(&column.family, column.qualifier());
    let table = shell.cluster.table(args.table(0)?)?;
    let result = shell.wait(table.get(get))?;
    match result.value(&column.family, column.qualifier()) {
        Some(value) => {
            let wrong = |_| RubyError::argument(format!("Wrong length: {}, expected 8", value.len()));
            let bytes = <[u8; 8]>::try_from(value).map_err(wrong)?;
            shell.out.line(format!("COUNTER VALUE = {}", i64::from_be_bytes(bytes)))?;
        }
        None => shell.out.line("No counter found at specified coordinates")?,
    }
    Ok(Value::Nil)
}

/// The options of a scan.
fn scan_options(value: &Value) -> CommandResult<Hash> {
    match value {
        Value::Nil => Ok(Hash::default()),
        Value::Hash(options) => Ok(options.clone()),
        other => {
            Err(RubyError::argument(format!("Arguments should be a Hash, not {}", other.inspect())).into())
        }
    }
}

fn flag_or(options: &Hash, name: &str, default: bool) -> bool {
    given(options, name).map_or(default, args::flag)
}

/// Java's error for an unknown name of an enumeration.
fn no_constant(class: &str, name: &str) -> CommandError {
    RubyError::argument(format!("No enum constant org.apache.hadoop.hbase.client.{class}.{name}")).into()
}

/// A scan from its options; column formatters are added to `format`.
fn scan_of(options: &Hash, format: &mut CellFormat) -> CommandResult<Scan> {
    reject(options)?;
    let mut scan = Scan::new();
    if let Some(start) = given(options, "STARTROW") {
        scan = scan.from(start.to_bytes());
    }
    if let Some(stop) = given(options, "STOPROW") {
        scan = scan.to(stop.to_bytes());
    }
    if let Some(prefix) = given(options, "ROWPREFIXFILTER") {
        scan = prefix_scan(scan, &prefix.to_bytes());
    }
    scan = selected!(shell, scan, options, format);
    if flag_or(options, "REVERSED", false) {
        scan = scan.reversed();
    }
    if let Some(limit) =
        given(options, "LIMIT").map(|l| args::number("LIMIT", l)).transpose()?.filter(|l| *l > 0)
    {
        scan = scan.limit(limit as u64);
    }
    if let Some(rows) =
        given(options, "CACHE").map(|c| args::number("CACHE", c)).transpose()?.filter(|c| *c > 0)
    {
        scan = scan.caching(u32::try_from(rows).unwrap_or(u32::MAX));
    }
    if let Some(cells) =
        given(options, "BATCH").map(|b| args::number("BATCH", b)).transpose()?.filter(|cells| *cells > 0)
    {
        scan = scan.batch(u32::try_from(cells).unwrap_or(u32::MAX));
    }
    if flag_or(options, "ALLOW_PARTIAL_RESULTS", false) {
        scan = scan.allow_partial();
    }
    if flag_or(options, "RAW", false) {
        scan = scan.attribute(RAW_ATTRIBUTE.0, RAW_ATTRIBUTE.1);
    }
    match given(options, "ISOLATION_LEVEL").map(Value::to_text).as_deref() {
        None | Some("READ_COMMITTED") => {}
        Some("READ_UNCOMMITTED") => scan = scan.attribute(ISOLATION_ATTRIBUTE, vec![2]),
        Some(other) => return Err(no_constant("IsolationLevel", other)),
    }
    match given(options, "READ_TYPE").map(Value::to_text).as_deref() {
        None | Some("DEFAULT" | "STREAM") => {}
        Some("PREAD") => scan = scan.preads(),
        Some(other) => return Err(no_constant("Scan.ReadType", other)),
    }
    Ok(scan)
}

/// The next rows, once the previous ones are printed.
fn next_rows(shell: &mut Shell, scanner: &mut Scanner) -> CommandResult<Option<Vec<RowResult>>> {
    shell.out.flush()?;
    shell.wait(scanner.next_batch())
}

fn scan(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    shell.out.header(&["ROW", "COLUMN+CELL"])?;
    let mut options = scan_options(args.get(1))?;
    let mut format = format(shell, &name, &mut options)?;
    let mut scan = scan_of(&options, &mut format)?;
    if !flag_or(&options, "CACHE_BLOCKS", true) {
        scan = scan.cache_blocks(false);
    }
    let table = shell.cluster.table(name)?;
    let mut scanner = table.scan(scan);
    let (mut rows, mut is_stale) = (0, false);
    while let Some(batch) = next_rows(shell, &mut scanner)? {
        for result in &batch {
            is_stale |= result.is_stale();
            show_row(shell, result, &format)?;
        }
        rows += batch.len();
    }
    shell.out.footer_of_read(rows, is_stale)?;
    Ok(Value::Nil)
}

fn show_row(shell: &mut Shell, result: &RowResult, format: &CellFormat) -> CommandResult<()> {
    let row = format.row(result.row().unwrap_or_default())?;
    for cell in result.cells() {
        let cell = cell.as_cell();
        let shown = format!("column={}, {}", format.column(&cell)?, format.cell(&cell)?);
        shell.out.row(&[&row, &shown])?;
    }
    Ok(())
}

fn count(shell: &mut Shell, args: Args) -> CommandResult {
    let mut options = match args.get(1) {
        Value::Int(interval) => [(Value::text("INTERVAL"), Value::Int(*interval))].into_iter().collect(),
        other => scan_options(other)?,
    };
    let interval =
        options.take("INTERVAL").map_or(Ok(1000), |interval| args::natural("INTERVAL", &interval))?;
    if options.option("CACHE").is_none() {
        options.insert(Value::text("CACHE"), Value::Int(10));
    }
    let own = filter(&options)?;
    options.take("FILTER");
    let name = args.table(0)?;
    let mut format = format(shell, &name, &mut options)?;
    let scan = scan_of(&options, &mut format)?;
    let scan = scan.cache_blocks(flag_or(&options, "CACHE_BLOCKS", false)).filter(match own {
        Some(filter) => Filter::all_of([filter, Filter::FirstKeyOnly]),
        None => Filter::FirstKeyOnly,
    });
    let table = shell.cluster.table(name)?;
    let mut scanner = table.scan(scan);
    let mut rows: u64 = 0;
    while let Some(batch) = next_rows(shell, &mut scanner)? {
        for result in &batch {
            rows += 1;
            if rows.is_multiple_of(interval) {
                let row = text::binary(result.row().unwrap_or_default());
                shell.out.line(format!("Current count: {rows}, row: {row}"))?;
            }
        }
    }
    shell.out.footer(length::index(rows))?;
    Ok(Value::Int(rows as i64))
}

fn get_splits(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    let admin = shell.cluster.admin()?;
    let regions = shell.wait(admin.regions(&name))?;
    let starts = regions
        .iter()
        .map(|state| &state.region)
        .filter(|r| r.replica_id() == 0 && !r.start_key().is_empty());
    let splits: Vec<String> = starts.map(|region| text::binary(region.start_key())).collect();
    shell.out.line(format!("Total number of splits = {}", splits.len() + 1))?;
    for split in &splits {
        shell.out.line(split)?;
    }
    Ok(Value::texts(splits))
}
