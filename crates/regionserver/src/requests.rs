//! Client requests on regions, independent of sockets: requests are executed and tested here.
//!
//! | module | contents |
//! |---|---|
//! | [`caller`] | [`Caller`](caller::Caller): the client's abilities; [`Reply`](caller::Reply) |
//! | [`get`], [`mutate`], [`multi`] | reads and writes of rows |
//! | [`inline`] | what may run on a connection's thread, and where the rest runs |
//! | [`batch`] | [`ClientRunner`](batch::ClientRunner): runs the calls of a turn together |
//! | [`get_batch`] | [`GetBatch`](get_batch::GetBatch): single Gets read together |
//! | [`pending_reply`] | [`PendingReply`](pending_reply::PendingReply): the reply to a write |
//! | [`scan`], [`scanners`] | the scan protocol; open scanners and their leases |
//! | [`request_target`] | region, row and operation of a request, for metrics and the ledger |
//! | [`bulk_load`] | bulk load of HFiles that clients wrote |

pub mod batch;
pub mod bulk_load;
pub mod caller;
pub mod get;
pub mod get_batch;
pub mod inline;
pub mod multi;
pub mod mutate;
pub mod pending_reply;
pub mod request_target;
pub mod scan;
pub mod scanners;
