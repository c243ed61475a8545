//! [`Results`]: rows of a report, written as a table, plots and raw histograms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use evenkeel_pe::Report;
use evenkeel_pe::report::plot::{Plot, Scale, Series};
use evenkeel_pe::report::{ServerReport, page, write_hgrm};

use super::machine::{facts, load_average};
use super::other_load::{OTHERS_MAX, OtherLoad};
use super::plan::Plan;
use super::seconds::{self, Seconds};
use super::servers::{ReportContext, ServerVariant};

/// The durations of sampling the machine before a report starts: a full and a short one.
const WATCH: [Duration; 2] = [Duration::from_secs(3), Duration::from_millis(200)];

/// The suffixes of a report's files, former ones included.
const ENDINGS: [&str; 6] = ["-percentiles.svg", "-time.svg", "-stolen.svg", "-rate.svg", ".hgrm", ".csv"];

/// One row of a report: its options, and each server's results.
#[derive(Default)]
struct Row {
    id: String,
    title: String,
    /// The options of the server that ran last.
    line: String,
    rows_each: Option<f64>,
    note: Option<String>,
    /// Hit ratio of data blocks in per cent.
    hits: BTreeMap<ServerVariant, f64>,
    servers: BTreeMap<ServerVariant, Report>,
}

impl Row {
    /// Returns true if the row is analysed second by second.
    fn is_over_time(&self) -> bool {
        self.id == "steady"
    }

    fn reports(&self) -> Vec<&Report> {
        self.servers.values().collect()
    }

    /// The share of stolen time during the row, if known and analysed.
    fn stolen(&self) -> Option<Plot> {
        page::stolen(&self.reports()).filter(|_| self.is_over_time())
    }

    /// The rows that requests moved or scanned.
    fn rows(&self, report: &Report) -> f64 {
        match self.rows_each {
            Some(each) => report.tally.requests as f64 * each,
            None => report.moved_rows() as f64,
        }
    }

    /// A figure of the server for each row.
    fn of_server(&self, report: &Report, of: fn(&ServerReport) -> f64) -> f64 {
        report.server.as_ref().map_or(f64::NAN, |server| of(server) / self.rows(report).max(1.0))
    }

    fn cpu_us(&self, report: &Report) -> f64 {
        self.of_server(report, |server| server.cpu_s * 1e6)
    }

    /// CPU microseconds of this process, the load.
    fn load_us(&self, report: &Report) -> f64 {
        report.own_cpu_s * 1e6 / self.rows(report).max(1.0)
    }

    /// Per cent of its core that the server used.
    fn busy(report: &Report) -> f64 {
        report.server.as_ref().map_or(f64::NAN, |server| 100.0 * server.cpu_s / report.seconds)
    }
}

/// The rows so far.
pub struct Results {
    rows: Vec<Row>,
    header_lines: Vec<String>,
    sections: Vec<(String, String)>,
    charts: Vec<(String, Plot)>,
    memory: BTreeMap<ServerVariant, f64>,
    /// The ids of rows that a server refuses.
    refused: BTreeSet<(String, ServerVariant)>,
    order: Vec<ServerVariant>,
    facts: Vec<String>,
    load_at_start: String,
    quiet: OtherLoad,
}

/// A figure of a row for one server, for a chart over many rows.
type Figure = (&'static str, &'static str, fn(&Row, &Report) -> f64);

/// A chart over many rows: name, unit, figure.
const FIGURES: [Figure; 6] = [
    ("throughput", "requests/s", |_, r| r.requests_per_s),
    ("mean latency", "µs", |_, r| r.latency.mean_us),
    ("P99", "µs", |_, r| r.latency.p99_us),
    ("server CPU", "µs a row", Row::cpu_us),
    ("collections", "ms a second", |_, r| {
        r.server.as_ref().and_then(|s| s.gc_time_s).unwrap_or(0.0) * 1e3 / r.seconds
    }),
    ("read", "KiB a row", |row, r| row.of_server(r, |s| s.read_bytes as f64 / 1024.0)),
];

impl Results {
    /// No rows yet. Samples the machine for some seconds.
    pub fn new(context: &ReportContext) -> Self {
        let quiet = OtherLoad::start(WATCH[usize::from(context.plan.short)]);
        let facts = facts(context.jdk.as_ref());
        let order = context.plan.servers.clone();
        let (rows, header_lines, sections, charts, memory, refused) = Default::default();
        let load_at_start = load_average();
        Self { rows, header_lines, sections, charts, memory, refused, order, facts, load_at_start, quiet }
    }

