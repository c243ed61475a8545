//! `evenkeel verify`: reads a whole root directory and reports faults.
//!
//! It checks:
//! * every store file, live and archived, and every MOB file: see [`store_file`];
//! * every WAL: entries up to the end; a torn tail, as after a server crash, is a note and not a
//!   fault;
//! * every table: its descriptor, and that its regions cover every row once, by their `.regioninfo`
//!   files and by hbase:meta: see [`tables`];
//! * every reference and link: that its target exists;
//! * every list of store files (the FILE tracker): that it can be read, and that its files exist.
//!   Files that a list omits are notes, and are not read.
//!
//! It writes nothing and takes no lock. A running server creates and removes files: the tool skips
//! files that vanish after the listing, and changes in progress may look like faults.
//!
//! Each fault is a line `fault: <path> at offset <n>: <what>`, and each note a line. The exit
//! status is 0 without faults, 1 with faults, 2 if the directory cannot be read.

mod mob;
mod regions;
mod store_file;
mod tables;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use evenkeel_block_cache::LruBlockCache;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result};
use evenkeel_fs::FileSystem;
use evenkeel_region::region::WalRoot;
use evenkeel_wal::{ReadError, WalEnd, WalReader};

pub use self::tables::read_region_info;
use super::progress::Progress;
use super::storage::StorageArgs;
use super::{ErrorText, catalog};

/// Cache capacity for bloom filter chunks, in bytes; no other blocks are cached.
const CACHE_BYTES: usize = 64 << 20;

/// Options of `evenkeel verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The root directory (hbase.rootdir), local or by an hdfs: URI
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The directory of its logs (hbase.wal.dir), local or by an hdfs: URI; otherwise the one that
    /// the last start of Evenkeel has recorded, otherwise DIR
    #[arg(long = "wal-dir", value_name = "DIR")]
    wal_dir: Option<PathBuf>,
    /// Print the name of every file
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    storage: StorageArgs,
}

/// Runs the tool: 0 without faults, 1 with faults.
///
/// # Errors
/// If the directory is not a root directory, or cannot be listed.
pub fn run(args: &VerifyArgs) -> Result<ExitCode, ErrorText> {
    let (fs, dir) = args.storage.locate(&args.dir)?;
    check_is_root(&*fs, &dir)?;
    let (log_roots, missing) = match args.storage.log_roots((&fs, &dir), args.wal_dir.as_deref()) {
        // A copy of a root directory may be without its logs.
        Err(why) if args.wal_dir.is_none() => {
            (vec![WalRoot { fs: Arc::clone(&fs), path: dir.clone() }], Some(why))
        }
        log_roots => (log_roots?, None),
    };
    let mut out = io::stdout().lock();
    let mut report = Report::new(&mut out);
    if let Some(why) = missing {
        report.note(format_args!("the directory of the logs cannot be read: {why}"));
    }
    for logs in log_roots.iter().skip(1) {
        report.say(&format_args!("logs: {}", logs.fs.uri_of(&logs.path)));
    }
    let checked = check(&*fs, &dir, &log_roots, args.verbose, &mut report);
    let summary = checked.map_err(|error| error.message().to_owned())?;
    report.say(&summary);
    report.said.map_err(|error| error.to_string())?;
    Ok(ExitCode::from(u8::from(report.faults > 0)))
}

fn check_is_root(fs: &dyn FileSystem, dir: &Path) -> Result<(), ErrorText> {
    let entries = fs.list(dir).map_err(|e| e.to_string())?;
    if entries.iter().any(|entry| entry.name() == "hbase.version" || entry.name() == "data") {
        return Ok(());
    }
    Err(format!("{}: not a root directory: neither hbase.version nor data is in it", dir.display()))
}

/// A file to read.
#[derive(Debug)]
enum FileKind {
    StoreFile { region: Option<Arc<RegionInfo>>, family: String },
    Wal,
}

/// A file to read, and its length.
#[derive(Debug)]
struct FileToRead {
    path: PathBuf,
    bytes: u64,
    work: FileKind,
}

