//! Short-circuit reads (`dfs.client.read.shortcircuit`): a replica on this machine is read through
//! the DataNode's own files.
//!
//! The DataNode passes the descriptors of the data file and of the checksums over a UNIX domain
//! socket (`dfs.domain.socket.path`). They are kept for further reads, and stay readable after the
//! DataNode has deleted the replica. Only finished blocks are read like this.
//!
//! **Every refusal leads to an ordinary read**, without an error:
//!
//! * No socket, a closed or silent one, garbage, or a DataNode that passes no descriptors: the
//!   socket is not tried for `dfs.domain.socket.disable.interval.seconds`.
//! * A DataNode that passes no descriptors of a block, or unusable ones; a socket whose queue stays
//!   full; files that cannot be read: the block is not tried for [`BLOCK_REFUSED_FOR`].
//! * An access token that is not accepted: the ordinary read gets new locations, and the next read
//!   tries again.
//!
//! If a checksum does not match, the block is not tried for that time either, and its local
//! DataNode is asked last for it. Other blocks of the DataNode are read as before.
//!
//! Memory and descriptors: `dfs.client.read.shortcircuit.streams.cache.size` limits the blocks
//! whose two descriptors are kept, and so does the process's limit of open files, of which they get
//! a quarter at most. Each read in progress may hold one block more, and up to [`REMOVED_MAX`]
//! blocks wait for being closed. Descriptors are closed when they were not used for
//! `...streams.cache.expiry.ms`, and when they are older than
//! `dfs.client.read.short.circuit.replica.stale.threshold.ms`. This client uses no shared memory,
//! by which a DataNode would tell that it has deleted a replica.
//!
//! The thread `hdfs-close` closes the files: the last close of a large deleted file takes time. A
//! removed replica stays in a list until no read holds it any more, so that a read never closes
//! one. A thread that adds a replica to a full list closes some itself.
//!
//! A read through the files has no deadline, and no hedged read replaces it: it waits for the local
//! disk like any read of a local file.
//!
//! | module | contents |
//! |---|---|
//! | `descriptors` | the request for descriptors |
//! | `own_addresses` | the addresses of this machine |
//! | `replica` | reads of the two files, and the comparison with the checksums |
//! | `replicas` | the replicas whose files are open, and the blocks that were refused |

mod descriptors;
mod own_addresses;
pub(crate) mod replica;
mod replicas;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use self::descriptors::{Refusal, Timeouts};
use self::own_addresses::OwnAddresses;
use self::replica::LocalReplica;
use self::replicas::{BLOCK_REFUSED_FOR, Known, Limits, Replicas};
use crate::Settings;
use crate::block::located::block_name;
use crate::client::Shared;
use crate::hadoop::hdfs::{DatanodeIdProto, ExtendedBlockProto, LocatedBlockProto};

/// The longest time for which a socket is not tried; a longer one could not be added to a time.
const PATH_DISABLED_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The period of the thread that closes files.
const CLOSE_TICK: Duration = Duration::from_millis(100);

/// The maximum of removed replicas that wait for the closing thread.
const REMOVED_MAX: usize = 256;

/// The maximum of expired replicas that are removed under one lock.
const EXPIRED_AT_ONCE: usize = 64;

/// The settings of short-circuit reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortCircuitSettings {
    /// `dfs.domain.socket.path`: the path of a DataNode's socket; `_PORT` in it stands for the port
    /// of its data transfer.
    pub socket_path: String,
    /// `dfs.client.read.shortcircuit.streams.cache.size`: the maximum of blocks whose descriptors
    /// are kept.
    pub replicas_max: usize,
    /// `dfs.client.read.shortcircuit.streams.cache.expiry.ms`: how long unused ones are kept.
    pub unused_for: Duration,
    /// `dfs.client.read.short.circuit.replica.stale.threshold.ms`: how long they are used at most.
    pub stale_after: Duration,
    /// `dfs.domain.socket.disable.interval.seconds`: how long a socket that failed is not tried.
    pub path_disabled_for: Duration,
}