    /// Adds a server's report of a row.
    pub fn add(&mut self, id: &str, title: &str, line: &str, variant: ServerVariant, report: Report) {
        let at = self.rows.iter().position(|row| row.id == id).unwrap_or_else(|| {
            let (id, title, line) = (id.to_owned(), title.to_owned(), String::new());
            self.rows.push(Row { id, title, line, ..Row::default() });
            self.rows.len() - 1
        });
        self.rows[at].line = line.to_owned();
        self.rows[at].servers.insert(variant, report);
    }

    /// Sets the rows that each request of a row scans or moves, if that differs from the rows
    /// returned.
    pub fn rows_each(&mut self, id: &str, rows: f64) {
        self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.rows_each = Some(rows));
    }

    /// Adds a line below a row's table.
    pub fn note(&mut self, id: &str, note: &str) {
        self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.note = Some(note.to_owned()));
    }

    /// Sets a server's hit ratio of data blocks in a row, in per cent.
    pub fn hits(&mut self, id: &str, variant: ServerVariant, percent: f64) {
        self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.hits.extend([(variant, percent)]));
    }

    /// Records that a server does not start with the settings of a row.
    pub fn refuses(&mut self, id: &str, variant: ServerVariant) {
        self.refused.insert((id.to_owned(), variant));
    }

    /// Adds a line to the top of the report.
    pub fn add_header_line(&mut self, line: &str) {
        self.header_lines.push(line.to_owned());
    }

    /// As [`Results::add_header_line`], once.
    pub fn add_header_line_once(&mut self, line: &str) {
        if !self.header_lines.iter().any(|added| added == line) {
            self.add_header_line(line);
        }
    }

    /// Adds or replaces a section after the rows.
    pub fn section(&mut self, title: &str, text: String) {
        self.sections.retain(|(known, _)| known != title);
        self.sections.push((title.to_owned(), text));
    }

    /// Sets the bytes that a server counts for a cell in its MemStore.
    pub fn memory_a_cell(&mut self, variant: ServerVariant, bytes: f64) {
        self.memory.insert(variant, bytes);
        let of = |variant: &ServerVariant| self.memory.get(variant).copied();
        let ratio = |bytes: f64| {
            of(&ServerVariant::Evenkeel).map_or("-".to_owned(), |own| format!("{:.2}", bytes / own))
        };
        let lines = self.order.iter().filter_map(|variant| {
            let bytes = of(variant)?;
            Some(format!("| {} | {bytes:.0} | {} |\n", variant.title(), ratio(bytes)))
        });
        let text = format!(
            "Cells of 200-byte values in rows of 26 bytes, family `info0`, qualifier `0`; the bytes that each server itself counts \
             for them at a flush.\n\n| | bytes a cell | ratio |\n|---|---|---|\n{}",
            lines.collect::<String>()
        );
        self.section("Bytes of memory a cell in the MemStore", text);
    }

    /// The requested servers, in order.
    pub fn order(&self) -> &[ServerVariant] {
        &self.order
    }

    /// A server's results of a row.
    pub fn report(&self, id: &str, variant: ServerVariant) -> Option<&Report> {
        self.rows.iter().find(|row| row.id == id)?.servers.get(&variant)
    }

    /// Charts over rows named `GROUP-PART`: a line for each server and part, a point for each
    /// group.
    pub fn charts_over(&mut self, title: &str, groups: &[(&str, &str)], parts: &[(&str, &str)]) {
        self.charts.clear();
        for (name, unit, figure) in FIGURES {
            let mut series = Vec::new();
            for variant in &self.order {
                for (part, what) in parts {
                    let at = |group: &str| {
                        let row = self.rows.iter().find(|row| row.id == format!("{group}-{part}"))?;
                        Some(figure(row, row.servers.get(variant)?))
                    };
                    let points =
                        (1..).zip(groups).filter_map(|(x, (group, _))| Some((f64::from(x), at(group)?)));
                    let points: Vec<_> = points.filter(|(_, y)| y.is_finite()).collect();
                    if !points.is_empty() {
                        series.push(Series { name: format!("{}, {what}", variant.title()), points });
                    }
                }
            }
            let x = groups.iter().map(|(_, what)| *what).collect::<Vec<_>>().join("; ");
            let title = format!("{title}: {name}");
            let plot =
                Plot { title, x: (x, Scale::Linear), y: (format!("{name}, {unit}"), Scale::Linear), series };
            self.charts.push((name.replace(' ', "-"), plot));
        }
    }

    /// Half of the rate that the first stock server, or else the first server, reached in a row.
    pub fn half_of_peak(&self, id: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.id == id);
        let stock =
            self.order.iter().find(|variant| **variant != ServerVariant::Evenkeel).or(self.order.first());
        let peak = row.zip(stock).and_then(|(row, variant)| row.servers.get(variant));
        peak.map_or(100.0, |report| (report.requests_per_s / 2.0).max(10.0))
    }

    /// Writes the table to `OUT/REPORT.md`, plots and histograms to `OUT/REPORT/`: after each
    /// server, so that results are kept if a later one fails.
    ///
    /// # Errors
    /// The error of the file that cannot be written.
    pub fn write(&self, context: &ReportContext) -> Result<(), String> {
        let (out, report) = (&context.plan.out, &context.plan.report);
        let folder = out.join(report);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for row in &self.rows {
            write_row(row, &folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        for (name, plot) in &self.charts {
            let path = folder.join(format!("all-{name}.svg"));
            fs::write(&path, plot.svg()).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let path = out.join(format!("{report}.md"));
        let text = self.markdown(context);
        fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
        eprintln!("written: {}", path.display());
        Ok(())
    }

    /// Removes plots and histograms of an earlier report that this one does not have.
    ///
    /// # Errors
    /// The error of the file that cannot be removed.
    pub fn remove_stale(&self, context: &ReportContext) -> Result<(), String> {
        let folder = context.plan.out.join(&context.plan.report);
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        let known = self.files();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_report = name.starts_with("all-") || ENDINGS.iter().any(|ending| name.ends_with(ending));
            if of_report && !known.contains(&name) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The names of all plots and histograms.
    fn files(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = self.charts.iter().map(|(name, _)| format!("all-{name}.svg")).collect();
        for row in &self.rows {
            names.extend(["percentiles", "time"].map(|plot| format!("{}-{plot}.svg", row.id)));
            names.extend(row.stolen().map(|_| format!("{}-stolen.svg", row.id)));
            let endings = ["hgrm", "csv"].into_iter().take(1 + usize::from(row.is_over_time()));
            let of_variant = |ending| {
                row.servers.keys().map(move |variant| format!("{}-{}.{ending}", row.id, variant.name()))
            };
            names.extend(endings.flat_map(of_variant));
        }
        names
    }

    fn markdown(&self, context: &ReportContext) -> String {
        let plan = &context.plan;
        let mut out = format!("# Report: {}\n\n    {}\n\n", plan.report, plan.command);
        self.write_conditions(plan, &mut out);
        Self::write_legend(&mut out);
        if !self.charts.is_empty() {
            out.push('\n');
        }
        for (name, plot) in &self.charts {
            let _ = writeln!(out, "![{}]({}/all-{name}.svg)", plot.title, plan.report);
        }
        self.rows.iter().for_each(|row| self.table(row, &plan.report, &mut out));
        self.sections.iter().for_each(|(title, text)| out.push_str(&format!("\n## {title}\n\n{text}\n")));
        out
    }

    /// Writes where and how the report was measured, and whether the machine was quiet.
    fn write_conditions(&self, plan: &Plan, out: &mut String) {
        self.facts.iter().for_each(|fact| out.push_str(&format!("- {fact}\n")));
        let [before, since] = self.quiet.shares().map(percent);
        let _ = writeln!(
            out,
            "- others used {before} of all cores' time in the seconds before the report and {since} during it: other processes, \
             interrupts, the hypervisor"
        );
        let _ = writeln!(
            out,
            "- load average {} at the start, {} at the end (the report's own waiting threads count)",
            self.load_at_start,
            load_average()
        );
        let _ = writeln!(
            out,
            "- one server at a time, confined to core {}, the load to core {}; other processes may use them",
            plan.server_core, plan.load_core
        );
        let _ = writeln!(
            out,
            "- {:.1} s a row after {:.1} s of warm-up, {:.1} s before the first row on each process of a JVM ({:.1} s on Evenkeel's){}",
            plan.seconds,
            plan.warmup,
            plan.first_warmup.max(plan.warmup),
            plan.first_warmup_of(ServerVariant::Evenkeel),
            plan.minutes.map_or_else(String::new, |m| format!("; bounded to {m} minutes"))
        );
        let _ = writeln!(
            out,
            "- heap {} MiB and off-heap cache {} MiB; Evenkeel has the same cache and counts HBase's shares of the heap from as \
             many bytes; JVM flags and settings in `bench/conf`",
            plan.heap_mib, plan.cache_mib
        );
        self.header_lines.iter().for_each(|line| out.push_str(&format!("- {line}\n")));
        if self.quiet.is_disturbed() {
            let _ = writeln!(
                out,
                "\n> **Not to be quoted.** Other processes used more than {} of all cores' time; latencies include waits for a core.",
                percent(Some(OTHERS_MAX))
            );
        }
    }

    /// Explains the columns of the tables.
    fn write_legend(out: &mut String) {
        out.push_str(
            "\nCPU is the server's, user and system, for each row. Latencies are in microseconds, from when a request was due in \
             an open loop. Ratios are the server's figure to Evenkeel's: above 1, Evenkeel does better in CPU and latency; \
             below 1 it does better in rate. Core is how much of its core the server used; load is the CPU of the load for each \
             row; read is what the server read from files for each row, cached by the system or not (a JVM's socket reads \
             count too). GC is the CPU of collector threads, which is part of the server's CPU, then the time of collections as \
             `jstat` counts it. Evenkeel has no collector. It reports the time spent in its allocator (`malloc`, `free` and \
             similar), estimated from a sample of the calls (`crates/common/src/runtime/allocator.rs`), and its share of the CPU. \
             HBase's cost of allocating is not counted. Hits: the share of data block lookups that the block cache served, by the \
             server's own counters; HBase 2.6 counts a miss twice, so its misses are halved.\n",
        );
    }

    fn table(&self, row: &Row, report: &str, out: &mut String) {
        let _ = write!(
            out,
            "\n## {}\n\n`{}`\n\n| | rows/s | requests/s | CPU µs/row | P50 | P99 | P99.9 | P99.99 | max | RSS MiB | GC or allocator s | \
             core % | load µs/row | read KiB/row | rate | CPU | P99.9 |",
            row.title, row.line
        );
        let counts_hits = !row.hits.is_empty();
        out.push_str(if counts_hits { " hits % |\n" } else { "\n" });
        let columns = 17 + usize::from(counts_hits);
        let _ = writeln!(out, "|{}", "---|".repeat(columns));
        for variant in &self.order {
            match row.servers.get(variant) {
                Some(report) => Self::write_server_row(row, *variant, report, out),
                None if self.refused.contains(&(row.id.clone(), *variant)) => {
                    let _ = writeln!(out, "| {} | refuses |{}", variant.title(), " - |".repeat(columns - 2));
                }
                None => {}
            }
        }
        if row.is_over_time() {
            self.worst_seconds(row, out);
        }
        // On a cluster it is the DataNodes that write.
        let is_of_storage = report != "cluster";
        if is_of_storage && row.servers.values().all(|r| r.tally.rows_written > 0 && r.tally.rows_read == 0) {
            self.write_amplification(row, out);
        }
        row.note.iter().for_each(|note| out.push_str(&format!("\n{note}\n")));
        let _ = writeln!(out, "\n![latency by percentile]({report}/{}-percentiles.svg)", row.id);
        let _ = writeln!(out, "![latency over time]({report}/{}-time.svg)", row.id);
        if row.stolen().is_some() {
            let _ =
                writeln!(out, "![time that the host gave to other machines]({report}/{}-stolen.svg)", row.id);
        }
    }

    /// Writes a server's line of a row's table.
    fn write_server_row(row: &Row, variant: ServerVariant, r: &Report, out: &mut String) {
        let base = row.servers.get(&ServerVariant::Evenkeel);
        let server = r.server.as_ref();
        let ratio = |of: &dyn Fn(&Report) -> f64| {
            base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}", of(r) / of(base)))
        };
        let l = &r.latency;
        let _ = write!(
            out,
            "| {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} | {:.0} | {:.2} | {:.2} | {} | {} | {} |",
            variant.title(),
            row.rows(r) / r.seconds,
            r.requests_per_s,
            row.cpu_us(r),
            l.p50_us,
            l.p99_us,
            l.p999_us,
            l.p9999_us,
            l.max_us,
            server.map_or(0, |s| s.rss_bytes >> 20),
            server.and_then(memory_s).unwrap_or_else(|| "-".to_owned()),
            Row::busy(r),
            row.load_us(r),
            row.of_server(r, |s| s.read_bytes as f64 / 1024.0),
            ratio(&|r| r.requests_per_s),
            ratio(&|r| row.cpu_us(r)),
            ratio(&|r| r.latency.p999_us),
        );
        let hits = row.hits.get(&variant).map_or_else(|| "-".to_owned(), |hits| format!("{hits:.2}"));
        out.push_str(&if row.hits.is_empty() { "\n".to_owned() } else { format!(" {hits} |\n") });
    }

    /// Bytes written to storage for each byte of values, by server: the log and flushes of those
    /// seconds, and few compactions.
    fn write_amplification(&self, row: &Row, out: &mut String) {
        let of = |variant: &ServerVariant| {
            let report = row.servers.get(variant)?;
            let written = report.server.as_ref()?.disk_written_bytes as f64;
            Some(format!("{} {:.1}", variant.title(), written / report.tally.bytes_written.max(1) as f64))
        };
        let said: Vec<String> = self.order.iter().filter_map(of).collect();
        let _ = writeln!(
            out,
            "\nBytes to storage for each byte of values, during the measurement: {}.",
            said.join("; ")
        );
    }

    /// The bad seconds of each server, and the number caused by the host.
    fn worst_seconds(&self, row: &Row, out: &mut String) {
        for variant in &self.order {
            let seconds = row.servers.get(variant).and_then(|report| Seconds::of(&report.intervals));
            seconds.iter().for_each(|seconds| out.push_str(&seconds.markdown(variant.title())));
        }
    }
}

/// The cost of a server's memory management: seconds of collector threads and of collections; or of
/// the allocator, with its share of the CPU.
fn memory_s(server: &ServerReport) -> Option<String> {
    let of_collector = || Some(format!("{:.2}, {:.2}", server.gc_cpu_s?, server.gc_time_s?));
    let of_allocator = || {
        let seconds = server.allocator_s?;
        Some(format!("{seconds:.2}, {:.1} %", 100.0 * seconds / server.cpu_s))
    };
    of_collector().or_else(of_allocator)
}

/// A share as per cent.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "?".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

fn write_row(row: &Row, folder: &Path) -> std::io::Result<()> {
    let reports = row.reports();
    fs::write(folder.join(format!("{}-percentiles.svg", row.id)), page::percentiles(&reports).svg())?;
    fs::write(folder.join(format!("{}-time.svg", row.id)), page::latency_over_time(&reports).svg())?;
    if let Some(plot) = row.stolen() {
        fs::write(folder.join(format!("{}-stolen.svg", row.id)), plot.svg())?;
    }
    for (variant, report) in &row.servers {
        write_hgrm(&folder.join(format!("{}-{}.hgrm", row.id, variant.name())), &report.histogram)?;
        if row.is_over_time() {
            fs::write(
                folder.join(format!("{}-{}.csv", row.id, variant.name())),
                seconds::csv(&report.intervals),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_column_shows_gc_or_allocator_time() {
        let none = ServerReport {
            pid: 1,
            jvm: false,
            cpu_s: 5.0,
            rss_bytes: 0,
            disk_written_bytes: 0,
            read_bytes: 0,
            gc_cpu_s: None,
            gc_time_s: None,
            gc_count: None,
            allocator_s: None,
            allocator_calls: None,
        };
        let jvm = ServerReport { gc_cpu_s: Some(1.234), gc_time_s: Some(0.5), ..none.clone() };
        let own = ServerReport { allocator_s: Some(0.127), ..none.clone() };
        assert_eq!(
            [memory_s(&none), memory_s(&jvm), memory_s(&own)],
            [None, Some("1.23, 0.50".to_owned()), Some("0.13, 2.5 %".to_owned())]
        );
    }
}
