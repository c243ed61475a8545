//! [`Frame`]: the parts that all pages have around their content, and their response.
//!
//! A part of a page that changes has the attribute `data-live` and an id. The script fetches the
//! page again every [`Frame::refresh_ms`], and replaces these parts by their new content. So
//! everything is rendered here, once, and a page without its script is complete but static. For the
//! same reason, order, search and page of a table are in the URL.
//!
//! # Injection
//! Names and row keys are bytes from clients. maud escapes all text and attributes; nothing here is
//! pre-escaped. As a second defence, the policy [`CONTENT_SECURITY_POLICY`] forbids every script
//! and style that is not one of the two files of this crate.

use evenkeel_info_server::{Request, Response};
use maud::{DOCTYPE, Markup, html};

/// Scripts, styles and requests of this server only; no inline code, no frames, no other forms.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page of the menu: its path, its name, and the key that opens it after `g`.
type MenuEntry = (&'static str, &'static str, char);

/// The pages in the order of the menu, by group.
const MENU: [(&str, &[MenuEntry]); 4] = [
    (
        "Now",
        &[
            ("/rs-status", "RegionServer", 'r'),
            ("/master-status", "Master", 'm'),
            ("/slow", "Slow requests", 's'),
        ],
    ),
    ("Data", &[("/tables", "Tables", 't'), ("/regions", "Regions", 'e'), ("/heatmap", "Heat map", 'h')]),
    (
        "Machinery",
        &[
            ("/work", "Background work", 'w'),
            ("/memory", "Memory", 'o'),
            ("/block-cache", "Block cache", 'b'),
            ("/wal", "Write-ahead logs", 'l'),
            ("/rpc", "RPC", 'c'),
            ("/procedures", "Procedures", 'p'),
        ],
    ),
    (
        "Process",
        &[
            ("/settings", "Settings", 'i'),
            ("/threads", "Threads", 'd'),
            ("/metrics-list", "Metrics", 'x'),
            ("/logLevel", "Log level", 'v'),
        ],
    ),
];

/// The parts around the content of a page.
pub struct Frame<'a> {
    /// The path, `/regions`.
    pub path: &'a str,
    /// The name of the page.
    pub title: &'a str,
    /// A description of the page in one sentence.
    pub about: &'a str,
    /// The server, `host,port,startcode`.
    pub server: &'a str,
    /// How often its live parts are refreshed, in milliseconds; 0 for never.
    pub refresh_ms: u32,
    /// Returns true if the process has the page of this path.
    pub has_page: &'a dyn Fn(&str) -> bool,
}

impl Frame<'_> {
    /// Renders the whole page.
    pub fn page(&self, content: &Markup) -> Response {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · " (self.server) " · Evenkeel" }
                    link rel="icon" href="/static/evenkeel.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/static/evenkeel.css";
                    script src="/static/evenkeel.js" defer {}
                }
                body data-refresh=(self.refresh_ms) {
                    a.skip href="#content" { "Skip to content" }
                    (self.header())
                    (self.menu())
                    main #content tabindex="-1" {
                        h1 { (self.title) }
                        p.about { (self.about) }
                        (content)
                    }
                    (footer())
                }
            }
        };
        html_response(page)
    }

    fn header(&self) -> Markup {
        html! {
            header.top {
                button.menu type="button" aria-controls="menu" aria-expanded="false" data-menu { "Menu" }
                a.brand href="/" { span.mark aria-hidden="true" {} "Evenkeel" }
                span.server title="The server: host, port, start code" { (self.server) }
                span.spacer {}
                span #pulse.pulse role="status" title="Whether the numbers of this page are up to date" { "static" }
                @if self.refresh_ms > 0 {
                    button type="button" data-pause title="Stops and resumes the refresh (key: space)" { "Pause" }
                }
                button type="button" data-theme-switch title="Light, dark, or as the system (key: d)" { "Theme" }
            }
        }
    }

    fn menu(&self) -> Markup {
        html! {
            nav #menu aria-label="Pages" {
                @for (group, pages) in MENU {
                    section {
                        h2 { (group) }
                        @for (path, name, key) in pages.iter().filter(|(path, ..)| (self.has_page)(path)) {
                            @let is_here = *path == self.path;
                            a href=(path) data-key=(key) aria-current=[is_here.then_some("page")]
                                title={ "Keys: g " (key) } { (name) }
                        }
                    }
                }
            }
        }
    }
}

