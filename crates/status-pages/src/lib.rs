//! The status pages of a server: what an operator opens on the info ports to see what it does now,
//! what it did in the last minutes, and what its slow requests waited for.
//!
//! HBase's paths answer (`/rs-status`, `/master-status`), and `/` leads to the one of its port.
//! Both ports have all pages.
//!
//! | module | contents |
//! |---|---|
//! | [`sources`] | [`Sources`]: where the pages have their numbers from |
//! | [`history`] | [`History`]: the last minutes, in bounded memory |
//! | [`pages`] | the pages, one file each |
//! | [`layout`] | what all pages have around their content; tables in order |
//! | [`chart`] | charts as SVG |
//! | [`format`] | numbers with units |
//!
//! # Design
//! A page is a function of [`Sources`] and [`History`] to HTML. All of it is rendered here: charts
//! are SVG, and the order and search of a table are in the address. The one script asks for the
//! same page again every second or so and exchanges the parts that are marked as live. So there is
//! no second description of the pages as JSON, no library in the browser and no build step, and
//! the pages can be read without the script.
//!
//! This is a room of its own between the RegionServer, the master and the info server, because the
//! info server knows no region and no RPC, and the RegionServer knows no HTML.
//!
//! # Bounds
//! A page shows [`layout::TableView::ROWS`] rows of a table. Pages are made on the thread of the
//! info ports, from counters and short locks; none reads a file or waits for a disk.

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
pub use self::sources::{IgnoredSetting, MemoryPart, NamedWal, Sources};
