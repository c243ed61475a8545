//! The checks of clients again, on a server with features that are off by default: a row cache
//! beside the block cache (`row.cache.enabled`), and eager in-memory compaction of the MemStores of
//! every table (`hbase.hregion.compacting.memstore.type`). Stock HBase 2.6 has only the second;
//! neither may change an answer. The same server writes its slow calls to hbase:slowlog.

#![forbid(unsafe_code)]

use interop::{checks_on, start_evenkeel_with};

#[test]
fn neither_cached_rows_nor_in_memory_compactions_change_an_answer() {
    let settings = [
        ("row.cache.enabled", "true"),
        ("hbase.hregion.compacting.memstore.type", "EAGER"),
        // Segments are compacted after 16 KiB of cells.
        ("hbase.memstore.inmemoryflush.threshold.factor", "0.000125"),
        ("hbase.ipc.warn.response.size", "200000"),
        ("hbase.regionserver.slowlog.buffer.enabled", "true"),
        ("hbase.regionserver.slowlog.systable.enabled", "true"),
        ("hbase.slowlog.systable.chore.duration", "500"),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let server = start_evenkeel_with(&settings).unwrap_or_else(|why| panic!("{why}"));
    checks_on(&server, "rpc", &["core", "filters", "codecs", "async", "slow-log-table"]);
}
