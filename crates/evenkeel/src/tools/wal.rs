//! `evenkeel wal`: the entries of WAL files, with the options and the output of HBase's `hbase
//! wal`.
//!
//! Differences: the last line for a file describes its end; damage ends a file only if no entry
//! follows it, and each gap is reported on standard error, with exit status 1; sizes are bytes in
//! the file's uncompressed form, not those of Java objects; dates are UTC.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args};
use evenkeel_common::{Binary, CellRef};
use evenkeel_wal::{ReadError, WalEnd, WalEntry, WalReader};

use super::storage::StorageArgs;
use super::text::{Json, date, type_name};
use super::{ErrorText, exit};

/// Options of `evenkeel wal`: HBase's letters and names.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct WalArgs {
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// Print values
    #[arg(short = 'p', long = "printvals")]
    print_values: bool,
    /// Only entries of these tables
    #[arg(short, long, value_name = "TABLES", value_delimiter = ',')]
    tables: Vec<String>,
    /// Only entries of the region with this encoded name
    #[arg(short, long)]
    region: Option<String>,
    /// Only the entry with this sequence id
    #[arg(short, long)]
    sequence: Option<u64>,
    /// Print rows only
    #[arg(short = 'k', long = "outputOnlyRowKey")]
    only_rows: bool,
    /// Only cells of this row; \xNN stands for a byte
    #[arg(short = 'w', long, conflicts_with = "row_prefix")]
    row: Option<String>,
    /// Only cells of rows with this prefix
    #[arg(short = 'f', long = "rowPrefix", value_name = "PREFIX")]
    row_prefix: Option<String>,
    /// Only entries at or after this offset of the file
    #[arg(short, long = "goto", value_name = "OFFSET", default_value_t = 0)]
    goto: u64,
    #[command(flatten)]
    storage: StorageArgs,
    /// The files, local or by hdfs: URIs
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Runs the tool.
///
/// # Errors
/// If a file cannot be read or is damaged. The readable part is printed.
pub fn run(args: &WalArgs) -> Result<ExitCode, ErrorText> {
    let mut printer = Printer { args, out: BufWriter::new(io::stdout().lock()), is_first: true };
    let result = printer.print_all();
    drop(printer.out.flush());
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(PrintError::Output(error)) => exit(Err(error)),
        Err(PrintError::File(error)) => Err(error),
    }
}

/// The reason why printing stops.
enum PrintError {
    File(ErrorText),
    Output(io::Error),
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ReadError> for PrintError {
    fn from(error: ReadError) -> Self {
        Self::File(error.to_string())
    }
}

struct Printer<'a> {
    args: &'a WalArgs,
    out: BufWriter<io::StdoutLock<'static>>,
    is_first: bool,
}

