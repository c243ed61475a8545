//! Placeholder header, replaced by the crate's design.

pub mod zookeeper;
pub mod convert;
