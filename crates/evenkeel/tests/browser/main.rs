//! The status pages in headless Chromium, under load. Each opens without an error in each look.
//! Numbers move, and tables sort. The heat map shows which region is hot, and the timeline shows a
//! fault of the disk.
//!
//! The tests need Chromium, so only the feature `browser` selects them:
//! `cargo test -p evenkeel --features browser --test browser`. Pictures of all pages are written to
//! `browser/` in the directory `tmp` of the build.

#[path = "../common/mod.rs"]
mod common;
mod devtools;
#[path = "../common/faulty_server.rs"]
mod faulty_server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_client::{Get, Put, Table};
use evenkeel_fs::{Fault, Latch, Op};
use tokio::task::JoinHandle;

use crate::devtools::Browser;
use crate::faulty_server::{FaultyServer, table_name};

/// The delay that a fault adds to requests.
const SLOW: Duration = Duration::from_millis(300);
/// The sizes of windows: of a screen, and of a phone.
const SIZES: [(&str, (u32, u32)); 2] = [("wide", (1280, 900)), ("narrow", (390, 844))];
const SCHEMES: [&str; 2] = ["light", "dark"];
const MENU: &str = "[...document.querySelectorAll('#menu a')].map(link => link.getAttribute('href'))";
/// The text at the pointer.
const TIP: &str = "document.getElementById('tip').innerText";

/// Starts a server whose table has four regions.
fn server() -> FaultyServer {
    FaultyServer::started(&[("evenkeel.slow.request.ms", "50")], &["b", "c", "d"])
}

fn address(server: &FaultyServer, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", server.info_port())
}

fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&folder).expect("a directory");
    folder
}

/// A client that writes and reads rows. It ends with the server's runtime.
struct Load(JoinHandle<()>);

