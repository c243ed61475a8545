//! `/block-cache`: L1 and L2 as in HBase's tab: deploy, policy and sizes; hits by kind of block;
//! cached bytes by file and by age of the file.

use std::collections::BTreeMap;

use evenkeel_block_cache::bucket::Policy;
use evenkeel_block_cache::{BlockCategory, BucketCacheConfig, CacheStats, DataBlocks, Engine};
use evenkeel_info_server::Request;
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::history::cached::CachedFile;
use crate::layout::{Column, TableView, bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/block-cache",
    title: "Block cache",
    about: "Cached blocks of store files, in memory or in files, and cached rows: hits and contents of each level.",
    refresh_ms: 2_000,
    content,
};

/// The maximum fraction of a full cache's bytes that holds no block
/// (docs/operating/block-cache.md).
const SLOP: f64 = 0.03;

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let levels = pages.sources.server().map(|server| server.cache_levels()).unwrap_or_default();
    let names = ["L1", "L2"];
    html! {
        @if levels.is_empty() { p.empty { "There is no block cache: hfile.block.cache.size is 0." } }
        @for (name, level) in names.into_iter().zip(&levels) {
            (card(name, &deploy(pages, name), &html! {
                (refreshed_part(&format!("{name}-tiles"), &tiles(level)))
                div.columns {
                    (refreshed_part(&format!("{name}-hits"), &lookups(level)))
                    (settings(pages, name))
                }
            }))
        }
        (card("By age of the file", "updated every ten seconds while this page is open", &refreshed_part("ages", &by_age(pages))))
        (by_file(pages, request))
    }
}

fn config<'a>(pages: &'a StatusPages, level: &str) -> Option<&'a BucketCacheConfig> {
    let cache = &pages.sources.block_cache;
    match (level, &cache.data) {
        ("L1", _) => cache.l1.as_ref(),
        (_, DataBlocks::InL2(config)) => Some(config),
        _ => None,
    }
}

/// Describes the HBase deploy that it corresponds to.
fn deploy(pages: &StatusPages, level: &str) -> String {
    let blocks = match (level, &pages.sources.block_cache.data) {
        ("L1", DataBlocks::InL1) => "LruBlockCache: all blocks",
        ("L1", DataBlocks::InL2(_)) => "CombinedBlockCache: index and bloom blocks",
        ("L1", DataBlocks::NotCached) => "index and bloom blocks only; data blocks are not cached",
        _ => "BucketCache: data blocks",
    };
    let engine = match config(pages, level).map(|config| &config.engine) {
        None => String::new(),
        Some(Engine::Memory) => ", in memory".to_owned(),
        Some(Engine::Mapped(path)) => format!(", in the mapped file {}", path.display()),
        Some(Engine::Files(paths)) => format!(
            ", in {}",
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    };
    format!("{blocks}{engine}")
}

fn tiles(stats: &CacheStats) -> Markup {
    html! {
        div.tiles {
            (tile("Used", &format::bytes(stats.bytes).show("blockCacheSize", "bytes of blocks"),
                &html! { (bar(stats.bytes, stats.capacity_bytes, "used")) " of " (format::bytes(stats.capacity_bytes).show("blockCacheSize + blockCacheFreeSize", "the cache's capacity")) }))
            (tile("Hit ratio", &format::percent(stats.hit_percent() / 100.0).show("l1CacheHitRatio, l2CacheHitRatio", "lookups that found their block, since start"),
                &html! { (format::count(stats.hit_count(), "hits").show("blockCacheHitCount", "lookups that found their block")) }))
            (tile("Blocks", &format::count(stats.blocks - stats.rows.min(stats.blocks), "blocks").show("blockCacheCount", "cached blocks"),
                &html! { (format::count(stats.rows, "rows").show("rowCacheCount", "cached rows")) }))
            (tile("Evicted", &format::count(stats.evictions, "blocks").show("blockCacheEvictionCount", "blocks evicted for others"),
                &html! { (format::count(stats.failed_insertions, "refused").show("blockCacheFailedInsertionCount", "blocks that could not be inserted")) }))
            (tile("Row cache", &format::share(stats.row_hits, stats.row_hits + stats.row_misses).show("rowCacheHitCount, rowCacheMissCount", "Gets that found their row"),
                &html! { (format::bytes(stats.row_bytes).show("rowCacheSize", "bytes of cached rows")) }))
            (tile("Index", &format::bytes(stats.index_bytes).show("blockCacheIndexSize", "memory of slots, hash index and policy"),
                &html! { (format::count(stats.damaged, "damaged").show("blockCacheDamagedCount", "blocks of a cache file that failed verification and were dropped")) }))
        }
    }
}

fn lookups(stats: &CacheStats) -> Markup {
    let kinds = [
        ("data", "blockCacheDataHitCount", BlockCategory::Data),
        ("index", "blockCacheLeafIndexHitCount", BlockCategory::Index),
        ("bloom filter", "blockCacheBloomChunkHitCount", BlockCategory::Bloom),
        ("meta", "blockCacheMetaHitCount", BlockCategory::Meta),
    ];
    let of = |counts: &[u64], category: BlockCategory| counts.get(category as usize).copied().unwrap_or(0);
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Kind of block" } th.num scope="col" { "Hits" } th.num scope="col" { "Misses" } th.num scope="col" { "Ratio" } } }
            tbody {
                @for (name, metric, category) in kinds {
                    @let (hits, misses) = (of(&stats.hits, category), of(&stats.misses, category));
                    tr {
                        td { (name) }
                        td.num { (format::count(hits, "hits").show(metric, "lookups that found their block")) }
                        td.num { (format::count(misses, "misses").show(&metric.replace("Hit", "Miss"), "lookups that did not find their block")) }
                        td.num { (format::share(hits, hits + misses).show(metric, "lookups that found their block")) }
                    }
                }
            }
        } }
    }
}

