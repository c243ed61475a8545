//! Memory of a cell in a MemStore, from each server's log of flushes.
//!
//! Stock HBase logs `Finished flush of dataSize ~.../N, heapSize ~.../M, ... for REGION`. Its heap
//! size is that of the cells, their share of the chunks and the index over them, by HBase's
//! estimates of object sizes. Evenkeel logs `flushed` as a JSON object with `cells` and
//! `heap_bytes`, the bytes of its arenas' nodes. Every cell is flushed once, so the sums over a
//! table's flushes cover all its cells.

use super::output::Results;
use super::servers::Session;

/// Rows of the table, with one cell each.
const ROWS: i64 = 200_000;
const ROWS_SHORT: i64 = 2_000;
const TABLE: &str = "Counted";

/// Writes a table, flushes it, and adds the memory of a cell to the report.
///
/// # Errors
/// The first error of the load, or a log without the line.
pub(super) fn measure(session: &Session<'_>, results: &mut Results) -> Result<(), String> {
    let rows = if session.context.plan.short { ROWS_SHORT } else { ROWS };
    let line = format!("--table={TABLE} --rows={} --valueSize=200 --autoFlush=true --multiPut=100", rows / 4);
    eprintln!("{}: bytes of memory a cell: {line} sequentialWrite 4", session.variant.title());
    session.load(&format!("{line} --oneCon sequentialWrite 4"))?;
    let regions = session.flush(TABLE, false)?;
    let bytes = flushed_heap_bytes(&session.log(), &regions);
    if bytes == 0 {
        return Err(format!("{}: its log has no flush of {TABLE}", session.variant.title()));
    }
    results.memory_a_cell(session.variant, bytes as f64 / rows as f64);
    Ok(())
}

/// The sum of heap sizes over the flushes of some regions.
fn flushed_heap_bytes(log: &str, regions: &[String]) -> u64 {
    let of_regions = |line: &&str| regions.iter().any(|region| line.contains(region.as_str()));
    log.lines().filter(of_regions).filter_map(heap_bytes).sum()
}

fn heap_bytes(line: &str) -> Option<u64> {
    let rest = match line.split_once("Finished flush of dataSize") {
        Some((_, rest)) => rest.split_once("heapSize ~")?.1.split_once('/')?.1,
        None => line.split_once("\"heap_bytes\":").filter(|_| line.contains("flushed"))?.1,
    };
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_logs_are_read() {
        let stock = "2026 INFO [x] r.HRegion: Finished flush of dataSize ~54.39 KB/55696, heapSize ~60.63 KB/62080, \
            currentSize=0 B/0 for abc123 in 28ms, sequenceid=7, compaction requested=false";
        let ours = "{\"level\":\"INFO\",\"message\":\"flushed\",\"region\":\"t,,1.abc123.\",\"cells\":5,\"heap_bytes\":1500}";
        let regions = ["abc123".to_owned()];
        assert_eq!(flushed_heap_bytes(stock, &regions), 62_080);
        assert_eq!(flushed_heap_bytes(ours, &regions), 1500);
        assert_eq!(flushed_heap_bytes(&[stock, ours, stock].join("\n"), &regions), 125_660);
        assert_eq!(flushed_heap_bytes(stock, &["other".to_owned()]), 0);
        assert_eq!(flushed_heap_bytes("flushed abc123", &regions), 0);
    }
}