/// Checks the whole root directory, and the logs in another directory; returns the summary line.
/// The first of `log_roots` is the root directory.
fn check(
    fs: &dyn FileSystem,
    root: &Path,
    log_roots: &[WalRoot],
    verbose: bool,
    report: &mut Report<'_>,
) -> Result<String> {
    let catalog = catalog::read(fs, root, log_roots)?;
    for warning in catalog.iter().flat_map(|catalog| &catalog.warnings) {
        report.note(format_args!("hbase:meta was read only in part: {warning}"));
    }
    if catalog.is_none() {
        report.note(format_args!("{}: there is no hbase:meta to compare with", root.display()));
    }
    let mut plans = vec![(fs, tables::plan(fs, root, catalog.as_ref(), report)?)];
    for logs in log_roots.iter().skip(1) {
        plans.push((&*logs.fs, tables::plan_logs(&*logs.fs, &logs.path)?));
    }
    let (mut files, mut wals, mut bytes) = (0, 0, 0);
    for (fs, items) in plans {
        let of_plan: u64 = items.iter().map(|item| item.bytes).sum();
        read_all(fs, &items, verbose, of_plan, report);
        let of_logs = items.iter().filter(|item| matches!(item.work, FileKind::Wal)).count();
        (files, wals, bytes) = (files + items.len() - of_logs, wals + of_logs, bytes + of_plan);
    }
    let (faults, notes) = (report.faults, report.notes);
    Ok(format!("{files} store files, {wals} WALs, {bytes} bytes read: {faults} faults, {notes} notes"))
}

fn read_all(fs: &dyn FileSystem, items: &[FileToRead], verbose: bool, bytes: u64, report: &mut Report<'_>) {
    let cache = Arc::new(LruBlockCache::new(CACHE_BYTES));
    report.progress = Some(Progress::new(bytes));
    let mut done = 0;
    for item in items {
        report.step(done, &item.path.display());
        done = item.bytes;
        if verbose {
            report.say(&item.path.display());
        }
        match &item.work {
            FileKind::StoreFile { region, family } => {
                let expected = store_file::Expected { region: region.as_deref(), family };
                store_file::check(fs, &item.path, Arc::clone(&cache) as _, &expected, report);
            }
            FileKind::Wal => check_wal(fs, &item.path, report),
        }
    }
    report.progress = None;
}

fn check_wal(fs: &dyn FileSystem, path: &Path, report: &mut Report<'_>) {
    match read_wal(fs, path, report) {
        Ok((_, Some(WalEnd::Torn { bytes }), position)) => report.note(format_args!(
            "{} at offset {position}: torn tail of {bytes} bytes, as after a server crash",
            path.display()
        )),
        Ok(_) => {}
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => report.vanished(path),
        Err(error) => report.fault(format_args!("{}: {error}", path.display())),
    }
}

/// Checks the entries and the end of a WAL. Damage is a fault, and reading continues after it.
fn read_wal(
    fs: &dyn FileSystem,
    path: &Path,
    report: &mut Report<'_>,
) -> Result<(u64, Option<WalEnd>, u64), ReadError> {
    let mut reader = WalReader::open(fs, path)?;
    let mut entries = 0;
    loop {
        match reader.next() {
            Ok(Some(_)) => entries += 1,
            Ok(None) => return Ok((entries, reader.end(), reader.position())),
            Err(ReadError::Corrupt { .. }) => {
                let gap = reader.skip_damage()?;
                gap.iter().for_each(|gap| {
                    report.fault_at(path, gap.from, format_args!("corrupt WAL entry: {gap}"))
                });
            }
            Err(error) => return Err(error),
        }
    }
}

/// The output of faults and notes.
struct Report<'o> {
    out: &'o mut dyn Write,
    said: io::Result<()>,
    faults: u64,
    notes: u64,
    progress: Option<Progress>,
}

impl<'o> Report<'o> {
    fn new(out: &'o mut dyn Write) -> Self {
        Self { out, said: Ok(()), faults: 0, notes: 0, progress: None }
    }

    fn say(&mut self, line: &dyn Display) {
        if let Some(progress) = &self.progress {
            progress.clear();
        }
        if self.said.is_ok() {
            self.said = writeln!(self.out, "{line}");
        }
    }

    fn step(&mut self, bytes: u64, next: &dyn Display) {
        if let Some(progress) = &mut self.progress {
            progress.step(bytes, next);
        }
    }

    /// Reports a fault; the text names the file.
    fn fault(&mut self, what: impl Display) {
        self.faults += 1;
        self.say(&format_args!("fault: {what}"));
    }

    fn fault_at(&mut self, path: &Path, offset: u64, what: impl Display) {
        self.fault(format_args!("{} at offset {offset}: {what}", path.display()));
    }

    /// Reports a file that could not be read; the error names it. Skips a file that has vanished.
    fn error(&mut self, path: &Path, error: &HBaseError) {
        if error.kind() == ErrorKind::FileNotFound {
            return self.vanished(path);
        }
        self.fault(error.message());
    }

    fn vanished(&mut self, path: &Path) {
        self.note(format_args!("{}: removed since it was listed", path.display()));
    }

