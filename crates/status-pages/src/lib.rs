//! The status pages of a server. On the info ports, they show operators the current activity of the
//! server, its activity in the last minutes, and the causes of its slow requests.
//!
//! HBase's paths work (`/rs-status`, `/master-status`), and `/` redirects to the one of its port.
//! Both ports have all pages. A process without a master ([`Sources::master`]) lacks those of the
//! master, in the menu as well.
//!
//! | module | contents |
//! |---|---|
//! | [`sources`] | [`Sources`]: the sources of the pages' numbers |
//! | [`history`] | [`History`]: the last minutes, in bounded memory |
//! | [`pages`] | the pages, one file each |
//! | [`layout`] | the frame of all pages; ordered tables |
//! | [`chart`] | charts as SVG |
//! | [`format`] | numbers with units |
//!
//! # Design
//! A page is a function of [`Sources`] and [`History`] to HTML. All of it is rendered here: charts
//! are SVG, and the order and search of a table are in the URL. The only script fetches the same
//! page again every second or so and replaces the parts that are marked as live. So there is no
//! second representation of the pages as JSON, no library in the browser and no build step, and the
//! pages work without the script.
//!
//! This crate is separate from the RegionServer, the master and the info server, because the info
//! server does not depend on regions or RPC, and the RegionServer does not depend on HTML.
//!
//! # Bounds
//! A page shows [`layout::TableView::ROWS`] rows of a table. Pages are rendered on the thread of
//! the info ports, from counters and under short locks; none reads a file or waits for a disk.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod chart;
pub mod format;
pub mod history;
pub mod layout;
pub mod pages;
pub mod sources;

pub use self::history::{History, Sampler};
pub use self::pages::StatusPages;
pub use self::sources::{
    IgnoredSetting, MasterProcedure, MasterTable, MasterView, MemoryPart, NamedWal, Sources,
};
