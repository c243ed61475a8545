//! The RPC services of a RegionServer: calls are decoded and answered here, and this is where `rpc`
//! ends.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | ClientService, and the one place that decides on which threads a call runs |
//! | [`admin`] | AdminService |
//! | [`registry`] | ClientMetaService, BootstrapNodeService |

pub mod admin;
pub mod client;
pub mod registry;
