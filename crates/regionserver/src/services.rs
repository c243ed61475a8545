//! The RPC services of a RegionServer: calls are decoded and answered here, and this is where `rpc`
//! ends.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | ClientService, and the one place that decides on which threads a call runs |
//! | [`admin`] | AdminService |
//! | [`method_table`] | the calls of a service, one row each |
//! | [`registry`] | ClientMetaService, BootstrapNodeService |

pub mod admin;
pub mod client;
pub mod method_table;
pub mod registry;
