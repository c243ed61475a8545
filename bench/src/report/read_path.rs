//! The read path: Gets, batches and scans from the cache, Gets of a table larger than the cache,
//! and hit ratios.

use super::hits;
use super::output::Results;
use super::servers::{ReportContext, Session, Settings, settings};
use crate::hit_ratio;

/// Callers of batches, as published for HBase's off-heap read path.
const BATCH_CALLERS: [usize; 6] = [5, 10, 20, 25, 50, 75];
/// Rows of a scan.
const SCAN_ROWS: i64 = 10_000;
/// About the bytes of a row, with key, of the table larger than the cache.
const LARGE_ROW_BYTES: i64 = 1080;
/// The least rows of that table, except in a short run: HBase's bucket cache has at least 32 MiB.
const LARGE_ROWS_MIN: i64 = 64_000;

/// Measures all rows on each server.
///
/// # Errors
/// The error of the first failure.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    results.add_header_line("Durability of the loading Puts: SYNC_WAL (hflush) on both sides. Codec: KeyValueCodec, files SNAPPY.");
    hit_ratios(context, results);
    for variant in context.plan.servers.clone() {
        let own = fitting_buckets(results);
        let session = context.start(variant, context.plan.cache_mib, &own)?;
        cached(&session, results)?;
        saturation(results);
        let cache_mib = partial_cache_mib(context);
        let session = session.restarted(cache_mib, &own)?;
        partly_cached(&session, cache_mib, results)?;
        results.write(context)?;
    }
    Ok(())
}

/// Slots for blocks of 64 KB, in buckets of four, for HBase's bucket cache; Evenkeel has none.
/// HBase has 14 default sizes, each of which reserves a bucket of 2 MiB, which is most of a cache
/// this small.
pub(super) fn fitting_buckets(results: &mut Results) -> Settings {
    const SIZES: &str = "33792,67584";
    results.add_header_line_once(&format!(
        "Stock's `hbase.bucketcache.bucket.sizes` is {SIZES}, for blocks of 64 KB: by default 13 other sizes keep 26 MiB of the cache to \
         themselves."
    ));
    settings(&[("hbase.bucketcache.bucket.sizes", SIZES)])
}

fn cached(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = session.context.plan.rows;
    let each = rows / 4;
    let table = "--table=Small --valueSize=200 --compress=SNAPPY";
    load(session, "Small", &format!("--rows={each} {table} --presplit=8"))?;
    let wide = "--table=Kilo --valueSize=1000 --compress=SNAPPY";
    load(session, "Kilo", &format!("--rows={} {wide} --presplit=8", each / 4))?;

    let get = format!("--rows={} --oneCon {table} randomRead 60", rows / 60);
    session.measure(results, "get", "1. Get, all in cache, 60 callers, closed loop", &get)?;
    // Callers on one connection wait for each other. Only several connections saturate a server.
    let many = format!("--rows={} --connCount=4 {table} randomRead 240", rows / 240);
    session.measure(
        results,
        "get-saturated",
        "1. Get, all in cache, 240 callers on 4 connections, closed loop",
        &many,
    )?;
    let rate = results.half_of_peak("get");
    let line = format!("--rate={rate:.0} {get}");
    session.measure(results, "get-half", "1. Get at half of stock's peak, open loop", &line)?;

    for callers in batch_callers(session.context) {
        let per = rows / 4 / callers as i64;
        let line = format!("--rows={per} --oneCon --multiGet=100 {wide} randomRead {callers}");
        let title = format!("2. multi-get of 100 rows of 1 KB, {callers} callers");
        let mut options = session.options(&line)?;
        options.total_rows = rows / 4;
        session.measure_options(results, &format!("multi-get-{callers}"), &title, &line, options)?;
    }

    for (row, title, option) in [
        ("scan-filtered", "4. scan of 10,000 rows, all filtered at the server", "--filterAll"),
        ("scan-tenth", "4. scan of 10,000 rows, a tenth returned", "--returnPart=0.1"),
        ("scan-all", "4. scan of 10,000 rows, all returned", ""),
    ] {
        let line = format!("--rows={} --caching=10000 {option} {table} scanRange10000 4", rows / 4);
        session.measure(results, row, title, &line)?;
        results.rows_each(row, rows_scanned(rows));
    }
    Ok(())
}

/// The mean number of rows of a scan from a random row; scans near the end of the table are
/// shorter.
pub(super) fn rows_scanned(rows: i64) -> f64 {
    let (rows, most) = (rows as f64, SCAN_ROWS.min(rows) as f64);
    most - most * most / (2.0 * rows)
}

/// Rows of the table that is larger than the cache.
fn large_rows(context: &ReportContext) -> i64 {
    if context.plan.short { context.plan.rows } else { (context.plan.rows / 4).max(LARGE_ROWS_MIN) }
}

/// MiB of a cache that holds about half of that table.
pub(super) fn partial_cache_mib(context: &ReportContext) -> u64 {
    ((large_rows(context) * LARGE_ROW_BYTES / 2) >> 20).max(32) as u64
}