fn footer() -> Markup {
    html! {
        footer {
            "For scripts: "
            @for (path, name) in [
                ("/jmx", "/jmx"), ("/prometheus", "/prometheus"), ("/slow.json", "/slow.json"), ("/conf", "/conf"),
                ("/dump", "/dump"), ("/health", "/health"), ("/ready", "/ready"),
            ] {
                a href=(path) { (name) } " "
            }
            span.keys { "Keys: " kbd { "g" } " and a letter for a page, " kbd { "/" } " to search, " kbd { "space" } " to pause." }
        }
    }
}

/// Creates the response of a page of HTML, with its policy.
pub fn html_response(page: Markup) -> Response {
    let mut response = Response::html(page.into_string());
    response.headers.push(("content-security-policy", CONTENT_SECURITY_POLICY.to_owned()));
    response.headers.push(("referrer-policy", "no-referrer".to_owned()));
    response
}

/// Renders a part of a page that is refreshed.
pub fn refreshed_part(id: &str, content: &Markup) -> Markup {
    html! { div id=(id) data-live { (content) } }
}

/// Renders a part of a page with a heading.
pub fn card(title: &str, hint: &str, content: &Markup) -> Markup {
    html! {
        section.card {
            @if !title.is_empty() { h2 { (title) @if !hint.is_empty() { " " small { (hint) } } } }
            (content)
        }
    }
}

/// Renders one large number, with its name above it.
pub fn tile(name: &str, value: &Markup, below: &Markup) -> Markup {
    html! { div.tile { span.name { (name) } span.value { (value) } span.below { (below) } } }
}

/// Renders how full something is.
pub fn bar(used: u64, limit: u64, name: &str) -> Markup {
    let level = if limit == 0 { 0.0 } else { used as f64 / limit as f64 };
    let class = match level {
        _ if limit == 0 => "bar none",
        level if level < 0.75 => "bar",
        level if level < 0.95 => "bar high",
        _ => "bar full",
    };
    html! { progress class=(class) max=(limit.max(1)) value=(used.min(limit.max(1))) aria-label=(name) { } }
}

/// The order, search and page of a table, as the URL has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableView {
    path: &'static str,
    /// The column's key.
    pub sort: String,
    /// True if the greatest comes first.
    pub descending: bool,
    /// The text that names must contain, in lower case.
    pub search: String,
    /// The index of the first row, a multiple of [`TableView::ROWS`].
    pub first: usize,
}

/// A column of a table that can be ordered.
pub struct Column {
    /// Its key in the URL.
    pub key: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its description, or the metric's name.
    pub tooltip: &'static str,
    /// True if it holds numbers: it is aligned right, and the greatest comes first.
    pub is_number: bool,
}

impl Column {
    /// Creates a column of text.
    pub const fn text(key: &'static str, name: &'static str, tooltip: &'static str) -> Self {
        Self { key, name, tooltip, is_number: false }
    }

    /// Creates a column of numbers.
    pub const fn number(key: &'static str, name: &'static str, tooltip: &'static str) -> Self {
        Self { key, name, tooltip, is_number: true }
    }
}

impl TableView {
    /// Rows per page: few enough for a browser to refresh and for the size of a response.
    pub const ROWS: usize = 200;

    /// Returns the view that a request selects; by default, ordered by the first column.
    pub fn of(request: &Request, path: &'static str, columns: &[Column]) -> Self {
        let asked = request.parameter("sort").and_then(|key| columns.iter().find(|column| column.key == key));
        let column = asked.or(columns.first());
        let descending = match request.parameter("order") {
            Some(order) => order == "desc",
            None => column.is_some_and(|column| column.is_number),
        };
        let page: usize = request.parameter("page").and_then(|page| page.parse().ok()).unwrap_or(0);
        Self {
            path,
            sort: column.map_or_else(String::new, |column| column.key.to_owned()),
            descending,
            search: request.parameter("q").unwrap_or_default().to_lowercase(),
            first: page.min(1 << 20) * Self::ROWS,
        }
    }

    /// Returns true if a row matches the search.
    pub fn matches(&self, names: &[&str]) -> bool {
        self.search.is_empty() || names.iter().any(|name| name.to_lowercase().contains(&self.search))
    }

    /// Sorts rows by a key, and keeps those of the page. Returns the number of all rows.
    pub fn sort_and_paginate<T, K: PartialOrd>(&self, rows: &mut Vec<T>, key: impl Fn(&T) -> K) -> usize {
        rows.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        if self.descending {
            rows.reverse();
        }
        let all = rows.len();
        rows.drain(..self.first.min(all));
        rows.truncate(Self::ROWS);
        all
    }

