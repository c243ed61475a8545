//! [`ReplicaSender`]: the interface to the sender of a default replica's events to secondary
//! replicas on other servers. In a cluster the process sets one
//! ([`ServerHooks`](crate::ServerHooks)).
//!
//! The reader of a stream ([`ReplicaStream`](evenkeel_region::region::ReplicaStream)) passes every
//! event to it, in order, before it replays the event on secondary replicas of this server.

use std::sync::Arc;

use evenkeel_region::region::{Region, ReplicaEvent};

/// The secondary replicas of a region on other servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicasElsewhere {
    /// True if one reads the stream.
    pub read: bool,
    /// True if one lacks edits: a flush of all stores must begin, or one that runs must succeed.
    pub wait: bool,
    /// True if no flush has begun, or was requested, since one of these was opened.
    pub is_first: bool,
}

/// See the module's documentation.
pub trait ReplicaSender: Send + Sync {
    /// Returns what is known about the secondary replicas of a default replica. Does not wait.
    fn replicas_elsewhere(&self, region: &Arc<Region>) -> ReplicasElsewhere;

    /// Takes the next event of a default replica's stream. Does not wait.
    fn take_event(&self, region: &Arc<Region>, event: &ReplicaEvent);

    /// A flush of all stores was requested for the replicas that wait for one.
    fn flush_requested(&self, region: &Arc<Region>);

    /// Events may be missing: no edit is sent until a flush of all stores begins.
    fn lose_events(&self, region: &Arc<Region>);
}
