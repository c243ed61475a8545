//! [`StatusPages`]: the pages, and their static files.
//!
//! | module | path |
//! |---|---|
//! | `block_cache` | `/block-cache` |
//! | `dump` | `/dump` |
//! | `flushes_and_compactions` | `/work` |
//! | `heatmap` | `/heatmap` |
//! | `master` | `/master-status` |
//! | `memory` | `/memory` |
//! | `metrics` | `/metrics-list` |
//! | `overview` | `/rs-status` |
//! | `procedures` | `/procedures` |
//! | `regions` | `/regions` |
//! | `rpc` | `/rpc` |
//! | `settings` | `/settings` |
//! | `slow`, `timeline` | `/slow` |
//! | `tables` | `/tables` |
//! | `tasks` | `/rs-status?format=json` |
//! | `threads` | `/threads` |
//! | `wal` | `/wal` |

mod block_cache;
mod dump;
mod flushes_and_compactions;
mod heatmap;
mod master;
mod memory;
mod metrics;
mod overview;
mod procedures;
mod regions;
mod rpc;
mod settings;
mod slow;
mod tables;
mod tasks;
mod threads;
mod timeline;
mod wal;

use std::sync::Arc;

use evenkeel_info_server::{Page, Request, Response, Routes};
use maud::Markup;

use self::threads::LastTimes;
use crate::history::History;
use crate::layout::Frame;
use crate::sources::Sources;

const STYLE: &str = include_str!("assets/evenkeel.css");
const SCRIPT: &str = include_str!("assets/evenkeel.js");
const ICON: &str = include_str!("assets/evenkeel.svg");

/// The pages, with the data that they are rendered from.
#[derive(Clone)]
pub struct StatusPages {
    sources: Arc<Sources>,
    history: Arc<History>,
    thread_times: Arc<LastTimes>,
}

/// A page: its name, its description, its refresh interval, and its content.
struct Description {
    path: &'static str,
    title: &'static str,
    about: &'static str,
    refresh_ms: u32,
    content: fn(&StatusPages, &Request) -> Markup,
}

const PAGES: &[Description] = &[
    overview::PAGE,
    master::PAGE,
    slow::PAGE,
    tables::PAGE,
    regions::PAGE,
    heatmap::PAGE,
    flushes_and_compactions::PAGE,
    memory::PAGE,
    block_cache::PAGE,
    wal::PAGE,
    rpc::PAGE,
    procedures::PAGE,
    settings::PAGE,
    threads::PAGE,
    metrics::PAGE,
];

/// The pages of a process with a master.
const PATHS_OF_MASTER: [&str; 2] = [master::PAGE.path, procedures::PAGE.path];

impl StatusPages {
    /// Creates the pages of the current numbers and of the last minutes.
    pub fn new(sources: Arc<Sources>, history: Arc<History>) -> Self {
        Self { sources, history, thread_times: Arc::default() }
    }

    /// Returns true unless this is a page of the master, and the process has none.
    fn has_page(&self, path: &str) -> bool {
        self.sources.master.is_some() || !PATHS_OF_MASTER.contains(&path)
    }

    /// Adds the pages to others.
    pub fn add_to(&self, routes: Routes) -> Routes {
        let with_page = |routes: Routes, page: &'static Description| {
            let pages = self.clone();
            let respond = move |request: &Request| pages.respond(page, request);
            routes.page(page.path, Arc::new(respond))
        };
        let routes = PAGES.iter().filter(|page| self.has_page(page.path)).fold(routes, with_page);
        let dump = self.clone();
        routes
            .page(dump::PATH, Arc::new(move |request: &Request| dump::respond(&dump, request)))
            .page("/static/evenkeel.css", file("text/css;charset=utf-8", STYLE))
            .page("/static/evenkeel.js", file("text/javascript;charset=utf-8", SCRIPT))
            .page("/static/evenkeel.svg", file("image/svg+xml", ICON))
            // Browsers request it for pages that name no icon, such as /logLevel.
            .page("/favicon.ico", file("image/svg+xml", ICON))
    }

    fn respond(&self, page: &Description, request: &Request) -> Response {
        if request.parameter("format") == Some("json") && page.path == overview::PAGE.path {
            return tasks::respond(self, request.parameter("filter").unwrap_or_default());
        }
        let frame = Frame {
            path: page.path,
            title: page.title,
            about: page.about,
            server: &self.sources.server_name,
            refresh_ms: page.refresh_ms,
            has_page: &|path| self.has_page(path),
        };
        frame.page(&(page.content)(self, request))
    }
}

fn file(content_type: &'static str, content: &'static str) -> Arc<dyn Page> {
    Arc::new(move |_: &Request| Response::ok(content_type, content))
}
