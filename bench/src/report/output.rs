//! [`Results`]: rows of a report, written as a table, plots and raw histograms.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use evenkeel_pe::Report;
use evenkeel_pe::report::{page, write_hgrm};

use super::machine::{facts, load_average};
use super::servers::{Kind, Lab};

/// The load average above which a report says that it is not to be quoted: its own two processes make up to 2.
const QUIET_LOAD_MAX: f64 = 2.0;

/// One row of a report: what was done, and each server's report of it.
struct Row {
    id: String,
    title: String,
    /// The options, of the server that ran last.
    line: String,
    rows_each: Option<f64>,
    note: Option<String>,
    servers: BTreeMap<Kind, Report>,
}

impl Row {
    /// Rows that a report's requests moved, or looked at.
    fn rows(&self, report: &Report) -> f64 {
        match self.rows_each {
            Some(each) => report.tally.requests as f64 * each,
            None => report.moved_rows() as f64,
        }
    }

    fn cpu_us(&self, report: &Report) -> f64 {
        report.server.as_ref().map_or(f64::NAN, |server| server.cpu_s * 1e6 / self.rows(report).max(1.0))
    }
}

/// All rows so far.
pub struct Results {
    rows: Vec<Row>,
    sayings: Vec<String>,
    order: Vec<Kind>,
    facts: Vec<String>,
    load_at_start: String,
}

impl Results {
    /// None yet.
    pub fn new(lab: &Lab) -> Self {
        let facts = facts(lab.jdk.as_ref());
        let order = lab.plan.servers.clone();
        Self { rows: Vec::new(), sayings: Vec::new(), order, facts, load_at_start: load_average() }
    }

    /// Adds a server's report of a row.
    pub fn add(&mut self, id: &str, title: &str, line: &str, kind: Kind, report: Report) {
        let at = self.rows.iter().position(|row| row.id == id).unwrap_or_else(|| {
            let (id, title, line) = (id.to_owned(), title.to_owned(), String::new());
            self.rows.push(Row { id, title, line, rows_each: None, note: None, servers: BTreeMap::new() });
            self.rows.len() - 1
        });
        self.rows[at].line = line.to_owned();
        self.rows[at].servers.insert(kind, report);
    }

