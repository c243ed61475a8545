//! "Comparing BlockCache Deploys" repeated: five deploys with four loadings; and blocks cached
//! compressed and uncompressed.
//!
//! Cells of 1 byte to 256 KiB (zipf), 21 regions, 25 clients that read at random in the first part
//! of the table: half of the cache, slightly more than it, two and a half times it, and the whole
//! table. Both servers get HBase's settings; what a server refuses or ignores is reported. Charts
//! show throughput, latency, CPU, collections and bytes read from files.
//!
//! All deploys have the plan's bytes for data blocks, and [`META_MIB`] for index and bloom blocks,
//! in two caches. LruBlockCache is one cache of both sizes, so data blocks may take up to
//! [`META_MIB`] more there. (The fifth deploy caches no data blocks.) On HBase these are shares of
//! the heap, on Evenkeel of the same number of bytes.
//!
//! Number 6 is the second deploy on SNAPPY files, with `hbase.block.data.cachecompressed` off and
//! on (HBASE-11331), for "many misses" only: there compression lets more blocks fit, which saves
//! reads and costs CPU. This row has hits of data blocks.

use std::path::Path;

use super::hits;
use super::output::Results;
use super::servers::{ReportContext, ServerVariant, Session, Settings, settings};

/// About the mean value's bytes if the largest is 256 KiB.
const VALUE_BYTES_MEAN: f64 = 5_200.0;
const VALUE_BYTES_MAX: usize = 262_144;
/// MiB for index and bloom blocks. Those of a table of 4 GiB, the largest, take 5.
const META_MIB: u64 = 16;
/// MemStores' share of the heap in all deploys. HBase starts only if MemStores and cache leave a
/// fifth of the heap.
const MEMSTORE_SHARE: &str = "0.2";
/// Loadings: name, and the size read relative to the cache.
const LOADINGS: [Loading; 4] = [
    ("cached", "all in cache", 0.5),
    ("few", "few misses", 1.2),
    ("many", "many misses", 2.5),
    ("mostly", "mostly misses", 4.0),
];
/// The loading for compressed blocks.
const MANY_MISSES: Loading = LOADINGS[2];
/// Server starts for each deploy number: the fourth has three engines, the sixth is off and on.
pub(super) const STARTS: [usize; 6] = [1, 1, 1, 3, 1, 2];

type Loading = (&'static str, &'static str, f64);

/// A server's settings, and the rows measured with them.
struct Deploy {
    /// Its name on the command line.
    number: usize,
    name: &'static str,
    title: &'static str,
    own: Settings,
}

impl Deploy {
    fn is_of_compressed(&self) -> bool {
        self.number == 6
    }
}

/// The rows of each deploy number on each server.
pub(super) fn rows_of(number: usize) -> usize {
    let starts = STARTS.get(number - 1).copied().unwrap_or_default();
    if number == 6 { starts } else { starts * LOADINGS.len() }
}

/// Measures each deploy on each server.
///
/// # Errors
/// The first error of a server or load. A server that refuses a deploy is not an error.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    results.add_header_line(
        "Durability of the loading Puts: SYNC_WAL (hflush) on both sides. Codec: KeyValueCodec, files uncompressed, except in \
         \"6\" (SNAPPY).",
    );
    results.add_header_line(&format!(
        "Equal memory: {} MiB for data blocks in each deploy (5 has none), and another {META_MIB} MiB for index and bloom blocks; \
         LruBlockCache is one cache of both, {} MiB.",
        context.plan.cache_mib,
        context.plan.cache_mib + META_MIB
    ));
    for variant in context.plan.servers.clone() {
        // The cache files of deploy 4, for this server only.
        let folder = tempfile::tempdir().map_err(|e| format!("a folder for the cache: {e}"))?;
        let mut deploys = deploys(context, folder.path());
        deploys.retain(|deploy| context.plan.deploys.contains(&deploy.number));
        for deploy in &deploys {
            match measure_one(context, variant, deploy, results) {
                Err(why) if why.contains("ended while starting") => {
                    results.add_header_line(&format!("{} refuses deploy {}.", variant.title(), deploy.title));
                    LOADINGS.iter().for_each(|(loading, ..)| {
                        results.refuses(&format!("{}-{loading}", deploy.name), variant);
                    });
                }
                other => other?,
            }
            let groups = deploys.iter().filter(|deploy| !deploy.is_of_compressed());
            let groups: Vec<_> = groups.map(|deploy| (deploy.name, deploy.title)).collect();
            results.charts_over("Deploys", &groups, &LOADINGS.map(|(loading, what, _)| (loading, what)));
            results.write(context)?;
        }
    }
    Ok(())
}