impl ShortCircuitSettings {
    /// Returns the defaults for a socket at this path.
    pub fn at(socket_path: impl Into<String>) -> Self {
        Self {
            socket_path: socket_path.into(),
            replicas_max: 256,
            unused_for: Duration::from_secs(300),
            stale_after: Duration::from_secs(1800),
            path_disabled_for: Duration::from_secs(600),
        }
    }
}

/// The local replicas of a client.
#[derive(Debug)]
pub(crate) struct ShortCircuit {
    settings: Option<ShortCircuitSettings>,
    timeouts: Timeouts,
    /// Sockets that are not tried until then.
    disabled: Mutex<HashMap<String, Instant>>,
    addresses: OwnAddresses,
    replicas: Mutex<Replicas>,
    /// Replicas that were removed from `replicas`, until no read holds them.
    removed: Mutex<Vec<Arc<LocalReplica>>>,
}

impl ShortCircuit {
    pub(crate) fn new(settings: &Settings) -> Self {
        let limits = settings.short_circuit.as_ref().map_or(
            Limits { replicas_max: 0, unused_for: Duration::ZERO, stale_after: Duration::ZERO },
            |settings| Limits {
                replicas_max: possible_replicas(settings.replicas_max, getrlimit(Resource::Nofile).maximum),
                unused_for: settings.unused_for,
                stale_after: settings.stale_after,
            },
        );
        Self {
            settings: settings.short_circuit.clone(),
            timeouts: Timeouts::of(settings),
            disabled: Mutex::default(),
            addresses: OwnAddresses::default(),
            replicas: Mutex::new(Replicas::new(limits)),
            removed: Mutex::default(),
        }
    }

    /// Returns a DataNode's replica of a finished block if it is on this machine and the DataNode
    /// passes its files; `None` means that an ordinary read is needed.
    pub(crate) fn replica(
        &self,
        block: &LocatedBlockProto,
        node: &DatanodeIdProto,
    ) -> Option<Arc<LocalReplica>> {
        let settings = self.settings.as_ref()?;
        if !self.is_local(node) {
            return None;
        }
        match self.replicas.lock().get(&block.b, clock::monotonic()) {
            Some(Known::Replica(replica)) => return Some(replica),
            Some(Known::Refused) => return None,
            None => {}
        }
        let path = settings.socket_path.replace("_PORT", &node.xfer_port.to_string());
        if self.is_disabled(&path) {
            return None;
        }
        match descriptors::request(&path, block, self.timeouts) {
            Ok(replica) => {
                let replica = Arc::new(replica);
                let inserted = Arc::clone(&replica);
                let removed = self.replicas.lock().insert(&block.b, inserted, clock::monotonic());
                self.close_later(removed);
                Some(replica)
            }
            Err(refusal) => {
                self.refused(&block.b, settings, path, refusal);
                None
            }
        }
    }

    /// Returns true if replicas may be read through their files.
    pub(crate) fn is_on(&self) -> bool {
        self.settings.is_some()
    }

    /// Returns the replica of a block whose descriptors are already here.
    pub(crate) fn kept(&self, block: &ExtendedBlockProto) -> Option<Arc<LocalReplica>> {
        self.settings.as_ref()?;
        match self.replicas.lock().get(block, clock::monotonic())? {
            Known::Replica(replica) => Some(replica),
            Known::Refused => None,
        }
    }

    /// Gives up the files of a block for [`BLOCK_REFUSED_FOR`], because they could not be read, or
    /// because bytes of the replica on the DataNode `damaged` do not match their checksums.
    pub(crate) fn refuse(&self, block: &ExtendedBlockProto, damaged: Option<&DatanodeIdProto>) {
        let damaged = damaged.map(|node| node.datanode_uuid.clone());
        let removed = self.replicas.lock().refuse(block, damaged, clock::monotonic());
        self.close_later(removed);
    }