impl Load {
    /// Starts it, for rows that begin with one of these letters.
    fn start(server: &FaultyServer, letters: &'static str) -> Self {
        let table: Table = server.table();
        Self(server.runtime.spawn(async move {
            for number in 0_u32.. {
                for letter in letters.chars() {
                    let row = format!("{letter}{:04}", number % 1000);
                    let put = Put::new(row.clone()).column("f", "q", vec![7; 100]);
                    table.put(put).await.expect("written");
                    table.get(Get::new(row)).await.expect("read");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }))
    }

    fn stop(self) {
        assert!(!self.0.is_finished(), "the load lasts until the end of the test");
        self.0.abort();
    }
}

/// Opens its latch when it is dropped, so that a test that fails does not wait.
struct OpenAtEnd(Latch);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn every_page_opens_without_an_error_in_each_look() {
    let server = server();
    let load = Load::start(&server, "abcd");
    let mut browser = Browser::start();
    let errors = browser.open(&address(&server, "/"));
    assert_eq!(errors, [""; 0]);
    let menu = browser.eval(MENU);
    let paths: Vec<String> = serde_json::from_value(menu).expect("a list");
    assert!(paths.len() >= 15, "{paths:?}");
    for path in &paths {
        // The form of HBase, for its scripts.
        let has_look = path != "/logLevel";
        let mut backgrounds = Vec::new();
        for (size_name, size) in SIZES {
            for scheme in SCHEMES {
                browser.look(size, scheme);
                let errors = browser.open(&address(&server, path));
                assert_eq!(errors, [""; 0], "{path}, {size_name}, {scheme}");
                let page = "document.documentElement";
                let beyond = browser.number(&format!("{page}.scrollWidth - {page}.clientWidth"));
                assert!(
                    beyond <= 0.0 || !has_look,
                    "{path}, {size_name}: {beyond} pixels are beyond the window"
                );
                backgrounds.push(browser.text("getComputedStyle(document.body).backgroundColor"));
                let name = format!("{}-{size_name}-{scheme}.png", path.trim_matches('/'));
                browser.screenshot(&pictures().join(name));
            }
        }
        assert!(backgrounds[0] != backgrounds[1] || !has_look, "{path}: the dark page is dark");
    }
    load.stop();
}

#[test]
fn numbers_move() {
    let server = server();
    let load = Load::start(&server, "abcd");
    let mut browser = Browser::start();
    // Only digits count: units and names stay the same.
    let numbers = "[...document.querySelectorAll('[data-live]')]\
        .map(part => part.innerText.replace(/[^0-9]/g, '')).join()";
    for path in ["/rs-status", "/rpc", "/tables", "/regions"] {
        browser.open(&address(&server, path));
        let before = browser.text(numbers);
        browser.until(path, |browser| browser.text(numbers) != before);
        assert_eq!(browser.text("document.getElementById('pulse').textContent"), "live", "{path}");
    }
    // A paused page stays as it is, but for a refresh that has begun.
    browser.click("[data-pause]");
    std::thread::sleep(Duration::from_secs(2));
    let before = browser.text(numbers);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(browser.text(numbers), before);
    browser.click("[data-pause]");
    browser.until("numbers of a page that is resumed", |browser| browser.text(numbers) != before);
    assert_eq!(browser.errors(), [""; 0]);
    load.stop();
}

#[test]
fn tables_sort_and_search_without_a_new_page() {
    let server = server();
    let mut browser = Browser::start();
    browser.open(&address(&server, "/tables"));
    // Lost if the page is loaded again.
    browser.eval("window.isSamePage = true");
    let names =
        "[...document.querySelectorAll('#rows tbody tr')].map(row => row.cells[0].innerText.trim()).join()";
    let order = "document.getElementById('sort-table').closest('th').getAttribute('aria-sort')";
    browser.click("#sort-regions");
    browser.until("an order by numbers", |browser| browser.eval(order).is_null());
    browser.click("#sort-table");
    browser.until("one order", |browser| browser.eval(order) == "ascending");
    let first = browser.text(names);
    assert!(first.starts_with("hbase:meta,") && first.ends_with(&format!(",{}", table_name())), "{first}");
    browser.click("#sort-table");
    browser.until("the other order", |browser| browser.eval(order) == "descending");
    let mut reversed: Vec<&str> = first.split(',').collect();
    reversed.reverse();
    assert_eq!(browser.text(names), reversed.join(","));

    browser.press("/");
    assert_eq!(browser.text("document.activeElement.type"), "search", "the key focuses the search");
    "meta".chars().for_each(|key| browser.press(&key.to_string()));
    browser.until("the search", |browser| browser.text(names) == "hbase:meta");
    assert_eq!(browser.eval("window.isSamePage"), true);
    browser.eval("document.activeElement.blur()");

    let theme = "getComputedStyle(document.body).backgroundColor";
    let before = browser.text(theme);
    browser.press("d");
    browser.until("the other theme", |browser| browser.text(theme) != before);
    browser.press("g");
    browser.press("h");
    browser.until("the keys of the heat map", |browser| browser.eval("location.pathname") == "/heatmap");
    assert_eq!(browser.errors(), [""; 0]);
}

/// Only rows of one region are requested.
#[test]
fn the_heat_map_shows_a_hot_region() {
    let server = server();
    let load = Load::start(&server, "c");
    let mut browser = Browser::start();
    browser.open(&address(&server, "/heatmap?table=t"));
    let hot = "#heat rect.h9[data-tip]";
    let exists = format!("!!document.querySelector({hot:?})");
    browser.until("a hot cell", |browser| browser.eval(&exists) == true);
    let others = "[...document.querySelectorAll('#heat rect[data-tip]')]\
        .filter(cell => !cell.dataset.tip.startsWith('t · c')).length";
    assert_eq!(browser.number(others), 0.0, "other regions have no requests");
    browser.until("the text of the hot region", |browser| {
        browser.point_at(hot);
        let tip = browser.text(TIP);
        tip.starts_with("t · c\nto d\n") && tip.contains("requests/s")
    });
    assert_eq!(browser.errors(), [""; 0]);
    browser.screenshot(&pictures().join("hot-region.png"));
    load.stop();
}

/// While a flush hangs, a sync of the log is slow: the request's dot is above the flush's bar.
#[test]
fn the_timeline_shows_a_slow_sync_during_a_flush() {
    let server = server();
    let table = server.table();
    server.put(&table, "a1".to_owned(), 100);
    let latch = OpenAtEnd(Latch::new());
    server.fs.inject(Fault::on(Op::Create, "/.tmp/").waits_for(&latch.0).always());
    let connection = server.runtime.block_on(server.connect());
    let regions = server.runtime.block_on(connection.admin().regions(&table_name())).expect("regions");
    let flushed = String::from_utf8(regions[0].region.name().to_vec()).expect("text");
    let flush = server.runtime.spawn(async move { connection.admin().flush_table(&table_name()).await });
    let mut browser = Browser::start();
    browser.open(&address(&server, "/slow"));
    // The process of this test has other servers, whose work is on the page, too.
    let bar = format!("#lanes rect.span[data-tip*='{flushed}']");
    let exists = format!("!!document.querySelector({bar:?})");
    browser.until("the flush", |browser| browser.eval(&exists) == true);
    server.fs.inject(Fault::on(Op::Flush, "/WALs/").delays(SLOW).times(1));
    server.put(&table, "b1".to_owned(), 100);
    let dots = "[...document.querySelectorAll('#timeline path.dot')]\
        .filter(dot => dot.dataset.tip.includes('\\nt,b,'))";
    browser.until("the slow request", |browser| browser.number(&format!("{dots}.length")) == 1.0);
    let tip = browser.text(&format!("{dots}[0].dataset.tip"));
    assert!(tip.contains("Mutate") && tip.to_lowercase().contains("sync"), "{tip}");
    let is_above = format!(
        "(() => {{ const bar = document.querySelector({bar:?}).getBoundingClientRect(); \
         const dot = {dots}[0].getBoundingClientRect(); \
         return bar.left <= dot.right && dot.left <= bar.right; }})()"
    );
    assert_eq!(browser.eval(&is_above), true, "the request is above the flush");
    browser.until("the bar's text", |browser| {
        browser.point_at(&bar);
        browser.text(TIP).starts_with(&format!("flush: {flushed}"))
    });
    assert_eq!(browser.errors(), [""; 0]);
    browser.screenshot(&pictures().join("slow-sync.png"));
    latch.0.open();
    server.runtime.block_on(flush).expect("ended").expect("flushed");
}
