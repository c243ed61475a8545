//! Limits on memory and files, and how the server slows writers down before they reach them.
//!
//! | module | contents |
//! |---|---|
//! | [`memstore`] | unflushed bytes of the server, and the watermarks below their limit |
//! | [`write_throttle`] | slows writers down before memory or files run out |

pub mod memstore;
pub mod write_throttle;
