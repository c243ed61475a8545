//! A RegionServer of a cluster on HDFS: each variant in turn is the only RegionServer of a stock
//! cluster of its own, with a NameNode, three DataNodes, ZooKeeper and a master.
//!
//! The tested server has its core. All other processes of the cluster share the load's core. So the
//! CPU of a row is that of the server, and latencies include waits of DataNodes for their core.
//!
//! | rows | contents |
//! |---|---|
//! | 1, 2 | single Puts and batches, with hflush and with hsync |
//! | 3 | Gets from the block cache, and from DataNodes (`BLOCKCACHE` is false) |
//! | 4 | scans |
//! | 5 | Gets beside Puts |
//! | 6 | Puts at a fixed rate while one DataNode is stopped: [`STOPPED`] |
//!
//! Puts with `FSYNC_WAL` do what all Puts do with `hbase.wal.hsync`: the log is synced to the disks
//! of its DataNodes. [`round_trip`] measures the log's flushes beside round trips to DataNodes.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection, Error};
use evenkeel_common::TableName;
use evenkeel_pe::{Options, Report};
use interop::HdfsCluster;
use interop::cluster::{Cluster, ClusterStorage};

use self::round_trip::RoundTrips;
use super::output::Results;
use super::read_path::{fitting_buckets, load, rows_scanned};
use super::servers::{ReportContext, ServerVariant, Session, Settings, common_settings};

mod round_trip;

/// DataNodes of the cluster, all of which have the log.
const DATANODES: usize = 3;
/// How long a DataNode is stopped.
pub(super) const STOPPED: Duration = Duration::from_secs(10);
/// Seconds of that row before the stop and after it, in a full run.
const AROUND_STOP_S: [f64; 2] = [5.0, 5.0];
/// The same in a short run.
const AROUND_STOP_SHORT_S: [f64; 2] = [2.0, 3.0];
/// Puts a second of that row.
const STOP_RATE: u32 = 500;
/// No write should take longer, in milliseconds.
const WRITE_MAX_MS: u64 = 100;
/// The number of measured times of each server, besides the row with the stopped DataNode.
pub(super) const MEASUREMENTS: f64 = 11.0;
/// Settings of all processes: of a production cluster, where the tests have shorter ones.
const OF_CLUSTER: [(&str, &str); 5] = [
    ("zookeeper.session.timeout", "20000"),
    ("hbase.regionserver.msginterval", "3000"),
    ("hbase.regionserver.slowlog.buffer.enabled", "false"),
    ("hbase.regionserver.slowlog.systable.enabled", "false"),
    ("hbase.rpc.timeout", "60000"),
];
/// A log has a block of twice that, and is rolled at half of it.
const OF_HDFS: [(&str, &str); 1] = [("dfs.blocksize", "67108864")];
/// Rows of 200 bytes that are read.
const SMALL: &str = "--table=Small --valueSize=200 --compress=SNAPPY --presplit=8";
/// The same rows in a table without a block cache.
const UNCACHED: &str = "--table=Uncached --valueSize=200 --compress=SNAPPY --presplit=8";

/// Seconds of the row with the stopped DataNode, without its warm-up.
pub(super) fn stop_row_s(is_short: bool) -> f64 {
    let around = if is_short { AROUND_STOP_SHORT_S } else { AROUND_STOP_S };
    around.iter().sum::<f64>() + STOPPED.as_secs_f64()
}

/// Measures all rows on each server.
///
/// # Errors
/// The error of the first failure.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    add_header(results);
    let mut latencies = String::new();
    for variant in context.plan.servers.clone() {
        let own = fitting_buckets(results);
        let cluster = start(context)?;
        let session = join(context, &cluster, variant, &own)?;
        let hdfs = cluster.hdfs().ok_or("the cluster is not on HDFS")?;
        writes(&session, results)?;
        reads(&session, results)?;
        mixed(&session, results)?;
        stopped_datanode(&session, hdfs, results)?;
        session.kill();
        match round_trip::measure(hdfs, context) {
            Ok(trips) => add_latencies(results, variant, &trips, &mut latencies),
            Err(why) => results.add_header_line(&format!("{}: no round trips: {why}", variant.title())),
        }
        results.write(context)?;
    }
    Ok(())
}

fn add_header(results: &mut Results) {
    results.add_header_line(&format!(
        "A stock cluster for each server, which is its only RegionServer: a NameNode, {DATANODES} DataNodes, ZooKeeper and an HMaster \
         share the load's core. The log is on all {DATANODES} DataNodes."
    ));
    results.add_header_line(
        "Durability: hflush (SYNC_WAL, the default) on both sides, and hsync (FSYNC_WAL, as `hbase.wal.hsync` for all writes) where a \
         row says so. Codec: KeyValueCodec, files SNAPPY.",
    );
    results.section(
        "Gets from short-circuit files",
        "Not measurable here: a DataNode passes its files by Hadoop's native library (`libhadoop`), which the published jars lack."
            .to_owned(),
    );
}