fn settings(pages: &StatusPages, level: &str) -> Markup {
    let Some(config) = config(pages, level) else { return html! {} };
    let policy = match config.policy {
        Policy::TinyLfu => "W-TinyLFU: the blocks with the fewest recent requests leave first",
        Policy::Lru => "LRU: the least recently used block of the area that exceeds its share",
    };
    let shares = config.shares;
    html! {
        dl.facts {
            dt { "Policy" } dd title="hfile.block.cache.policy" { (policy) }
            dt { "Shares" } dd {
                (format::percent(shares.single).show("hbase.lru.blockcache.single.percentage", "for blocks requested once")) " once, "
                @if config.policy == Policy::Lru { (format::percent(shares.multi).show("hbase.lru.blockcache.multi.percentage", "for blocks requested more than once")) " more often, " }
                (format::percent(shares.memory).show("hbase.lru.blockcache.memory.percentage", "for blocks of IN_MEMORY families")) " in-memory families"
            }
            dt { "Largest block" } dd { (format::bytes(config.block_bytes_max).show("hbase.lru.max.block.size", "larger blocks are not cached")) }
            dt { "Slop" } dd { "at most " (format::percent(SLOP).show("", "the share that stays unused when the cache is full: there are no size classes")) }
            dt { "Restart" } dd { @match config.engine {
                Engine::Memory => "cold: the cache is in memory",
                _ => "warm, also after a kill: the cache is in files",
            } }
        }
    }
}

/// The age groups of files, in milliseconds.
const AGES: [(&str, i64); 6] = [
    ("up to a minute", 60_000),
    ("up to an hour", 3_600_000),
    ("up to a day", 86_400_000),
    ("up to a week", 604_800_000),
    ("up to a month", 2_592_000_000),
    ("older", i64::MAX),
];

fn by_age(pages: &StatusPages) -> Markup {
    let now_ms = pages.sources.now_ms();
    let look = pages.history.cached_files().read(now_ms);
    if look.at_ms == 0 {
        return html! { p.empty { "Scanning the cache; this takes a second or two." } };
    }
    let mut ages = BTreeMap::<usize, (u64, u64, u64)>::new();
    for file in &look.files {
        let age_ms = now_ms - file.written_ms;
        let at = AGES.iter().position(|(_, limit_ms)| age_ms <= *limit_ms).unwrap_or(AGES.len() - 1);
        let sum = ages.entry(at).or_default();
        *sum = (sum.0 + 1, sum.1 + file.cached_bytes, sum.2 + file.bytes);
    }
    html! {
        @if ages.is_empty() { p.empty { "There are no store files yet." } }
        dl.bars {
            @for (at, (files, cached, bytes)) in ages {
                dt { "Files " (AGES.get(at).map_or("", |(name, _)| name)) }
                dd {
                    (bar(cached, bytes, "cached"))
                    (format::share(cached, bytes).show("", "the cached share of these files"))
                    small { (format::bytes(cached).text()) " of " (format::bytes(bytes).text()) " in " (format::count(files, "files").text()) }
                }
            }
        }
    }
}

const COLUMNS: [Column; 7] = [
    Column::number("cached", "Cached", "Cached bytes of the file"),
    Column::number("part", "Part", "The cached share of the file"),
    Column::number("size", "Size", "Bytes of the file that can be cached"),
    Column::number("blocks", "Blocks", "Cached blocks of the file"),
    Column::text("table", "Table and family", "The table and the family of the file"),
    Column::text("file", "File", "Region and name of the file"),
    Column::number("age", "Age", "Time since the file was written"),
];

fn by_file(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let now_ms = pages.sources.now_ms();
    let look = pages.history.cached_files().read(now_ms);
    let mut files: Vec<&CachedFile> =
        look.files.iter().filter(|file| view.matches(&[&file.table, &file.region, &file.name])).collect();
    let part = |file: &&CachedFile| file.cached_bytes as f64 / file.bytes.max(1) as f64;
    let all = match view.sort.as_str() {
        "part" => view.sort_and_paginate(&mut files, part),
        "size" => view.sort_and_paginate(&mut files, |file| file.bytes),
        "blocks" => view.sort_and_paginate(&mut files, |file| file.blocks),
        "table" => view.sort_and_paginate(&mut files, |file| (file.table.clone(), file.family.clone())),
        "file" => view.sort_and_paginate(&mut files, |file| (file.region.clone(), file.name.clone())),
        "age" => view.sort_and_paginate(&mut files, |file| now_ms - file.written_ms),
        _ => view.sort_and_paginate(&mut files, |file| file.cached_bytes),
    };
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody {
                @for file in files {
                    tr {
                        td.num { (format::bytes(file.cached_bytes).show("", "cached bytes of the file")) }
                        td.num { (bar(file.cached_bytes, file.bytes, "cached")) " " (format::share(file.cached_bytes, file.bytes).show("", "the cached share of the file")) }
                        td.num { (format::bytes(file.bytes).show("", "bytes of the file that can be cached")) }
                        td.num { (format::count(file.blocks, "blocks").show("", "cached blocks of the file")) }
                        td { (file.table) " " small { (file.family) } }
                        td { code { (file.region) "/" (file.name) } }
                        td.num { (format::age(now_ms - file.written_ms).show("", "time since the file was written")) }
                    }
                }
            }
        } }
        (view.pages(all, "files"))
    };
    card("By file", "", &html! { (view.search_form("Table, region or file")) div #rows data-live { (body) } })
}
