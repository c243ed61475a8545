//! The commands, their order, and the text of the report.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_common::KeyValue;
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};

use super::data::{CellGenerator, FAMILY, row};
use super::ours::{Ours, family_dir};
use super::stock::Stock;
use super::table::{self, Best, Pair, ratio, thousands};
use super::{Implementation, Outcome, Sizes};

const ENCODINGS: [&str; 5] = ["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"];
const CODECS: [&str; 6] = ["NONE", "SNAPPY", "LZ4", "ZSTD", "GZ", "BZIP2"];
/// As in the workload of HBASE-11927: rows of 10 KB in 67 files.
const COMPACT_FILES: usize = 67;
const COMPACT_VALUE_BYTES: usize = 10_000;
/// Bytes for measuring the cost of checksums.
const CHECKSUM_BYTES: u64 = 4 << 30;

struct Bench {
    sizes: Sizes,
    stock: Stock,
    ours: Ours,
    out: String,
    /// Text about ratios below the goal.
    losses: Vec<String>,
}

/// The goal: HBase's CPU for an item divided by ours.
const GOAL: f64 = 5.0;

/// Runs everything; returns the report's tables as Markdown.
///
/// # Errors
/// If a side fails a command, or the sides' results differ.
pub fn run(sizes: Sizes) -> Outcome<String> {
    fs::create_dir_all(&sizes.dir)?;
    let mut bench = Bench {
        sizes,
        stock: Stock::start()?,
        ours: Ours::default(),
        out: String::new(),
        losses: Vec::new(),
    };
    bench.throughput()?;
    bench.seeks()?;
    bench.growth()?;
    bench.compaction()?;
    bench.verdict();
    fs::remove_dir_all(&bench.sizes.dir)?;
    Ok(bench.out)
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.sizes.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sizes.dir.join(name)
    }

    /// Runs a command on both sides alternately; returns the best of each.
    fn run_both(&mut self, stock: &str, ours: &str) -> Outcome<Pair> {
        let (mut best_stock, mut best_ours) = (Best::default(), Best::default());
        for round in 0..self.sizes.warm_ups + self.sizes.rounds {
            let costs = (self.stock.run(stock)?, self.ours.run(ours)?);
            if round >= self.sizes.warm_ups {
                best_stock.take(costs.0);
                best_ours.take(costs.1);
            }
        }
        let pair = (best_stock.cost(), best_ours.cost());
        eprintln!(
            "{stock}: {:.4} s and {:.4} s of CPU, ratio {:.2}",
            pair.0.cpu_s,
            pair.1.cpu_s,
            ratio(pair)
        );
        Ok(pair)
    }

    fn judge(&mut self, name: &str, pair: Pair) {
        if ratio(pair) < GOAL {
            self.losses.push(format!("{name}: {:.1}", ratio(pair)));
        }
    }

    /// Every encoding with every codec: writes, and reads by both sides of the file that HBase
    /// wrote.
    fn throughput(&mut self) -> Outcome<()> {
        let mut written = String::new();
        table::head(&mut self.out, "Sequential read", &table::THROUGHPUT);
        for (encoding, codec) in CODECS.iter().flat_map(|codec| ENCODINGS.iter().map(move |e| (*e, *codec))) {
            let name = format!("{encoding}, {codec}");
            if !self.wants(&name) {
                continue;
            }
            let (stock, ours) = (self.path("stock"), self.path("ours"));
            let command = |path: &Path| {
                format!(
                    "write {} {encoding} {codec} {} {}",
                    path.display(),
                    self.sizes.cells,
                    self.sizes.times
                )
            };
            let (theirs, mine) = (command(&stock), command(&ours));
            let pair = self.run_both(&theirs, &mine)?;
            let _ = writeln!(written, "{}", table::throughput(&name, pair));
            self.judge(&format!("write {name}"), pair);
            let command = format!("read {} {}", stock.display(), self.sizes.times);
            let pair = self.run_both(&command, &command)?;
            if (pair.0.items, pair.0.bytes) != (pair.1.items, pair.1.bytes)
                || pair.0.items != (self.sizes.cells * self.sizes.times) as u64
            {
                return Err(format!("{name}: the results of the two reads differ: {pair:?}").into());
            }
            let _ = writeln!(self.out, "{}", table::throughput(&name, pair));
            self.judge(&format!("read {name}"), pair);
        }
        table::head(&mut self.out, "Sequential write", &table::THROUGHPUT);
        self.out += &written;
        Ok(())
    }

    fn seeks(&mut self) -> Outcome<()> {
        let columns = [
            "encoding",
            "stock seeks/s",
            "ours seeks/s",
            "stock CPU µs a seek",
            "ours CPU µs a seek",
            "ratio",
        ];
        table::head(&mut self.out, "Seeks in cached blocks", &columns);
        for encoding in ENCODINGS {
            let name = format!("seek {encoding}");
            if !self.wants(&name) {
                continue;
            }
            let path = self.path("stock").display().to_string();
            self.stock.run(&format!("write {path} {encoding} NONE {} 1", self.sizes.cells))?;
            let command = format!("seek {path} {}", self.sizes.seeks);
            let pair = self.run_both(&command, &command)?;
            if pair.0.bytes != pair.1.bytes {
                return Err(format!("{name}: the results of the two seeks differ: {pair:?}").into());
            }
            let (stock, ours) = pair;
            let rate = |cost: super::Cost| thousands(cost.items as f64 / cost.wall_s);
            let each = |cost: super::Cost| cost.cpu_s * 1e6 / cost.items as f64;
            let _ = writeln!(
                self.out,
                "| {encoding} | {} | {} | {:.2} | {:.2} | {:.1} |",
                rate(stock),
                rate(ours),
                each(stock),
                each(ours),
                ratio(pair)
            );
            self.judge(&name, pair);
        }
        Ok(())
    }

    /// Memory while a file is written, and the time to open it.
    fn growth(&mut self) -> Outcome<()> {
        let (first, second) = self.sizes.grow_mib;
        let path = self.path("grown").display().to_string();
        if self.wants("grow") {
            let columns =
                ["side".to_owned(), format!("resident at {first} MiB written"), format!("at {second} MiB")];
            table::head(&mut self.out, "Memory while writing", &columns.each_ref().map(String::as_str));
            for side in [&mut self.stock as &mut dyn Implementation, &mut self.ours] {
                let cost = side.run(&format!("grow {path} {first} {second}"))?;
                let mib = |kib: u64| kib / 1024;
                let (a, b) = cost.resident_kib;
                let _ = writeln!(self.out, "| {} | {} MiB | {} MiB |", side.name(), mib(a), mib(b));
            }
            let command = format!("open {path} {}", self.sizes.opens);
            let pair = self.run_both(&command, &command)?;
            let columns = ["file", "stock µs", "ours µs", "ratio of CPU"];
            table::head(&mut self.out, "Open", &columns);
            let each = |cost: super::Cost| cost.wall_s * 1e6 / cost.items as f64;
            let (stock, ours) = pair;
            let mb = ours.bytes as f64 / 1e6;
            let _ = writeln!(
                self.out,
                "| {mb:.0} MB | {:.0} | {:.0} | {:.1} |",
                each(stock),
                each(ours),
                ratio(pair)
            );
            self.judge("open", pair);
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// A major compaction of rows of 10 KB in 67 files, and the cost of its checksums.
    fn compaction(&mut self) -> Outcome<()> {
        if !self.wants("compact") {
            return Ok(());
        }
        let (input, rows) = (self.path("input"), self.sizes.compact_rows as u64);
        self.stock.run(&format!("layout {} CRC32C", input.display()))?;
        fill(&input, self.sizes.compact_rows)?;
        let (mut best_stock, mut best_ours, mut bytes) = (Best::default(), Best::default(), 0);
        for round in 0..1 + self.sizes.rounds {
            let mut results = [0; 2];
            let sides = [
                (&mut self.stock as &mut dyn Implementation, &mut best_stock),
                (&mut self.ours, &mut best_ours),
            ];
            for ((side, best), cells) in sides.into_iter().zip(&mut results) {
                let root = self.sizes.dir.join(format!("root-{}", side.name()));
                link_tree(&input, &root)?;
                let cost = side.run(&format!("compact {}", root.display()))?;
                eprintln!("compact, {}: {:.3} s of CPU, {:.3} s", side.name(), cost.cpu_s, cost.wall_s);
                if round > 0 {
                    best.take(super::Cost { items: rows, ..cost });
                }
                (*cells, bytes) = only_file(&family_dir(&root)?)?;
                fs::remove_dir_all(&root)?;
            }
            if results != [rows; 2] {
                return Err(
                    format!("{rows} rows were written, and the compacted files have {results:?}").into()
                );
            }
        }
        let checksum = format!("checksum {CHECKSUM_BYTES}");
        let sums = self.run_both(&checksum, &checksum)?;
        let columns = ["side", "CPU s", "s", "rows per CPU s", "checksums, CPU s", "share"];
        let mb = bytes as f64 / 1e6;
        let title = format!("Major compaction of {rows} rows of 10 KB ({mb:.0} MB) in {COMPACT_FILES} files");
        table::head(&mut self.out, &title, &columns);
        let pair = (best_stock.cost(), best_ours.cost());
        for (name, cost, sums) in [("stock", pair.0, sums.0), ("Evenkeel", pair.1, sums.1)] {
            // Every byte is verified once and checksummed once.
            let sums_s = sums.cpu_s * 2.0 * bytes as f64 / sums.bytes as f64;
            let _ = writeln!(
                self.out,
                "| {name} | {:.2} | {:.2} | {} | {sums_s:.3} | {:.1}% |",
                cost.cpu_s,
                cost.wall_s,
                thousands(cost.items as f64 / cost.cpu_s),
                100.0 * sums_s / cost.cpu_s
            );
        }
        let _ = writeln!(self.out, "\nRatio: {:.1}.", ratio(pair));
        self.judge("compaction", pair);
        Ok(())
    }

    fn verdict(&mut self) {
        let _ = match &self.losses[..] {
            [] => writeln!(self.out, "\nIn every row, stock uses at least {GOAL} times the CPU for an item."),
            losses => {
                writeln!(self.out, "\n{} rows below the goal of {GOAL}: {}.", losses.len(), losses.join("; "))
            }
        };
    }
}

/// Rows of 10 KB, each in one of the files, at random.
fn fill(root: &Path, rows: usize) -> Outcome<()> {
    let dir = family_dir(root)?;
    let mut random = CellGenerator::new();
    let mut files: Vec<Vec<u64>> = vec![Vec::new(); COMPACT_FILES];
    (0..rows as u64).for_each(|row| files[(random.next() % COMPACT_FILES as u64) as usize].push(row));
    let mut value = vec![0; COMPACT_VALUE_BYTES];
    for (i, numbers) in files.iter().enumerate() {
        let path = dir.join(format!("{i:032x}"));
        let mut writer = HFileWriter::create(&LocalFileSystem::new(), &path, HFileContext::default())?;
        for number in numbers {
            random.fill(&mut value);
            let mut cell = KeyValue::put(row(*number).as_bytes(), FAMILY, b"q", 1_700_000_000_000, &value);
            cell.set_seq_id(i as u64 + 1);
            writer.append(&cell.as_cell())?;
        }
        writer.finish(StoreFileMeta { max_seq_id: Some(i as u64 + 1), ..StoreFileMeta::default() })?;
    }
    Ok(())
}

/// A copy by hard links, since neither side modifies a store file.
fn link_tree(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_tree(&entry.path(), &target)?,
            false => fs::hard_link(entry.path(), target)?,
        }
    }
    Ok(())
}

/// Cells and bytes of the one store file in a directory.
fn only_file(dir: &Path) -> Outcome<(u64, u64)> {
    let names: Vec<PathBuf> = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && path.extension().is_none_or(|e| e != "crc"))
        .collect();
    let [path] = &names[..] else { return Err(format!("{names:?} where one file should be").into()) };
    let reader = super::ours::reader(path, std::sync::Arc::new(evenkeel_block_cache::NoCache))?;
    Ok((reader.entry_count(), reader.len()))
}