    /// Reports a note, which is not a fault.
    fn note(&mut self, what: impl Display) {
        self.notes += 1;
        self.say(&format_args!("note: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, TableDescriptor};
    use evenkeel_fs::MemoryFileSystem;
    use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
    use evenkeel_master::descriptors;
    use evenkeel_region::layout;
    use evenkeel_region::region::write_region_info;
    use evenkeel_region::store_file_tracker::list_file::encode;
    use evenkeel_region::store_file_tracker::{LIST_DIR, ListedFile, TRACKER_IMPL};

    use super::*;

    const ROOT: &str = "/hbase";

    /// A table with the FILE tracker, whose only store has this file; and the store's directory.
    fn store_with_file(name: &str) -> (MemoryFileSystem, PathBuf) {
        let (fs, root) = (MemoryFileSystem::new(), Path::new(ROOT));
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family);
        let table = table.with(TRACKER_IMPL, "FILE");
        let region = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
        let dir = layout::region_dir(root, &region);
        descriptors::write(&fs, &layout::table_dir(root, table.name()), &table).expect("written");
        write_region_info(&fs, &dir, &region).expect("written");
        let path = dir.join("f").join(name);
        let mut writer = HFileWriter::create(&fs, &path, HFileContext::default()).expect("created");
        writer.append(&KeyValue::put(b"r", b"f", b"q", 1, b"v").as_cell()).expect("appended");
        writer.finish(StoreFileMeta::default()).expect("finished");
        (fs, dir.join("f"))
    }

    /// Writes the list of the store's files.
    fn write_list(fs: &MemoryFileSystem, family: &Path, names: &[&str]) {
        let file = |name: &&str| ListedFile { name: (*name).to_owned(), bytes: 1 };
        let files: Vec<_> = names.iter().map(file).collect();
        let path = family.join(LIST_DIR).join("f1.7");
        fs.write_atomically(&path, &encode(&files, 1).expect("short")).expect("written");
    }

    fn verified(fs: &MemoryFileSystem) -> (u64, String) {
        verified_with_logs(fs, &[])
    }

    fn verified_with_logs(fs: &MemoryFileSystem, log_roots: &[WalRoot]) -> (u64, String) {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out);
        let summary = check(fs, Path::new(ROOT), log_roots, false, &mut report).expect("listed");
        let faults = report.faults;
        (faults, format!("{}{summary}", String::from_utf8(out).expect("text")))
    }

    #[test]
    fn logs_and_recovered_edits_in_another_directory_are_read() {
        let (fs, family) = store_with_file("0af9");
        write_list(&fs, &family, &["0af9"]);
        let logs = MemoryFileSystem::new();
        let root =
            |fs: &MemoryFileSystem, path: &str| WalRoot { fs: Arc::new(fs.clone()), path: path.into() };
        let log_roots = [root(&fs, ROOT), root(&logs, "/wals")];
        let region = format!("data/default/t/{}", "0".repeat(32));
        let broken = [
            "WALs/h,1,2/h%2C1%2C2.17".to_owned(),
            "oldWALs/h%2C1%2C2.16".to_owned(),
            "MasterData/oldWALs/h%2C1%2C2.15".to_owned(),
            format!("{region}/recovered.edits/0000000000000000007"),
        ];
        for name in &broken {
            logs.write_atomically(&Path::new("/wals").join(name), &b"not a log".repeat(50)).expect("written");
        }
        logs.write_atomically(&Path::new("/wals").join(format!("{region}/recovered.edits/9.seqid")), b"")
            .expect("written");
        let (faults, text) = verified_with_logs(&fs, &log_roots);
        assert!(faults == 4 && text.contains("1 store files, 4 WALs"), "{text}");
        for name in &broken {
            assert!(text.contains(&format!("fault: /wals/{name}")), "{name}: {text}");
        }
        assert_eq!(verified(&fs).0, 0);
    }

    #[test]
    fn stores_are_compared_with_their_lists() {
        let (fs, family) = store_with_file("0af9");
        let list = |names: &[&str]| write_list(&fs, &family, names);
        list(&["0af9"]);
        let (faults, text) = verified(&fs);
        assert!(faults == 0 && text.contains("1 store files"), "{text}");
        // A file that is not listed is not read.
        fs.write_atomically(&family.join("00ff"), b"broken").expect("written");
        let (faults, text) = verified(&fs);
        assert!(faults == 0 && text.contains("f/00ff: not in the list of store files"), "{text}");
        list(&["0af9", "00ee"]);
        let (faults, text) = verified(&fs);
        assert!(faults == 1 && text.contains("f/00ee: missing, and in the list of store files"), "{text}");
        fs.write_atomically(&family.join(LIST_DIR).join("f1.7"), b"not a list").expect("written");
        let (faults, text) = verified(&fs);
        assert!(faults >= 1 && text.contains("Invalid file length"), "{text}");
    }
}
