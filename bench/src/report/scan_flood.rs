//! Gets and Puts beside 100 scanners: alone, with the default settings, and with shares of the call
//! queues for reads and scans.
//!
//! HBase divides its handlers by `hbase.ipc.server.callqueue.*`. Evenkeel has no such queues: a
//! scan yields its core to requests and to other scans after a time slice. Both servers get the
//! same settings, which have no effect on Evenkeel, so that the protection of small requests is
//! compared and not the setting.
//!
//! Gets and Puts have fixed rates that are a small part of what each server can do. Scanners are a
//! closed loop; all their rows are filtered at the server, so that the load's core has time.

use evenkeel_pe::Options;

use super::output::Results;
use super::read_path::{fitting_buckets, load};
use super::servers::{ReportContext, Session, Settings, settings};

/// Gets and Puts a second.
const RATE: u32 = 200;
/// Callers of the Gets, and of the Puts.
const CALLERS: i64 = 30;
const SCANNERS: i64 = 100;
/// Three queues of ten handlers each: for writes, Gets and scans.
const SHARES: [(&str, &str); 3] = [
    ("hbase.ipc.server.callqueue.handler.factor", "0.1"),
    ("hbase.ipc.server.callqueue.read.ratio", "0.7"),
    ("hbase.ipc.server.callqueue.scan.ratio", "0.5"),
];
/// The number of measured times, and of starts, of each server.
pub(super) const MEASUREMENTS: (f64, f64) = (3.0, 2.0);

/// Measures all rows on each server.
///
/// # Errors
/// The error of the first failure.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    results.add_header_line(
        "Durability of the Puts: SYNC_WAL (hflush) on both sides. Codec: KeyValueCodec, files SNAPPY.",
    );
    let shares: Vec<_> = SHARES.iter().map(|(key, value)| format!("`{key}` {value}")).collect();
    results.add_header_line(&format!("*With shares*: {}.", shares.join(", ")));
    for variant in context.plan.servers.clone() {
        let own = fitting_buckets(results);
        let session = started(context, variant, &own)?;
        beside(&session, results, "alone", "1. alone", false)?;
        beside(&session, results, "flood", "2. default settings, beside 100 scanners", true)?;
        drop(session);
        let own: Settings = own.into_iter().chain(settings(&SHARES)).collect();
        let session = started(context, variant, &own)?;
        beside(&session, results, "shares", "3. with shares, beside 100 scanners", true)?;
        results.write(context)?;
    }
    Ok(())
}

fn table(rows: i64) -> String {
    format!("--rows={rows} --table=Small --valueSize=200 --compress=SNAPPY --presplit=8")
}

fn started<'a>(
    context: &'a ReportContext,
    variant: super::ServerVariant,
    own: &Settings,
) -> Result<Session<'a>, String> {
    let session = context.start(variant, context.plan.cache_mib, own)?;
    load(&session, "Small", &table(context.plan.rows / 4))?;
    Ok(session)
}

/// Measures Gets and Puts, and the scanners beside them.
fn beside(
    session: &Session<'_>,
    results: &mut Results,
    set: &str,
    title: &str,
    has_scanners: bool,
) -> Result<(), String> {
    let rows = session.context.plan.rows;
    let small = table(rows / CALLERS);
    let mut loads = vec![
        (
            format!("{set}-get"),
            format!("{title}: Gets, {RATE} a second"),
            format!("--rate={RATE} --oneCon {small} randomRead {CALLERS}"),
        ),
        (
            format!("{set}-put"),
            format!("{title}: Puts, {RATE} a second"),
            format!("--rate={RATE} --oneCon --autoFlush=true {small} randomWrite {CALLERS}"),
        ),
    ];
    if has_scanners {
        loads.push((
            format!("{set}-scan"),
            format!("{title}: those scans of 10,000 rows, all filtered at the server"),
            format!(
                "--connCount=10 --caching=10000 --filterAll {} scanRange10000 {SCANNERS}",
                table(rows / SCANNERS)
            ),
        ));
    }
    let options = loads.iter().map(|(.., line)| session.options(line)).collect::<Result<Vec<_>, _>>()?;
    loads.iter().for_each(|(_, title, line)| eprintln!("{}: {title}: {line}", session.variant.title()));
    let timed = session.timed(options[0].clone(), session.context.plan.seconds);
    let of =
        |options: &Options| Options { warmup: timed.warmup, duration: timed.duration, ..options.clone() };
    let reports = session.run_all(&options.iter().map(of).collect::<Vec<_>>())?;
    for ((row, title, line), report) in loads.iter().zip(reports) {
        results.add(row, title, line, session.variant, report);
        results.note(row, "Measured in the same seconds as the other rows of its number: CPU, core, memory and bytes read are those of all.");
    }
    Ok(())
}
