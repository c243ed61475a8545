//! "Comparing BlockCache Deploys" again: five deploys by four loadings.
//!
//! Cells of 1 byte to 256 KiB (zipf), 21 regions, 25 clients that read at random among the first part of the table: half
//! of the cache, a little more than it, twice and a half of it, and all of the table. HBase's own settings go to both
//! servers; what a server refuses or passes over is said. Charts over all of it show throughput, latency, CPU, collections
//! and what was read from files.

use std::path::Path;

use super::output::Results;
use super::servers::{Kind, Lab, Settings, settings};

/// Bytes of the mean value at a largest one of 256 KiB, about.
const VALUE_BYTES_MEAN: f64 = 5_200.0;
const VALUE_BYTES_MAX: usize = 262_144;
/// Loadings: a name, and the part of the cache that is read.
const LOADINGS: [(&str, &str, f64); 4] = [
    ("cached", "all in cache", 0.5),
    ("few", "few misses", 1.2),
    ("many", "many misses", 2.5),
    ("mostly", "mostly misses", 4.0),
];

/// Measures each deploy on each server in turn.
///
/// # Errors
/// What failed, but for a server that refuses a deploy.
pub fn measure(lab: &Lab, results: &mut Results) -> Result<(), String> {
    results.say("Durability of the loading Puts: SYNC_WAL (hflush) on both sides. Codec: KeyValueCodec, files not compressed.");
    let chosen = |n: &usize| lab.plan.deploys.contains(n);
    for kind in lab.plan.servers.clone() {
        // The file of deploy 4, of this server alone.
        let folder = tempfile::tempdir().map_err(|e| format!("a folder for the cache: {e}"))?;
        let deploys = (1..).zip(deploys(lab, folder.path()));
        let deploys: Vec<_> = deploys.filter(|(n, _)| chosen(n)).map(|(_, deploy)| deploy).collect();
        for (name, title, own) in &deploys {
            match deploy(lab, kind, name, title, own, results) {
                Err(why) if why.contains("ended while starting") => {
                    results.say(&format!("{} refuses deploy {title}.", kind.title()));
                }
                other => other?,
            }
            let groups: Vec<_> = deploys.iter().map(|(name, title, _)| (*name, *title)).collect();
            results.charts_over("Deploys", &groups, &LOADINGS.map(|(loading, what, _)| (loading, what)));
            results.write(lab)?;
        }
    }
    Ok(())
}

fn deploys(lab: &Lab, folder: &Path) -> Vec<(&'static str, &'static str, Settings)> {
    let mib = lab.plan.cache_mib.to_string();
    let file = format!("file:{}", folder.join("bucket-cache").display());
    let with = |engine: &str| {
        settings(&[
            ("hbase.bucketcache.ioengine", engine),
            ("hbase.bucketcache.size", &mib),
            ("hfile.block.cache.size", "0.1"),
        ])
    };
    vec![
        (
            "lru",
            "1, LruBlockCache",
            // HBase starts only when the shares of cache and MemStores leave a fifth of the heap.
            settings(&[
                ("hfile.block.cache.size", "0.5"),
                ("hbase.regionserver.global.memstore.size", "0.25"),
            ]),
        ),
        ("offheap", "2, offheap", with("offheap")),
        ("heap", "3, heap", with("heap")),
        ("file", "4, file", with(&file)),
        (
            "meta-only",
            "5, META blocks only",
            settings(&[("hfile.block.cache.size", "0.1"), ("hfile.block.cache.policy", "IndexOnlyLRU")]),
        ),
    ]
}

fn deploy(
    lab: &Lab,
    kind: Kind,
    name: &str,
    title: &str,
    own: &Settings,
    results: &mut Results,
) -> Result<(), String> {
    let session = lab.start_as_set(kind, lab.plan.cache_mib, own)?;
    let cache_rows = (lab.plan.cache_mib << 20) as f64 / VALUE_BYTES_MEAN;
    let cache_rows = if lab.plan.short { 200.0 } else { cache_rows };
    let rows = (cache_rows * LOADINGS[3].2) as i64;
    let table = format!("--table=Deploys --valueSize={VALUE_BYTES_MAX} --valueZipf --presplit=21");
    eprintln!("{}: deploy {title}: loading {rows} rows", kind.title());
    session.load(&format!("--rows={} {table} sequentialWrite 4", rows / 4))?;
    session.settle("Deploys")?;
    for (loading, what, part) in LOADINGS {
        let line =
            format!("--table=Deploys --rows={} --oneCon randomRead 25", (cache_rows * part) as i64 / 25);
        let row = format!("{name}-{loading}");
        session.measure(results, &row, &format!("deploy {title}; {what}"), &line)?;
    }
    Ok(())
}
