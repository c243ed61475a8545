//! DataNodes excluded from new blocks.
//!
//! The NameNode keeps choosing a dead DataNode for minutes, until it notices the missing
//! heartbeats. Therefore a DataNode that refused a connection or broke a block is excluded for
//! [`EXCLUSION`], and so is one that acknowledged [`SLOW_ACKS`] packets slowly within
//! [`SLOW_WINDOW`]. One that stalled (`crate::stall`) is excluded for a shorter time, unless it has
//! been slow as often. At most [`EXCLUDED_MAX`] are excluded at a time; the list is cleared when
//! the NameNode finds no other DataNode. The attempts to create one block avoid more, if more fail:
//! `crate::log_writer`.

use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

use crate::block::output::SlowAck;
use crate::hadoop::hdfs::DatanodeInfoProto;
use crate::stall;

/// How long a DataNode stays excluded. A NameNode declares one dead after 10.5 minutes.
pub(crate) const EXCLUSION: Duration = Duration::from_secs(300);

/// The maximum of excluded DataNodes; the oldest entry is evicted first.
pub(crate) const EXCLUDED_MAX: usize = 3;

/// The number of slow acknowledgements after which a DataNode is excluded.
const SLOW_ACKS: usize = 3;

/// The window in which slow acknowledgements count.
const SLOW_WINDOW: Duration = Duration::from_secs(600);

/// Smaller packets are slow by time ([`SLOW_TIME`]), larger ones by throughput
/// ([`SLOW_BYTES_PER_SECOND`]).
const SPEED_BYTES_MIN: usize = 64 << 10;

/// A small packet is slow if it takes longer than this.
const SLOW_TIME: Duration = Duration::from_secs(6);

/// A large packet is slow below this throughput, in bytes per second.
const SLOW_BYTES_PER_SECOND: f64 = 20.0 * 1024.0;

/// The DataNodes that a client excludes.
#[derive(Debug, Default)]
pub(crate) struct ExcludedDataNodes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Excluded DataNodes with the end of their exclusion, oldest first.
    nodes: Vec<(DatanodeInfoProto, Instant)>,
    /// Slow acknowledgements with the id of the DataNode, oldest first.
    slow: Vec<(String, Instant)>,
}

impl ExcludedDataNodes {
    /// Excludes a DataNode for [`EXCLUSION`] from now.
    pub(crate) fn add(&self, node: &DatanodeInfoProto, why: &str) {
        self.add_for(node, EXCLUSION, why);
    }

    /// Excludes a DataNode that stalled: briefly, unless it is slow often.
    pub(crate) fn add_stalled(&self, node: &DatanodeInfoProto, why: &str) {
        let is_often = self.count_slow(&node.id.datanode_uuid) >= SLOW_ACKS;
        self.add_for(node, if is_often { EXCLUSION } else { stall::EXCLUSION }, why);
    }

    fn add_for(&self, node: &DatanodeInfoProto, exclusion: Duration, why: &str) {
        let mut inner = self.inner.lock();
        let is_node = |known: &DatanodeInfoProto| known.id.datanode_uuid == node.id.datanode_uuid;
        let known = inner.nodes.iter().find(|(known, _)| is_node(known)).map(|(_, until)| *until);
        let until = known.into_iter().fold(clock::monotonic() + exclusion, Instant::max);
        inner.nodes.retain(|(known, _)| !is_node(known));
        if inner.nodes.len() >= EXCLUDED_MAX {
            inner.nodes.remove(0);
        }
        inner.nodes.push((node.clone(), until));
        tracing::warn!(datanode = %node.id.ip_addr, port = node.id.xfer_port, why, "DataNode avoided");
    }

    /// Notes acknowledgements that came much later than those of other DataNodes.
    pub(crate) fn record_slow_acks(&self, locations: &[DatanodeInfoProto], acks: &[SlowAck]) {
        for ack in acks.iter().filter(|ack| is_slow(ack)) {
            let Some(node) = locations.get(ack.location) else { continue };
            if self.count_slow(&node.id.datanode_uuid) >= SLOW_ACKS {
                self.add(node, "slow acknowledgements");
            }
        }
    }

    fn count_slow(&self, id: &str) -> usize {
        let now = clock::monotonic();
        let slow = &mut self.inner.lock().slow;
        slow.retain(|(_, at)| now.duration_since(*at) < SLOW_WINDOW);
        slow.push((id.to_owned(), now));
        slow.iter().filter(|(other, _)| other == id).count()
    }

    /// Returns the DataNodes excluded at present.
    pub(crate) fn list(&self) -> Vec<DatanodeInfoProto> {
        let now = clock::monotonic();
        let mut inner = self.inner.lock();
        inner.nodes.retain(|(_, until)| *until > now);
        inner.nodes.iter().map(|(node, _)| node.clone()).collect()
    }

    /// Clears the list, because the NameNode found no other DataNode.
    pub(crate) fn clear(&self) {
        self.inner.lock().nodes.clear();
    }
}

fn is_slow(ack: &SlowAck) -> bool {
    if ack.bytes < SPEED_BYTES_MIN {
        return ack.took > SLOW_TIME;
    }
    #[allow(clippy::cast_precision_loss, reason = "a speed")]
    let bytes = ack.bytes as f64;
    bytes / ack.took.as_secs_f64().max(1e-9) < SLOW_BYTES_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hadoop::hdfs::DatanodeIdProto;

    fn node(name: &str) -> DatanodeInfoProto {
        let id = DatanodeIdProto { datanode_uuid: name.into(), ..Default::default() };
        DatanodeInfoProto { id, ..Default::default() }
    }

    fn names(excluded: &ExcludedDataNodes) -> Vec<String> {
        excluded.list().into_iter().map(|node| node.id.datanode_uuid).collect()
    }

    #[test]
    fn the_oldest_exclusion_is_dropped_when_full() {
        let excluded = ExcludedDataNodes::default();
        ["a", "b", "c", "a", "d"].iter().for_each(|name| excluded.add(&node(name), "test"));
        assert_eq!(names(&excluded), ["c", "a", "d"]);
        excluded.clear();
        assert!(names(&excluded).is_empty());
    }

    #[test]
    fn a_datanode_that_stalls_often_is_excluded_for_long() {
        let excluded = ExcludedDataNodes::default();
        let left = || {
            let inner = excluded.inner.lock();
            inner.nodes.first().map(|(_, until)| until.duration_since(clock::monotonic()))
        };
        for stalls in 1..=SLOW_ACKS {
            excluded.add_stalled(&node("a"), "test");
            let is_short = left().is_some_and(|left| left <= stall::EXCLUSION);
            assert_eq!(is_short, stalls < SLOW_ACKS, "{stalls}: {:?}", left());
        }
    }

    #[test]
    fn three_slow_acknowledgements_exclude() {
        let excluded = ExcludedDataNodes::default();
        let locations = [node("a"), node("b")];
        let ack = |took, bytes| SlowAck { location: 1, took, bytes };
        let slow = ack(Duration::from_secs(7), 100);
        excluded
            .record_slow_acks(&locations, &[slow.clone(), slow.clone(), ack(Duration::from_secs(5), 100)]);
        excluded.record_slow_acks(&locations, &[ack(Duration::from_secs(1), 1 << 20)]);
        assert!(names(&excluded).is_empty());
        excluded.record_slow_acks(&locations, &[ack(Duration::from_secs(60), 1 << 20)]);
        assert_eq!(names(&excluded), ["b"]);
    }
}