    fn address(&self, sort: &str, descending: bool, page: usize) -> String {
        let order = if descending { "desc" } else { "asc" };
        let mut address = format!("{}?sort={sort}&order={order}", self.path);
        if !self.search.is_empty() {
            address.push_str(&format!("&q={}", encoded(&self.search)));
        }
        if page > 0 {
            address.push_str(&format!("&page={page}"));
        }
        address
    }

    /// Renders the heads of the columns: links that change the order.
    pub fn heads(&self, columns: &[Column]) -> Markup {
        html! {
            tr {
                @for column in columns {
                    @let is_sorted = column.key == self.sort;
                    @let descends = if is_sorted { !self.descending } else { column.is_number };
                    @let order = is_sorted.then_some(if self.descending { "descending" } else { "ascending" });
                    th scope="col" class=[column.is_number.then_some("num")] aria-sort=[order] title=(column.tooltip) {
                        a id={ "sort-" (column.key) } href=(self.address(column.key, descends, 0)) data-swap { (column.name) }
                    }
                }
            }
        }
    }

    /// Renders the search field.
    pub fn search_form(&self, label: &str) -> Markup {
        html! {
            form.search role="search" action=(self.path) data-search {
                input type="search" name="q" value=(self.search) placeholder=(label) aria-label=(label) maxlength="200";
                input type="hidden" name="sort" value=(self.sort);
                input type="hidden" name="order" value=(if self.descending { "desc" } else { "asc" });
                button type="submit" { "Search" }
            }
        }
    }

    /// Renders the number of rows, and links to the other pages.
    pub fn pages(&self, all: usize, unit: &str) -> Markup {
        let (here, pages) = (self.first / Self::ROWS, all.div_ceil(Self::ROWS));
        let link = |page: usize, name: &str| {
            html! { a href=(self.address(&self.sort, self.descending, page)) data-swap { (name) } " " }
        };
        html! {
            p.pages {
                (all) " " (unit) " "
                @if pages > 1 { "· page " (here + 1) " of " (pages) " " }
                @if here > 0 { (link(here - 1, "previous")) }
                @if here + 1 < pages { (link(here + 1, "next")) }
            }
        }
    }
}

/// Encodes text as a parameter of a URL.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [Column::text("name", "Name", ""), Column::number("reads", "Reads", "")];

    fn view(query: &str) -> TableView {
        TableView::of(&Request::get("/x", query).expect("a request"), "/x", &COLUMNS)
    }

    #[test]
    fn the_query_selects_the_rows_shown() {
        let mut rows: Vec<u32> = (0..450).collect();
        let all = view("sort=reads&page=1").sort_and_paginate(&mut rows, |row| *row);
        assert_eq!((all, rows.len(), rows.first()), (450, 200, Some(&249)));
        let mut few = vec![3, 1, 2];
        view("").sort_and_paginate(&mut few, |row| *row);
        assert_eq!(few, [1, 2, 3]);
        assert_eq!(view("sort=nothing&page=99999999999999999999").sort, "name");
        assert!(view("page=4").sort_and_paginate(&mut few, |row| *row) == 3 && few.is_empty());
    }

    #[test]
    fn search_text_is_escaped() {
        let view = view("q=%22%3E%3Cscript%3E%26x");
        assert!(view.matches(&["a\"><SCRIPT>&xb"]) && !view.matches(&["script"]));
        let text = view.search_form("Search").into_string() + &view.heads(&COLUMNS).into_string();
        assert!(!text.contains("<script") && text.contains("q=%22%3E%3Cscript%3E%26x"), "{text}");
    }

    #[test]
    fn a_page_has_its_policy_and_nothing_inline() {
        let has_page = |path: &str| path != "/master-status";
        let frame = Frame {
            path: "/x",
            title: "<b>",
            about: "",
            server: "h,1,2",
            refresh_ms: 1000,
            has_page: &has_page,
        };
        let response = frame.page(&html! { (bar(1, 2, "half")) });
        let text = String::from_utf8(response.body.into_bytes()).expect("UTF-8");
        assert!(text.contains("<h1>&lt;b&gt;</h1>"), "{text}");
        assert!(text.contains("/rs-status") && !text.contains("/master-status"), "{text}");
        for inline in [" style=", " onclick=", "javascript:", "<style"] {
            assert!(!text.contains(inline), "{inline}: {text}");
        }
        let policy = response.headers.iter().find(|(name, _)| *name == "content-security-policy");
        assert!(policy.is_some_and(|(_, policy)| policy.contains("default-src 'none'")));
    }
}
