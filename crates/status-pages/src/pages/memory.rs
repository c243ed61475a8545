//! `/memory`: each part of the memory with its limit, and the process as the kernel sees it.

use evenkeel_info_server::Request;
use evenkeel_info_server::platform;
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/memory",
    title: "Memory",
    about: "The memory budget: use and limit of each part.",
    refresh_ms: 1_000,
    content,
};

fn content(pages: &StatusPages, _: &Request) -> Markup {
    html! {
        (refreshed_part("now", &tiles(pages)))
        (card("Parts", "docs/operating/memory.md describes each", &refreshed_part("parts", &parts(pages))))
        (card("Unflushed cells", "", &refreshed_part("memstore", &memstore(pages))))
    }
}

fn tiles(pages: &StatusPages) -> Markup {
    let parts = (pages.sources.memory)();
    let (used, limit) = (parts.iter().map(|part| part.used).sum::<u64>(), pages.sources.memory_bytes_max);
    let (resident, machine) = (platform::resident_bytes(), platform::machine_bytes());
    html! {
        div.tiles {
            (tile("Parts together", &format::bytes(used).show("totalBytes", "memory used by all counted parts"),
                &html! { (bar(used, limit, "used")) " of " (format::bytes(limit).show("evenkeel.memory.size", "their limit, with the reserve")) }))
            (tile("Resident", &format::bytes(resident).show("MemHeapCommittedM", "memory of the process in RAM"),
                &html! { (bar(resident, machine, "of the machine")) " of the machine's " (format::bytes(machine).show("TotalPhysicalMemorySize", "memory of the machine")) }))
        }
    }
}

fn parts(pages: &StatusPages) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Part" } th scope="col" { "" } th.num scope="col" { "Used" } th.num scope="col" { "Limit" } th.num scope="col" { "Full" } } }
            tbody {
                @for part in (pages.sources.memory)() {
                    tr {
                        td { (part.name) }
                        td { (bar(part.used, part.limit, part.name)) }
                        td.num { (format::bytes(part.used).show(&format!("{}Bytes", part.metric), "bytes now")) }
                        td.num { (format::bytes(part.limit).show(&format!("{}BytesMax", part.metric), "the limit in bytes")) }
                        td.num { (format::share(part.used, part.limit).show(&format!("{0}Bytes / {0}BytesMax", part.metric), "use of the limit")) }
                    }
                }
            }
        } }
    }
}

fn memstore(pages: &StatusPages) -> Markup {
    let Some(server) = pages.sources.server() else { return html! {} };
    let regions = server.regions().all();
    let bytes: u64 = regions.iter().map(|region| region.memstore_bytes()).sum();
    let (low, limit) = (server.config().global_memstore_low_bytes, server.config().global_memstore_bytes);
    let throttle = server.background().write_throttle();
    let mut largest: Vec<_> = regions.iter().map(|region| (region.memstore_bytes(), region)).collect();
    largest.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    html! {
        dl.facts {
            dt { "Unflushed" } dd { (bar(bytes, limit, "unflushed")) " " (format::bytes(bytes).show("memStoreSize", "bytes of unflushed cells")) " of " (format::bytes(limit).show("hbase.regionserver.global.memstore.size", "above this, writes are refused")) }
            dt { "Flushes from" } dd { (format::bytes(low).show("hbase.regionserver.global.memstore.size.lower.limit", "above this, the largest regions are flushed")) }
            dt { "Replies held" } dd { (format::count(throttle.count(), "replies").show("heldReplyCount", "replies to writers that were delayed since start")) ", " (format::micros(throttle.total().as_secs_f64() * 1e6).show("updatesBlockedTime", "their total delay")) }
        }
        @if largest.first().is_some_and(|(bytes, _)| *bytes > 0) {
            div.scroll { table {
                thead { tr { th scope="col" { "The largest" } th.num scope="col" { "Unflushed" } } }
                tbody {
                    @for (bytes, region) in largest.into_iter().filter(|(bytes, _)| *bytes > 0).take(8) {
                        tr { td { (region.info().table()) " " code { (region.info().encoded_name()) } } td.num { (format::bytes(bytes).show("memStoreSize", "bytes of unflushed cells")) } }
                    }
                }
            } }
        }
    }
}
