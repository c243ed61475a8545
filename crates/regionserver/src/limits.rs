//! Limits on memory and files, and what happens on the way to them.
//!
//! | module | contents |
//! |---|---|
//! | [`memstore`] | unflushed bytes of the server, and the marks on the way to their limit |
//! | [`write_throttle`] | writers slow down before memory or files run out |

pub mod memstore;
pub mod write_throttle;
