//! `/master-status`: tables, servers and the activities of the cluster.

use evenkeel_info_server::Request;
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{card, refreshed_part, tile};
use crate::sources::MasterView;

pub(super) const PAGE: Description = Description {
    path: "/master-status",
    title: "Master",
    about: "The cluster: its servers, tables and changes.",
    refresh_ms: 2_000,
    content,
};

fn content(pages: &StatusPages, _: &Request) -> Markup {
    let Some(master) = &pages.sources.master else {
        return html! { p.empty { "This process has no master." } };
    };
    let now_ms = pages.sources.now_ms();
    html! {
        (refreshed_part("now", &tiles(pages, &**master)))
        (card("Servers", "", &refreshed_part("servers", &servers(pages))))
        (card("Tables", "user tables", &refreshed_part("tables", &tables(pages, &**master))))
        (card("This master", "", &html! {
            dl.facts {
                dt { "Version" } dd { "Evenkeel " (env!("CARGO_PKG_VERSION")) ", as HBase " (evenkeel_regionserver::HBASE_VERSION) }
                dt { "Cluster" } dd { code { (pages.sources.cluster_id) } }
                dt { "ZooKeeper" } dd { code { (pages.sources.zookeeper_quorum) } }
                dt { "Active since" } dd { (format::moment(master.started_ms())) " UTC, " (format::age(now_ms - master.started_ms()).show("masterActiveTime", "time since the master became active")) " ago" }
            }
        }))
    }
}

fn tiles(pages: &StatusPages, master: &dyn MasterView) -> Markup {
    let tables = master.tables();
    let users = tables.iter().filter(|table| !table.descriptor.name().is_system()).count();
    let regions = pages.sources.server().map_or(0, |server| server.regions().len());
    let last = pages.history.last();
    html! {
        div.tiles {
            (tile("Servers", &format::count(1, "live").show("numRegionServers", "live RegionServers"),
                &html! { (format::count(0, "dead").show("numDeadRegionServers", "dead RegionServers")) }))
            (tile("Tables", &format::count(users as u64, "tables").show("numTables", "user tables"),
                &html! { (format::count((tables.len() - users) as u64, "of the system").show("", "HBase's own tables")) }))
            (tile("Regions", &format::count(regions as u64, "regions").show("averageLoad", "regions served"), &html! { a href="/regions" { "regions" } }))
            (tile("Requests", &format::rate(last.total(), "requests/s").show("clusterRequests", "requests in the last second"), &html! { a href="/rs-status" { "latency" } }))
        }
    }
}

fn servers(pages: &StatusPages) -> Markup {
    let last = pages.history.last();
    let server = pages.sources.server();
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Server" } th scope="col" { "Started" } th.num scope="col" { "Regions" } th.num scope="col" { "Requests" } th.num scope="col" { "Memory" } } }
            tbody { tr {
                td { a href="/rs-status" { code { (pages.sources.server_name) } } }
                td { (format::moment(pages.sources.started_ms)) }
                td.num { (format::count(server.map_or(0, |server| server.regions().len() as u64), "regions").show("regionCount", "regions served there")) }
                td.num { (format::rate(last.total(), "/s").show("totalRequestCount", "requests in the last second")) }
                td.num { (format::bytes((pages.sources.memory)().iter().map(|part| part.used).sum()).show("totalBytes", "memory used by all counted parts")) }
            } }
        } }
    }
}

fn tables(pages: &StatusPages, master: &dyn MasterView) -> Markup {
    let tables = master.tables();
    let users: Vec<_> = tables.iter().filter(|table| !table.descriptor.name().is_system()).collect();
    let shown = 100;
    html! {
        @if users.is_empty() { p.empty { "There are no tables yet." } }
        @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Table" } th scope="col" { "State" } th.num scope="col" { "Regions" } th scope="col" { "Families" } } }
                tbody {
                    @for table in users.iter().take(shown) {
                        @let name = table.descriptor.name();
                        tr {
                            td { a href={ "/regions?q=" (crate::layout::encoded(&name.to_string())) } { (name) } }
                            td { (table.state) }
                            td.num { (format::count(pages.sources.server().map_or(0, |server| server.regions().of_table(name).len() as u64), "regions").show("regionCount", "regions served")) }
                            td { @for family in table.descriptor.families() { code { (family.name_text()) } " " } }
                        }
                    }
                }
            } }
            @if users.len() > shown { p { a href="/tables" { "All " (users.len()) " tables" } } }
        }
    }
}
