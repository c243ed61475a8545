//! The checks of clients again, on a server that does what is off unless asked for: Gets keep rows
//! beside blocks (`row.cache.enabled`), and MemStores of every table are compacted in memory,
//! eagerly (`hbase.hregion.compacting.memstore.type`). A stock server knows the second alone;
//! neither may change an answer.

use interop::{checks_on, start_evenkeel_with};

#[test]
fn neither_cached_rows_nor_in_memory_compactions_change_an_answer() {
    let settings = [
        ("row.cache.enabled", "true"),
        ("hbase.hregion.compacting.memstore.type", "EAGER"),
        // Segments are compacted after 16 KiB of cells.
        ("hbase.memstore.inmemoryflush.threshold.factor", "0.000125"),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let server = start_evenkeel_with(&settings).unwrap_or_else(|why| panic!("{why}"));
    checks_on(&server, "rpc", &["core", "filters", "codecs", "async"]);
}