/// Starts a cluster without RegionServers on this process's core.
fn start(context: &ReportContext) -> Result<Cluster, String> {
    let common = common_settings()?;
    let mut own: Vec<_> = common.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    own.extend(OF_CLUSTER);
    eprintln!("starting a cluster on core {}", context.plan.load_core);
    Cluster::start_with_settings(ClusterStorage::Hdfs(DATANODES), &own, &OF_HDFS)
}

/// Starts the tested server, and waits until it has hbase:meta.
fn join<'a>(
    context: &'a ReportContext,
    cluster: &Cluster,
    variant: ServerVariant,
    own: &Settings,
) -> Result<Session<'a>, String> {
    let (process, all) = context.region_server(variant, own)?;
    let all: Vec<_> = all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let server = cluster.start_regionserver_as(&process, variant.name(), &all)?;
    cluster.wait_for_master()?;
    let client = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
    Session::of_server(context, variant, server, client)
}

fn writes(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = session.context.plan.rows;
    let put = |callers: i64, more: &str| {
        format!(
            "--table=Puts --rows={} --valueSize=200 --compress=SNAPPY --presplit=8 --oneCon --autoFlush=true{more} randomWrite {callers}",
            rows / callers
        )
    };
    for (hsync, level, option) in [("", "hflush", ""), ("-hsync", "hsync", " --durability=FSYNC_WAL")] {
        for (row, title, callers, more) in [
            ("put-one", "1. Put, one caller", 1, ""),
            ("put", "1. Put, 64 callers", 64, ""),
            ("batch", "2. batches of 100 Puts, 20 callers", 20, " --multiPut=100"),
        ] {
            let row = format!("{row}{hsync}");
            let line = put(callers, &format!("{more}{option}"));
            session.measure(results, &row, &format!("{title}, {level}, closed loop"), &line)?;
            if !more.is_empty() {
                results.rows_each(&row, 100.0);
            }
        }
    }
    session.wait_idle();
    Ok(())
}

fn reads(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = session.context.plan.rows / 4;
    load(session, "Small", &format!("--rows={} {SMALL}", rows / 4))?;
    let get = |table: &str| format!("--rows={} --oneCon {table} randomRead 60", rows / 60);
    session.measure(results, "get", "3. Get, from the block cache, 60 callers, closed loop", &get(SMALL))?;
    load_uncached(session, rows)?;
    let title = "3. Get, from DataNodes (BLOCKCACHE is false), 60 callers, closed loop";
    session.measure(results, "get-datanodes", title, &get(UNCACHED))?;
    for (row, title, option) in [
        (
            "scan-filtered",
            "4. scan of 10,000 rows, from the block cache, all filtered at the server",
            "--filterAll",
        ),
        ("scan", "4. scan of 10,000 rows, from the block cache, all returned", ""),
    ] {
        let line = format!("--rows={} --caching=10000 {option} {SMALL} scanRange10000 4", rows / 4);
        session.measure(results, row, title, &line)?;
        results.rows_each(row, rows_scanned(rows));
    }
    Ok(())
}

/// Loads a table whose blocks are not cached.
fn load_uncached(session: &Session<'_>, rows: i64) -> Result<(), String> {
    eprintln!("{}: loading Uncached", session.variant.title());
    let line =
        format!("--autoFlush=true --multiPut=100 --oneCon --rows={} {UNCACHED} sequentialWrite 4", rows / 4);
    session.load(&line)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let altered = runtime.map_err(|e| e.to_string())?.block_on(async {
        let name: TableName =
            "Uncached".parse().map_err(|_| Error::InvalidArgument("Uncached".to_owned()))?;
        let admin = Connection::connect(session.client().clone()).await?.admin();
        let table = admin.describe(&name).await?;
        let families: Vec<_> = table.families().cloned().collect();
        let table = families
            .into_iter()
            .fold(table, |table, family| table.with_family(family.with("BLOCKCACHE", "false")));
        admin.modify_table(&table).await
    });
    altered.map_err(|e: Error| format!("{}: Uncached: {e}", session.variant.title()))?;
    session.settle("Uncached")
}

