//! Snapshots: what a table was at a moment, without copying its files.
//!
//! A snapshot names files; it keeps none. They stay where they are, and when the table is done with them they go to the
//! archive, where the cleaner leaves alone what a snapshot names ([`super::cleaner`]). A table made of a snapshot has links
//! to the files ([`super::links`]).
//!
//! | module | noun |
//! |---|---|
//! | [`store`] | snapshots on disk |

pub mod store;