fn deploys(context: &ReportContext, folder: &Path) -> Vec<Deploy> {
    let (heap_mib, mib) = (context.plan.heap_mib as f64, context.plan.cache_mib.to_string());
    let share = |mib: u64| format!("{:.6}", mib as f64 / heap_mib);
    let file = |name: &str| folder.join(name).display().to_string();
    let deploy = |number, name, title, own: &[(&str, &str)]| {
        let mut own = settings(own);
        own.extend(settings(&[("hbase.regionserver.global.memstore.size", MEMSTORE_SHARE)]));
        Deploy { number, name, title, own }
    };
    let combined = |number, name, title, engine: &str, more: &[(&str, &str)]| {
        let engine = [
            ("hbase.bucketcache.ioengine", engine),
            ("hbase.bucketcache.size", &mib),
            ("hfile.block.cache.size", &share(META_MIB)),
        ];
        deploy(number, name, title, &[&engine, more].concat())
    };
    let packed = |on| [("hbase.block.data.cachecompressed", on)];
    let lru = share(context.plan.cache_mib + META_MIB);
    let files = format!("files:{},{}", file("files-1"), file("files-2"));
    let meta_only =
        [("hfile.block.cache.size", &*share(META_MIB)), ("hfile.block.cache.policy", "IndexOnlyLRU")];
    vec![
        deploy(1, "lru", "1, LruBlockCache", &[("hfile.block.cache.size", &*lru)]),
        combined(2, "offheap", "2, offheap", "offheap", &[]),
        combined(3, "heap", "3, heap", "heap", &[]),
        combined(4, "file", "4, file", &format!("file:{}", file("file")), &[]),
        combined(4, "files", "4, files (two)", &files, &[]),
        combined(4, "mmap", "4, mmap", &format!("mmap:{}", file("mmap")), &[]),
        deploy(5, "meta-only", "5, META blocks only", &meta_only),
        combined(6, "unpacked", "6, offheap, SNAPPY, kept unpacked", "offheap", &packed("false")),
        combined(6, "packed", "6, offheap, SNAPPY, kept compressed", "offheap", &packed("true")),
    ]
}

fn measure_one(
    context: &ReportContext,
    variant: ServerVariant,
    deploy: &Deploy,
    results: &mut Results,
) -> Result<(), String> {
    let session = context.start_as_set(variant, context.plan.cache_mib, &deploy.own)?;
    let cache_rows = (context.plan.cache_mib << 20) as f64 / VALUE_BYTES_MEAN;
    let cache_rows = if context.plan.short { 200.0 } else { cache_rows };
    let loadings = if deploy.is_of_compressed() { vec![MANY_MISSES] } else { LOADINGS.to_vec() };
    let rows = (cache_rows * loadings.last().map_or(0.0, |(.., part)| *part)) as i64;
    let codec = if deploy.is_of_compressed() { " --compress=SNAPPY" } else { "" };
    let table = format!("--table=Deploys --valueSize={VALUE_BYTES_MAX} --valueZipf --presplit=21{codec}");
    eprintln!("{}: deploy {}: loading {rows} rows", variant.title(), deploy.title);
    session.load(&format!("--rows={} {table} sequentialWrite 4", rows / 4))?;
    session.settle("Deploys")?;
    for loading in loadings {
        measure_loading(&session, deploy, loading, cache_rows, results)?;
    }
    Ok(())
}

fn measure_loading(
    session: &Session<'_>,
    deploy: &Deploy,
    (loading, what, part): Loading,
    cache_rows: f64,
    results: &mut Results,
) -> Result<(), String> {
    let line = format!("--table=Deploys --rows={} --oneCon randomRead 25", (cache_rows * part) as i64 / 25);
    let (row, title) = (format!("{}-{loading}", deploy.name), format!("deploy {}; {what}", deploy.title));
    match deploy.is_of_compressed() {
        true => hits::measure(session, results, &[(&row, title, line)]),
        false => session.measure(results, &row, &title, &line).map(drop),
    }
}
