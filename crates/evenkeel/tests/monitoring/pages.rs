//! The status pages of a whole server, over HTTP: each answers, escapes text from clients, and
//! shows no secret.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use evenkeel_client::Put;
use evenkeel_common::config::defaults;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use regex::Regex;

use crate::common::{Server, TIMEOUT, block_on};

/// A row key that is HTML and a script.
const HOSTILE_ROW: &[u8] = b"\"><script>alert(1)</script><img src=x onerror=alert(2)>";

/// The pages, with a text that each shows.
const PAGES: [(&str, &str); 15] = [
    ("/rs-status", "RegionServer"),
    ("/master-status", "Servers"),
    ("/slow", "Where the time went"),
    ("/tables", "hbase:meta"),
    ("/regions", "Encoded name"),
    ("/heatmap", "Heat map"),
    ("/work", "In progress"),
    ("/memory", "system scanners"),
    ("/block-cache", "W-TinyLFU"),
    ("/wal", "Current file"),
    ("/rpc", "writes that wait"),
    ("/settings?q=rootdir", "hbase.rootdir"),
    ("/procedures", "CreateTableProcedure"),
    ("/threads?q=info", "answers these pages"),
    ("/metrics-list?q=regionCount", "regionCount"),
];

struct HttpResponse {
    status: u16,
    head: String,
    body: String,
}

fn get(server: &Server, key: &str, path: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port(key))).expect("the info port");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: h\r\n\r\n").expect("sent");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("a response");
    let text = String::from_utf8(text).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    HttpResponse { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn rs(server: &Server, path: &str) -> HttpResponse {
    get(server, "hbase.regionserver.info.port", path)
}

fn started() -> Server {
    Server::started(&[
        ("my.secret.password", "hunter2"),
        ("hbase.cluster.distributed", "true2"),
        ("evenkeel.slow.request.ms", "1"),
    ])
}

/// A table with a hostile row as a start key, and some rows.
async fn fill(server: &Server) {
    let connection = server.connect().await;
    let name: TableName = "pages".parse().expect("a name");
    let family = ColumnFamilyDescriptor::new(b"f").expect("a family");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[HOSTILE_ROW.to_vec().into()]).await.expect("created");
    let table = connection.table(name);
    for number in 0..200_u32 {
        let row = [HOSTILE_ROW, &number.to_be_bytes()].concat();
        table.put(Put::new(row).column(b"f", b"q", vec![7; 2_000])).await.expect("put");
    }
}

#[test]
fn every_page_answers_and_is_safe() {
    let server = started();
    block_on(fill(&server));
    for (path, text) in PAGES {
        for key in ["hbase.regionserver.info.port", "hbase.master.info.port"] {
            let response = get(&server, key, path);
            assert_eq!(response.status, 200, "{path}");
            assert!(response.body.contains(text), "{path} does not show {text:?}: {}", response.body);
            assert!(response.head.contains("content-security-policy: default-src 'none'"), "{path}");
            for unsafe_text in ["<script>alert", "<img src=x", "hunter2", " style=", " onerror=\""] {
                assert!(!response.body.contains(unsafe_text), "{path} shows {unsafe_text:?}");
            }
        }
    }
    let regions = rs(&server, "/regions?q=pages&sort=start");
    assert!(regions.body.contains("&lt;script&gt;alert(1)"), "the hostile row is text: {}", regions.body);
    assert!(rs(&server, "/settings?q=my.secret").body.contains("&lt;masked&gt;"));
    assert!(rs(&server, "/regions?q=%22%3E%3Cscript%3Ealert(1)").body.contains("&lt;script&gt;alert(1)"));
}

/// Tooltips of numbers that single items have: there are no metrics of a file, a connection or a
/// thread.
const OF_ITEMS: [&str; 16] = [
    "HBase's own tables",
    "bytes of replies that the client has not taken",
    "bytes of the file that can be cached",
    "bytes of the requests of these calls",
    "cached blocks of the file",
    "cached bytes of the file",
    "of a CPU, since the page was last rendered",
    "running calls",
    "the cached share of the file",
    "the cached share of these files",
    "the share of its store files that is in the block cache",
    "the share that stays unused when the cache is full: there are no size classes",
    "time from its submission until its end, or until now",
    "time since it began",
    "time since the file was written",
    "time since the last bytes arrived",
];

/// A number's tooltip names its metrics in `/jmx`, or the setting that it comes from.
#[test]
fn tooltips_name_metrics_and_settings() {
    let server = started();
    block_on(fill(&server));
    let keys = ["hbase.regionserver.info.port", "hbase.master.info.port"];
    let jmx = keys.map(|key| get(&server, key, "/jmx").body).concat();
    let number = Regex::new(r#"<span class="n" title="([^"]*)""#).expect("legal");
    let mut tooltips = BTreeSet::new();
    for (key, path) in keys.iter().flat_map(|key| PAGES.map(|(path, _)| (key, path))) {
        let body = get(&server, key, path).body;
        tooltips.extend(number.captures_iter(&body).map(|found| found[1].to_owned()));
    }
    let exists = |name: &str| jmx.contains(&format!("{name}\"")) || defaults::is_known(name);
    let is_named = |tooltip: &str| {
        let names = tooltip.split_once(": ").map_or(tooltip, |(names, _)| names);
        names.split([',', '/', '+']).all(|name| exists(name.trim()))
    };
    let (named, others): (Vec<_>, Vec<_>) = tooltips.iter().partition(|tooltip| is_named(tooltip));
    assert!(named.len() > 60, "{named:?}");
    let unknown: Vec<_> =
        others.into_iter().filter(|tooltip| !OF_ITEMS.contains(&tooltip.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_ports_lead_to_their_own_home() {
    let server = started();
    for (key, home) in
        [("hbase.regionserver.info.port", "/rs-status"), ("hbase.master.info.port", "/master-status")]
    {
        let root = get(&server, key, "/");
        assert!(root.status == 302 && root.head.contains(&format!("location: {home}")), "{}", root.head);
    }
    for path in ["/conf", "/dump", "/stacks", "/jmx", "/prometheus", "/logLevel?log=x", "/health"] {
        assert_eq!(rs(&server, path).status, 200, "{path}");
    }
}

#[test]
fn rows_sort_as_requested() {
    let server = started();
    block_on(fill(&server));
    let order = |query: &str| {
        let body = rs(&server, &format!("/tables?{query}")).body;
        let at = |name: &str| body.find(&format!(">{name}</a>")).unwrap_or_else(|| panic!("{name}: {body}"));
        (at("hbase:meta"), at("pages"))
    };
    let (meta, pages) = order("sort=table&order=asc");
    assert!(meta < pages);
    let (meta, pages) = order("sort=table&order=desc");
    assert!(pages < meta);
    let (meta, pages) = order("sort=memstore");
    assert!(pages < meta, "the greatest comes first");
    assert!(!rs(&server, "/tables?q=pages").body.contains(">hbase:meta</a>"));
}

#[test]
fn slow_requests_appear_as_json_and_as_a_page() {
    let server = started();
    block_on(fill(&server));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let json = rs(&server, "/slow.json");
        serde_json::from_str::<serde_json::Value>(&json.body).expect("JSON");
        let page = rs(&server, "/slow?q=pages");
        if page.body.contains("Mutate") {
            assert!(page.body.contains("&lt;script&gt;"), "the row is shown as text: {}", page.body);
            return;
        }
        assert!(Instant::now() < deadline, "no slow request: {}", json.body);
        std::thread::sleep(Duration::from_millis(50));
    }
}