    /// Says how many rows each request of a row looks at or moves, where that is not what it gave back.
    pub fn rows_each(&mut self, id: &str, rows: f64) {
        self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.rows_each = Some(rows));
    }

    /// Adds a line below a row's table.
    pub fn note(&mut self, id: &str, note: &str) {
        self.rows.iter_mut().filter(|row| row.id == id).for_each(|row| row.note = Some(note.to_owned()));
    }

    /// Adds a line to the top of the report.
    pub fn say(&mut self, line: &str) {
        self.sayings.push(line.to_owned());
    }

    /// Half of the requests a second that the first stock server reached in a row, or the first server without one.
    pub fn half_of_peak(&self, id: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.id == id);
        let stock = self.order.iter().find(|kind| **kind != Kind::Evenkeel).or(self.order.first());
        let peak = row.zip(stock).and_then(|(row, kind)| row.servers.get(kind));
        peak.map_or(100.0, |report| (report.requests_per_s / 2.0).max(10.0))
    }

    /// Writes the table to `OUT/REPORT.md`, plots and histograms to `OUT/REPORT/`: after each server, so that what was
    /// measured is kept when a later one fails.
    ///
    /// # Errors
    /// The file that cannot be written.
    pub fn write(&self, lab: &Lab) -> Result<(), String> {
        let (out, report) = (&lab.plan.out, &lab.plan.report);
        let folder = out.join(report);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for row in &self.rows {
            write_row(row, &folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let path = out.join(format!("{report}.md"));
        let text = self.markdown(lab);
        fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
        eprintln!("written: {}", path.display());
        Ok(())
    }

    fn markdown(&self, lab: &Lab) -> String {
        let plan = &lab.plan;
        let mut out = format!("# Report: {}\n\n    {}\n\n", plan.report, plan.command);
        self.facts.iter().for_each(|fact| out.push_str(&format!("- {fact}\n")));
        let _ = writeln!(
            out,
            "- load average {} at the start, {} at the end",
            self.load_at_start,
            load_average()
        );
        let _ = writeln!(
            out,
            "- one server at a time, confined to core {}, the load to core {}; other processes are not kept off them",
            plan.server_core, plan.load_core
        );
        let _ = writeln!(
            out,
            "- {:.1} s a row after {:.1} s of warm-up, {:.1} s before the first row on each server process{}",
            plan.seconds,
            plan.warmup,
            plan.first_warmup.max(plan.warmup),
            plan.minutes.map_or_else(String::new, |m| format!("; bounded to {m} minutes"))
        );
        let _ = writeln!(
            out,
            "- heap {} MiB and off-heap cache {} MiB; Evenkeel has the same cache and counts HBase's shares of the heap from as \
             many bytes; JVM flags and settings in `bench/conf`",
            plan.heap_mib, plan.cache_mib
        );
        self.sayings.iter().for_each(|line| out.push_str(&format!("- {line}\n")));
        if self.load_at_start.parse::<f64>().is_ok_and(|load| load > QUIET_LOAD_MAX) {
            let _ = writeln!(
                out,
                "\n> **Not to be quoted.** The load average was {} when this began: other processes took time from the server, the \
                 load or both, and latencies are partly waits for a core.",
                self.load_at_start
            );
        }
        out.push_str(
            "\nCPU is the server's, user and system, for each row. Latencies are in microseconds, from when a request was due in \
             an open loop. Ratios are the server's figure to Evenkeel's: above 1, Evenkeel does better in CPU and latency; \
             below 1 it does better in rate. GC is CPU of collector threads, then time of collections as `jstat` counts.\n",
        );
        self.rows.iter().for_each(|row| self.table(row, &plan.report, &mut out));
        out
    }

    fn table(&self, row: &Row, report: &str, out: &mut String) {
        let _ = write!(
            out,
            "\n## {}\n\n`{}`\n\n| | rows/s | requests/s | CPU µs/row | P50 | P99 | P99.9 | P99.99 | max | RSS MiB | GC s | \
             rate | CPU | P99.9 |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
            row.title, row.line
        );
        let base = row.servers.get(&Kind::Evenkeel);
        for kind in &self.order {
            let Some(r) = row.servers.get(kind) else { continue };
            let server = r.server.as_ref();
            let gc = server.and_then(|s| Some(format!("{:.2}, {:.2}", s.gc_cpu_s?, s.gc_time_s?)));
            let ratio = |of: &dyn Fn(&Report) -> f64| {
                base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}", of(r) / of(base)))
            };
            let l = &r.latency;
            let _ = writeln!(
                out,
                "| {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} | {} | {} | {} |",
                kind.title(),
                row.rows(r) / r.seconds,
                r.requests_per_s,
                row.cpu_us(r),
                l.p50_us,
                l.p99_us,
                l.p999_us,
                l.p9999_us,
                l.max_us,
                server.map_or(0, |s| s.rss_bytes >> 20),
                gc.unwrap_or_else(|| "-".to_owned()),
                ratio(&|r| r.requests_per_s),
                ratio(&|r| row.cpu_us(r)),
                ratio(&|r| r.latency.p999_us),
            );
        }
        if row.id == "steady" {
            self.worst_seconds(row, out);
        }
        row.note.iter().for_each(|note| out.push_str(&format!("\n{note}\n")));
        let _ = writeln!(out, "\n![latency by percentile]({report}/{}-percentiles.svg)", row.id);
        let _ = writeln!(out, "![latency over time]({report}/{}-time.svg)", row.id);
    }

    /// The worst second of each server, beside its median one, and what it wrote to the disk.
    fn worst_seconds(&self, row: &Row, out: &mut String) {
        for kind in &self.order {
            let Some(report) = row.servers.get(kind) else { continue };
            let mut seconds: Vec<_> = report.intervals.iter().map(|i| (i.latency.p99_us, i.at_s)).collect();
            seconds.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (Some(worst), Some(median)) = (seconds.last(), seconds.get(seconds.len() / 2)) else {
                continue;
            };
            let payload = report.tally.bytes_written.max(1) as f64;
            let written = report.server.as_ref().map_or(f64::NAN, |s| s.disk_written_bytes as f64 / payload);
            let _ = writeln!(
                out,
                "\n{}: the worst second begins at {:.0} s, its P99 {:.0} µs, {:.1} times that of the median second ({:.0} µs); \
                 {written:.1} bytes went to storage for each byte of values.",
                kind.title(),
                worst.1,
                worst.0,
                worst.0 / median.0,
                median.0
            );
        }
    }
}

fn write_row(row: &Row, folder: &Path) -> std::io::Result<()> {
    let reports: Vec<&Report> = row.servers.values().collect();
    fs::write(folder.join(format!("{}-percentiles.svg", row.id)), page::percentiles(&reports).svg())?;
    fs::write(folder.join(format!("{}-time.svg", row.id)), page::latency_over_time(&reports).svg())?;
    fs::write(folder.join(format!("{}-rate.svg", row.id)), page::throughput(&reports).svg())?;
    for (kind, report) in &row.servers {
        write_hgrm(&folder.join(format!("{}-{}.hgrm", row.id, kind.name())), &report.histogram)?;
    }
    Ok(())
}