impl Printer<'_> {
    fn print_all(&mut self) -> Result<(), PrintError> {
        if self.args.json {
            write!(self.out, "[")?;
        }
        let printed = self.args.files.iter().try_for_each(|file| self.print_file(file));
        if self.args.json {
            writeln!(self.out, "]")?;
        }
        printed
    }

    fn print_file(&mut self, path: &Path) -> Result<(), PrintError> {
        let (fs, path) = self.args.storage.locate(path).map_err(PrintError::File)?;
        let path = &*path;
        let mut reader = WalReader::open(&*fs, path)?;
        let mut damage = None;
        if !self.args.json {
            self.print_header(&reader)?;
        }
        loop {
            let at = reader.position();
            let entry = match reader.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error @ ReadError::Corrupt { .. }) => {
                    let gap = reader.skip_damage()?;
                    self.out.flush()?;
                    if let Some(gap) = gap {
                        writeln!(io::stderr(), "{}: {gap}", path.display())?;
                    }
                    damage.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if at >= self.args.goto && self.wants(&entry) {
                self.print_entry(&entry, reader.position())?;
            }
        }
        if !self.args.json && !self.args.only_rows {
            writeln!(self.out, "{}", end_text(reader.end(), reader.position()))?;
        }
        damage.map_or(Ok(()), |error| Err(error.into()))
    }

    fn print_header(&mut self, reader: &WalReader) -> io::Result<()> {
        if let Some(class) = &reader.header().writer_cls_name {
            writeln!(self.out, "Writer Classes: {class}")?;
        }
        match &reader.header().cell_codec_cls_name {
            Some(class) => writeln!(self.out, "Cell Codec Class: {class}"),
            None => Ok(()),
        }
    }

    fn wants(&self, entry: &WalEntry) -> bool {
        let args = self.args;
        let table = || args.tables.iter().any(|table| *table == entry.table.to_string());
        (args.tables.is_empty() || table())
            && args.sequence.is_none_or(|sequence| sequence == entry.seq_id)
            && args.region.as_ref().is_none_or(|region| region.as_bytes() == entry.region)
    }

    fn wants_row(&self, row: &str) -> bool {
        self.args.row.as_ref().is_none_or(|wanted| wanted == row)
            && self.args.row_prefix.as_ref().is_none_or(|prefix| row.starts_with(prefix))
    }

    fn print_entry(&mut self, entry: &WalEntry, position: u64) -> io::Result<()> {
        let cells: Vec<_> = entry.cells.iter().map(|cell| cell.as_cell()).collect();
        let wanted: Vec<_> =
            cells.into_iter().filter(|cell| self.wants_row(&Binary(cell.row()).to_string())).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        if self.args.json {
            let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
            return write!(self.out, "{comma}{}", self.json(entry, &wanted));
        }
        if self.args.only_rows {
            return wanted.iter().try_for_each(|cell| writeln!(self.out, "row={}", Binary(cell.row())));
        }
        let (region, written) = (Binary(&entry.region), date(entry.write_time_ms));
        writeln!(
            self.out,
            "Sequence={}, table={}, region={region}, at write timestamp={written}",
            entry.seq_id, entry.table
        )?;
        wanted.iter().try_for_each(|cell| self.print_cell(cell))?;
        let bytes: usize = entry.cells.iter().map(|cell| cell.as_cell().key_value_len()).sum();
        writeln!(self.out, "edit size: {bytes}\nposition: {position}")
    }

    fn print_cell(&mut self, cell: &CellRef<'_>) -> io::Result<()> {
        let (row, family, qualifier) = (Binary(cell.row()), Binary(cell.family()), Binary(cell.qualifier()));
        write!(self.out, "row={row}, column={family}:{qualifier}, timestamp={}", cell.timestamp())?;
        writeln!(self.out, ", type={}", type_name(cell))?;
        if cell.tag_iter().next().is_some() {
            writeln!(self.out, "    tag: [{}]", tags(cell).join(", "))?;
        }
        if self.args.print_values {
            writeln!(self.out, "    value: {}", Binary(cell.value()))?;
        }
        writeln!(self.out, "cell total size sum: {}", cell.key_value_len())
    }

    fn json(&self, entry: &WalEntry, cells: &[CellRef<'_>]) -> String {
        let actions: Vec<_> = cells.iter().map(|cell| self.json_cell(cell)).collect();
        format!(
            "{{\"table\":{},\"region\":{},\"sequence\":{},\"write_time\":{},\"actions\":[{}]}}",
            Json(&entry.table.to_string()),
            Json(&Binary(&entry.region).to_string()),
            entry.seq_id,
            entry.write_time_ms,
            actions.join(",")
        )
    }

    fn json_cell(&self, cell: &CellRef<'_>) -> String {
        let text = |bytes| Json(&Binary(bytes).to_string()).to_string();
        let mut out = format!("{{\"row\":{}", text(cell.row()));
        if self.args.only_rows {
            return out + "}";
        }
        let mut field = |name: &str, value: String| out.push_str(&format!(",\"{name}\":{value}"));
        field("type", Json(&type_name(cell)).to_string());
        field("family", text(cell.family()));
        field("qualifier", text(cell.qualifier()));
        field("timestamp", cell.timestamp().to_string());
        field("vlen", cell.value().len().to_string());
        field("total_size_sum", cell.key_value_len().to_string());
        let tags: Vec<_> = tags(cell).iter().map(|tag| Json(tag).to_string()).collect();
        if !tags.is_empty() {
            field("tag", format!("[{}]", tags.join(",")));
        }
        if self.args.print_values {
            field("value", text(cell.value()));
        }
        out + "}"
    }
}

fn tags(cell: &CellRef<'_>) -> Vec<String> {
    cell.tag_iter().map(|(kind, value)| format!("{kind}:{}", Binary(value))).collect()
}

/// Describes the end of a file.
pub fn end_text(end: Option<WalEnd>, position: u64) -> String {
    match end {
        Some(WalEnd::Closed) => format!("end: closed at {position}"),
        Some(WalEnd::Open) => format!("end: not closed, after a whole entry at {position}"),
        Some(WalEnd::Torn { bytes }) => {
            format!("end: torn, {bytes} bytes after the last whole entry at {position}")
        }
        None => format!("end: not reached, stopped at {position}"),
    }
}
