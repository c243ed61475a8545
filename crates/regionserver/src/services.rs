//! The RPC services of a RegionServer: they decode and answer calls, and are the boundary to `rpc`.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | ClientService; it alone decides on which threads a call runs |
//! | [`admin`] | AdminService |
//! | [`method_table`] | the table of a service's calls |
//! | [`registry`] | ClientMetaService, BootstrapNodeService |

pub mod admin;
pub mod client;
pub mod method_table;
pub mod registry;