/// Gets beside Puts.
fn mixed(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = session.context.plan.rows / 4;
    let loads = [
        (
            "mixed-gets",
            "5. Get, from the block cache, 30 callers, beside 30 callers of Puts",
            format!("--rows={} --oneCon {SMALL} randomRead 30", rows / 30),
        ),
        (
            "mixed-puts",
            "5. those Puts, hflush",
            format!(
                "--table=Puts --rows={} --valueSize=200 --compress=SNAPPY --presplit=8 --oneCon --autoFlush=true randomWrite 30",
                rows / 30
            ),
        ),
    ];
    let options = loads.iter().map(|(.., line)| session.options(line)).collect::<Result<Vec<_>, _>>()?;
    loads.iter().for_each(|(_, title, line)| eprintln!("{}: {title}: {line}", session.variant.title()));
    let timed = session.timed(options[0].clone(), session.context.plan.seconds);
    let of =
        |options: &Options| Options { warmup: timed.warmup, duration: timed.duration, ..options.clone() };
    let reports = session.run_all(&options.iter().map(of).collect::<Vec<_>>())?;
    for ((row, title, line), report) in loads.iter().zip(reports) {
        results.add(row, title, line, session.variant, report);
        results.note(
            row,
            "Gets and Puts are measured in the same seconds: CPU, core and memory are those of both.",
        );
    }
    Ok(())
}

/// Puts at a fixed rate while one DataNode is stopped.
fn stopped_datanode(session: &Session<'_>, hdfs: &HdfsCluster, results: &mut Results) -> Result<(), String> {
    let plan = &session.context.plan;
    let line = format!(
        "--rate={STOP_RATE} --table=Puts --rows={} --valueSize=200 --compress=SNAPPY --presplit=8 --oneCon --autoFlush=true randomWrite 64",
        plan.rows / 64
    );
    let title = format!(
        "6. Puts, {STOP_RATE} a second, open loop; one DataNode is stopped (SIGSTOP) for {} s",
        STOPPED.as_secs()
    );
    eprintln!("{}: {title}: {line}", session.variant.title());
    let [before_s, _] = if plan.short { AROUND_STOP_SHORT_S } else { AROUND_STOP_S };
    let options =
        Options { warmup: plan.warmup.max(1.0), duration: stop_row_s(plan.short), ..session.options(&line)? };
    let begin = Duration::from_secs_f64(options.warmup + before_s);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(begin);
            hdfs.freeze_datanode(0, true);
            sleep(STOPPED);
            hdfs.freeze_datanode(0, false);
        });
        session.run(options)
    })?;
    results.add("stopped", &title, &line, session.variant, report);
    let reports = results.order().iter().filter_map(|v| Some((*v, results.report("stopped", *v)?)));
    let text = stop_table(&reports.collect::<Vec<_>>());
    results.section("Puts while a DataNode is stopped", text);
    Ok(())
}

fn stop_table(reports: &[(ServerVariant, &Report)]) -> String {
    let mut text = format!(
        "One DataNode of {DATANODES} is stopped for {} s. Goal: no Put above {WRITE_MAX_MS} ms. Latencies count from when a Put was due.\n\n\
         | | P50 ms | P99 | P99.9 | P99.99 | max | Puts above {WRITE_MAX_MS} ms | of |\n|---|---|---|---|---|---|---|---|\n",
        STOPPED.as_secs()
    );
    for (variant, report) in reports {
        let latency = &report.latency;
        let of = [latency.p50_us, latency.p99_us, latency.p999_us, latency.p9999_us, latency.max_us];
        let ms = of.map(|us| format!("{:.2}", us / 1e3)).join(" | ");
        let above = report.histogram.count_between(WRITE_MAX_MS * 1_000_000 + 1, u64::MAX);
        let _ = writeln!(text, "| {} | {ms} | {above} | {} |", variant.title(), report.histogram.len());
    }
    text
}

/// Adds the round trips of a server's cluster, beside the latency of its single Puts.
fn add_latencies(results: &mut Results, variant: ServerVariant, trips: &[RoundTrips; 2], lines: &mut String) {
    for (trip, (level, row)) in trips.iter().zip([("hflush", "put-one"), ("hsync", "put-one-hsync")]) {
        let put_us = results.report(row, variant).map_or(f64::NAN, |report| report.latency.p50_us);
        let _ = writeln!(
            lines,
            "| {}, {level} | {:.0} | {:.0} | {:.0} | {:.2} | {put_us:.0} | {:.2} |",
            variant.title(),
            trip.alone_us,
            trip.slowest_us,
            trip.log_us,
            trip.log_us / trip.slowest_us,
            put_us / trip.slowest_us
        );
    }
    let text = format!(
        "P50 in µs of {} bytes, on the server's core and on its cluster, after it has ended. *Alone*: a packet to one DataNode and its \
         acknowledgement, of the slowest DataNode. *Slowest of {DATANODES}*: the same to each DataNode at once, until the last \
         acknowledgement. *Log*: a flush of Evenkeel's log writer. *Put*: the server's single Puts of one caller, with its RPC. \
         Goal: a flush within 1.5 times of the slowest round trip.\n\n\
         | | alone | slowest of {DATANODES} | log | log / slowest | Put | Put / slowest |\n|---|---|---|---|---|---|---|\n{lines}",
        round_trip::ENTRY_BYTES
    );
    results.section("Flushes of the log beside round trips to DataNodes", text);
}
