//! The write path: single Puts, batches, writers beside readers, and steady writes over time.

use evenkeel_pe::Options;
use evenkeel_pe::report::Report;

use super::causes;
use super::memory;
use super::output::Results;
use super::read_path::{fitting_buckets, load_large, partial_cache_mib};
use super::seconds::Seconds;
use super::servers::{ReportContext, Session, settings};

/// Regions of the tables of single Puts and batches, as published.
const REGIONS: usize = 64;

/// Measures all rows on each server.
///
/// # Errors
/// The error of the first failure.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    results.add_header_line(
        "Durability: SYNC_WAL, which hands the log to the file system (hflush) on both sides, and FSYNC_WAL, which syncs the \
         disk (hsync) on both sides, where a row says so. Codec: KeyValueCodec, files SNAPPY.",
    );
    let (key, value) = causes::SETTING;
    results.add_header_line(&format!(
        "Evenkeel keeps requests of {value} ms or longer in its ledger, in all rows (`{key}`, by default 100)."
    ));
    for variant in context.plan.servers.clone() {
        let mut own = fitting_buckets(results);
        own.extend(settings(&[causes::SETTING]));
        let session = context.start(variant, context.plan.cache_mib, &own)?;
        puts(&session, results)?;
        memory::measure(&session, results)?;
        let cache_mib = partial_cache_mib(context);
        let session = session.restarted(cache_mib, &own)?;
        beside_readers(&session, cache_mib, results)?;
        results.write(context)?;
    }
    Ok(())
}

fn puts(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = session.context.plan.rows;
    let regions = if session.context.plan.short { 4 } else { REGIONS };
    let table = format!("--valueSize=200 --compress=SNAPPY --presplit={regions}");
    // The first load creates the table, with the measured row size.
    let put = format!("--table=Puts --rows={} {table} --oneCon --autoFlush=true randomWrite 64", rows / 64);
    session.measure(results, "put", "1. Put, 64 callers, 64 regions, closed loop", &put)?;
    let line = format!("--durability=FSYNC_WAL {put}");
    session.measure(results, "put-fsync", "1. Put, synced to the disk, 64 callers, closed loop", &line)?;
    let batch = format!(
        "--table=Puts --rows={} {table} --oneCon --autoFlush=true --multiPut=100 randomWrite 64",
        rows / 64
    );
    session.measure(results, "batch", "2. batches of 100 Puts, 64 callers", &batch)?;
    results.rows_each("batch", 100.0);
    session.wait_idle();

    let plan = &session.context.plan;
    let rate = plan.steady_rate.unwrap_or_else(|| results.half_of_peak("put"));
    let line = format!("--rate={rate:.0} {put}");
    eprintln!("{}: steady writes: {line}", session.variant.title());
    let interval = if plan.short { 0.25 } else { 1.0 };
    let options = session.timed(Options { interval, ..session.options(&line)? }, plan.steady);
    let report = session.run(options)?;
    let of = match (plan.steady_rate, plan.servers.iter().any(|variant| variant.is_jvm())) {
        (Some(rate), _) => format!("{rate:.0} a second"),
        (None, true) => "half of stock's peak".to_owned(),
        (None, false) => "half of its own peak".to_owned(),
    };
    let title = format!("4. {:.0} s of Puts at {of}, open loop", plan.steady);
    note_causes(session, results, &report);
    results.add("steady", &title, &line, session.variant, report);
    Ok(())
}

/// Adds what the ledger says about the bad seconds; HBase has none.
fn note_causes(session: &Session<'_>, results: &mut Results, report: &Report) {
    let bad_s = Seconds::of(&report.intervals).map(|seconds| seconds.bad_at_s()).unwrap_or_default();
    if !session.variant.is_jvm()
        && let Some(text) = causes::table(&session.log(), report.began_unix_s + report.options.warmup, &bad_s)
    {
        results.section("The bad seconds of the steady writes, by Evenkeel's ledger", text);
    }
}

/// 60 readers of a table about twice the cache, beside 20 writers of batches to another table.
fn beside_readers(session: &Session<'_>, cache_mib: u64, results: &mut Results) -> Result<(), String> {
    let (context, variant) = (session.context, session.variant);
    let rows = context.plan.rows;
    let (table, large) = load_large(session)?;
    let written = "--table=Written --valueSize=200 --compress=SNAPPY --blockEncoding=DIFF --presplit=8";
    let write =
        format!("--rows={} {written} --oneCon --autoFlush=true --multiPut=100 randomWrite 20", rows / 20);
    let read = format!("--rows={} --oneCon {table} randomRead 60", large / 60);
    let reads = session.timed(session.options(&read)?, context.plan.seconds);
    let (warmup, duration) = (reads.warmup, reads.duration);
    let writes = Options { warmup, duration, ..session.options(&write)? };
    eprintln!("{}: readers beside writers", variant.title());
    let reports = session.run_all(&[reads, writes])?;
    let title =
        format!("3. 60 readers, half in a cache of {cache_mib} MiB, beside 20 writers of batches (DIFF)");
    let rows = [
        ("mixed-reads", title.as_str(), read),
        ("mixed-writes", "3. those 20 writers of batches of 100", write),
    ];
    for ((row, title, line), report) in rows.into_iter().zip(reports) {
        results.add(row, title, &line, variant, report);
    }
    results.rows_each("mixed-writes", 100.0);
    let both = "Readers and writers are measured in the same seconds, by one process, on one server: CPU of the server and of the \
                load, core, memory and bytes read are those of both loads, in both rows. Add the rates, not the CPU.";
    results.note("mixed-reads", both);
    results.note("mixed-writes", both);
    Ok(())
}