/// Loads the table larger than the cache; returns the options that name it, and its rows.
pub(super) fn load_large(session: &Session<'_>) -> Result<(&'static str, i64), String> {
    let (table, rows) = ("--table=Large --valueSize=1000 --compress=SNAPPY", large_rows(session.context));
    load(session, "Large", &format!("--rows={} {table} --presplit=8", rows / 4))?;
    Ok((table, rows))
}

/// Gets of a table whose size is about twice the cache.
fn partly_cached(session: &Session<'_>, cache_mib: u64, results: &mut Results) -> Result<(), String> {
    let (table, rows) = load_large(session)?;
    let line = format!("--rows={} --oneCon {table} randomRead 60", rows / 60);
    let title = format!("3. Get of 1 KB, about half in a cache of {cache_mib} MiB, 60 callers");
    hits::measure(session, results, &[("get-partly", title, line)])?;
    hits_of_servers(session, cache_mib, (table, rows), results)
}

/// Row 6 on the servers: zipf-distributed Gets, alone and beside a scan of the table. The second
/// has the same rates on all servers, so that each server looks up the same numbers of blocks.
fn hits_of_servers(
    session: &Session<'_>,
    cache_mib: u64,
    (table, rows): (&str, i64),
    results: &mut Results,
) -> Result<(), String> {
    let get = format!("--rows={} --oneCon {table} ycsbC 60", rows / 60);
    let title = format!("6. Get of 1 KB by zipf, about half in a cache of {cache_mib} MiB, 60 callers");
    hits::measure(session, results, &[("hits-zipf", title, get.clone())])?;
    let rate = results.half_of_peak("hits-zipf");
    let get = format!("--rate={rate:.0} {get}");
    let scan_rate = rows as f64 / session.context.plan.seconds;
    let scan = format!("--rate={scan_rate:.0} --rows={rows} --caching=100 {table} scan 1");
    let loads = [
        ("hits-scan", "6. the same at half of stock's peak, beside a scan of the table".to_owned(), get),
        ("hits-scan-itself", "6. that scan, a request a row".to_owned(), scan),
    ];
    hits::measure(session, results, &loads)?;
    let both = "Measured in the same seconds: CPU, core, memory, bytes read and hits are those of Gets and scan together, in both rows.";
    loads.iter().for_each(|(row, ..)| results.note(row, both));
    Ok(())
}

/// Row 6 by policy: the hit ratio of each policy with the same memory.
fn hit_ratios(context: &ReportContext, results: &mut Results) {
    eprintln!("hit ratios of policies");
    let sizes = if context.plan.short { hit_ratio::Sizes::short() } else { hit_ratio::Sizes::full() };
    let text = hit_ratio::table(&sizes, &["zipf 0.9", "zipf 0.9 and scans"]);
    results.section(
        "6. Hit ratio at equal memory, by policy",
        format!(
            "{text}\nPer cent of requests, without the first quarter. *Ours* is the engine itself, with its frames and free bytes; the \
             others are simulated with exact sizes, except *BucketCache*, which has HBase's slots. All traces and policies: \
             `cargo run --release -p evenkeel-bench --bin measure -- hit_ratio`. The rows of Gets by zipf have the hit ratios of the \
             servers themselves."
        ),
    );
}

/// All numbers of callers in a full run, the first, middle and last in a bounded one.
fn batch_callers(context: &ReportContext) -> Vec<usize> {
    match (context.plan.short, context.plan.minutes) {
        (true, _) => vec![5],
        (false, Some(_)) => vec![5, 25, 75],
        (false, None) => BATCH_CALLERS.to_vec(),
    }
}

/// Checks that one load process saturates a server's core: CPU of the load and of the server in the
/// row of many callers.
fn saturation(results: &mut Results) {
    let mut text = String::from(
        "One process of load on one core, 240 callers on 4 connections, a server on another core; the table is flushed, \
         compacted and cached (the row of that name above).\n\n\
         | | core % | server CPU µs/Get | load CPU µs/Get | load to server |\n|---|---|---|---|---|\n",
    );
    for variant in results.order().to_vec() {
        let Some(report) = results.report("get-saturated", variant) else { continue };
        let (server, load) =
            (report.server_us_per_request().unwrap_or(f64::NAN), report.own_us_per_request());
        let busy = report.server.as_ref().map_or(f64::NAN, |s| 100.0 * s.cpu_s / report.seconds);
        text.push_str(&format!(
            "| {} beside the load | {busy:.0} | {server:.2} | {load:.2} | {:.2} |\n",
            variant.title(),
            load / server
        ));
    }
    results.section("One load process and a server's core", text);
}

/// Loads a table by 4 writers of batches, compacts it, and reads it once.
pub(super) fn load(session: &Session<'_>, table: &str, options: &str) -> Result<(), String> {
    eprintln!("{}: loading {table}", session.variant.title());
    session.load(&format!("--autoFlush=true --multiPut=100 --oneCon {options} sequentialWrite 4"))?;
    session.settle(table)?;
    let rows = session.options(&format!("{options} scan 1"))?.total_rows * 4;
    session.load(&format!("--table={table} --rows={rows} --caching=1000 scan 1")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_near_the_end_are_shorter() {
        assert_eq!(rows_scanned(1_000_000), 9950.0);
        assert_eq!(rows_scanned(2000), 1000.0);
    }
}