    /// Returns the UUID of the DataNode on this machine whose replica of a block is damaged, if
    /// that is known.
    pub(crate) fn damaged_datanode(&self, block: &ExtendedBlockProto) -> Option<String> {
        self.settings.as_ref()?;
        self.replicas.lock().damaged_datanode(block, clock::monotonic()).map(str::to_owned)
    }

    /// Removes the replicas that are too old, and closes the removed ones.
    pub(crate) fn close_expired(&self) {
        let now = clock::monotonic();
        loop {
            let expired = self.replicas.lock().remove_expired(EXPIRED_AT_ONCE, now);
            let is_last = expired.len() < EXPIRED_AT_ONCE;
            self.close_later(expired);
            if is_last {
                break;
            }
        }
        self.close_removed();
        self.disabled.lock().retain(|_, until| *until > now);
    }

    /// Returns true if short-circuit reads are enabled and a DataNode is on this machine: if its
    /// address is one of this machine's.
    pub(crate) fn is_local(&self, node: &DatanodeIdProto) -> bool {
        self.settings.is_some() && node.ip_addr.parse().is_ok_and(|address| self.addresses.contains(address))
    }

    /// The addresses of this machine.
    pub(crate) fn own_addresses(&self) -> &OwnAddresses {
        &self.addresses
    }

    fn close_later(&self, replicas: impl IntoIterator<Item = Arc<LocalReplica>>) {
        let mut removed = self.removed.lock();
        removed.extend(replicas);
        let is_full = removed.len() > REMOVED_MAX;
        drop(removed);
        if is_full {
            self.close_removed();
        }
    }

    /// Closes the removed replicas that no read holds.
    fn close_removed(&self) {
        let mut removed = self.removed.lock();
        // No other place makes new references to them, so the number only falls.
        let unused = removed.extract_if(.., |replica| Arc::strong_count(replica) == 1);
        let unused: Vec<_> = unused.collect();
        drop(removed);
        drop(unused);
    }

    fn is_disabled(&self, path: &str) -> bool {
        self.disabled.lock().get(path).is_some_and(|until| *until > clock::monotonic())
    }

    fn refused(
        &self,
        block: &ExtendedBlockProto,
        settings: &ShortCircuitSettings,
        path: String,
        refusal: Refusal,
    ) {
        match refusal {
            Refusal::Path(why) => {
                let seconds = settings.path_disabled_for.as_secs();
                tracing::warn!(why, seconds, "short-circuit reads from a DataNode are paused");
                let pause = settings.path_disabled_for.min(PATH_DISABLED_MAX);
                self.disabled.lock().insert(path, clock::monotonic() + pause);
            }
            Refusal::Block(why) => {
                let seconds = BLOCK_REFUSED_FOR.as_secs();
                let block_name = block_name(block);
                tracing::info!(block = block_name, why, seconds, "a local replica is read over the network");
                self.refuse(block, None);
            }
            Refusal::Token(why) => {
                tracing::debug!(block = block_name(block), why, "an access token for a local replica");
            }
        }
    }
}

/// Returns how many replicas may be kept: their descriptors take at most a quarter of the limit of
/// open files. A server has raised its limit to this one, the hard limit.
fn possible_replicas(wanted: usize, descriptors: Option<u64>) -> usize {
    let possible = descriptors.map_or(usize::MAX, |all| usize::try_from(all / 8).unwrap_or(usize::MAX));
    if wanted > possible {
        let key = "dfs.client.read.shortcircuit.streams.cache.size";
        tracing::warn!(key, wanted, possible, "the limit of open files (ulimit -n) is low");
    }
    wanted.min(possible)
}

/// The loop of the closing thread; ends when the client is dropped.
pub(crate) fn closing(client: &Weak<Shared>) {
    while let Some(shared) = client.upgrade() {
        shared.short_circuit.close_expired();
        drop(shared);
        std::thread::sleep(CLOSE_TICK);
    }
}

#[cfg(test)]
mod tests;
