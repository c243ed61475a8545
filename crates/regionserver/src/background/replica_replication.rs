//! The thread that replays the edits of default replicas on their secondary replicas on this server
//! (`RegionReplicaReplicationEndpoint`).
//!
//! It reads the streams of the default replicas ([`ReplicaStream`]), when they announce events and
//! when the chore checks the regions. A stream that is stopped, because it lost edits or because a
//! secondary replica has opened, is started again by a flush of the default replica, which this
//! thread requests. Each event is for every secondary replica of the region. Such flushes are paced
//! ([`ReplicaStream::begin_restart`]).
//!
//! In a cluster, each event is also passed to the sender for secondary replicas on other servers
//! ([`ReplicaSender`](crate::replica_sender::ReplicaSender)).
//!
//! **Memory.** Replayed cells count as unflushed bytes. If these reach their limit, edits are not
//! replayed, as if they were lost. A secondary replica has no flush of its own: where unflushed
//! bytes must be freed, its default replica is flushed, or, if that is on another server, its files
//! are found again. A replica whose files cannot be found replays nothing until they are found. If
//! the memory is needed meanwhile, its replayed edits are dropped.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use evenkeel_common::priority;
use evenkeel_common::thread::catch;
use evenkeel_common::{Result, clock};
use evenkeel_region::region::{FileChanges, Region, ReplicaEvent, ReplicaStream, ReplicaStreamReader};

use super::{Background, Shared};
use crate::RegionServer;
use crate::replica_sender::ReplicasElsewhere;

impl Shared {
    pub(super) fn replicate_jobs(&self) {
        priority::allow_preemption();
        while let Some(region) = self.replica_events.next() {
            let Some(server) = self.server.get().and_then(Weak::upgrade) else { continue };
            let what = format_args!("the replication of {}", region.info().encoded_name());
            let replicate = || {
                server.replicate(&region);
                Ok(())
            };
            if let Err(error) = catch(what, replicate) {
                tracing::error!(region = %region.info().name_text(), %error, "edits may not be replicated to secondary replicas");
                server.lose_edits(&region);
            }
        }
    }
}

impl Background {
    /// Requests to replay the events of a default replica, or to refresh the files of a secondary
    /// one. Returns true if it was not requested before.
    pub(crate) fn request_replication(&self, region: &Arc<Region>) -> bool {
        self.shared.replica_events.push(region.info().encoded_name().to_owned(), Arc::clone(region))
    }

    /// Returns true if the region's last flush has failed and will be requested again.
    pub(crate) fn will_retry_flush(&self, region: &Region) -> bool {
        self.shared.flush_retries.lock().contains_key(region.info().encoded_name())
    }
}

/// A stream that is being read, and the secondary replicas here that read it.
struct Replication<'a> {
    server: &'a RegionServer,
    primary: &'a Arc<Region>,
    stream: &'a ReplicaStream,
    reader: ReplicaStreamReader<'a>,
    replicas: &'a [Arc<Region>],
    /// The sequence id of a flush whose files could not be read.
    failed: Cell<Option<u64>>,
}

impl Replication<'_> {
    /// Replays all events that wait.
    fn run(&self) {
        while let Some(event) = self.reader.take() {
            self.send(&event);
            self.replay(event);
        }
        if let Some(flushed) = self.failed.take() {
            self.stream.set_failed_flushed(flushed, clock::monotonic());
        }
    }

    /// Passes an event that was taken to the sender.
    fn send(&self, event: &ReplicaEvent) {
        let sender = self.server.hooks.replica_sender();
        sender.into_iter().for_each(|sender| sender.take_event(self.primary, event));
    }

    fn replay(&self, event: ReplicaEvent) {
        match event {
            // Those elsewhere do without the memory here.
            ReplicaEvent::Edits { .. } if self.server.memory.is_full() && self.needs_memory() => {
                self.stream.stop();
                self.replicas.iter().for_each(|replica| replica.suspend_replay());
            }
            ReplicaEvent::Edits { seq_id, cells, .. } => {
                for replica in self.replicas {
                    // A closed replica needs no edits.
                    if matches!(replica.replay_entry(seq_id, &cells), Ok(true)) {
                        self.server.count_written(cells.encoded_len() as u64);
                    }
                }
            }
            ReplicaEvent::Resumed(seq_id) => {
                self.replicas.iter().for_each(|replica| replica.resume_replay(seq_id));
            }
            // A secondary replica here finds out what its files have.
            ReplicaEvent::FlushStarted { .. } => {}
            ReplicaEvent::Flushed { through, .. } => self.refresh_all(through),
        }
    }

    /// Returns true if a replica here takes edits into a MemStore with a limit; that of hbase:meta
    /// has none.
    fn needs_memory(&self) -> bool {
        self.replicas.first().is_some_and(|replica| !replica.info().is_meta())
    }

    fn refresh_all(&self, mut flushed: u64) {
        let next = Cell::new(None);
        loop {
            for replica in self.replicas {
                match self.refresh(replica, flushed, &next) {
                    Err(error) if !replica.is_closed() => {
                        tracing::warn!(region = %replica.info().name_text(), %error, "files of a flush are not read yet");
                        replica.block_replay();
                        self.failed.set(Some(flushed.max(self.failed.get().unwrap_or(0))));
                    }
                    _ => {}
                }
            }
            match next.take() {
                Some(later) => flushed = flushed.max(later),
                None => return,
            }
        }
    }

    /// Finds the files of a replica, after the edits in them are replayed. `next` is set if files
    /// have changed again meanwhile.
    fn refresh(&self, replica: &Region, flushed: u64, next: &Cell<Option<u64>>) -> Result<bool> {
        let later = |event: ReplicaEvent| {
            self.send(&event);
            if let ReplicaEvent::Flushed { through, .. } = event {
                next.set(Some(through.max(next.get().unwrap_or(0))));
            }
        };
        replica.refresh_after(flushed, |newest| {
            while let Some(event) = self.reader.take_up_to(newest, later) {
                self.send(&event);
                self.replay(event);
            }
        })
    }

    /// Frees the memory of replicas whose files cannot be found, if it is needed.
    fn drop_blocked(&self) {
        let is_needed =
            |replica: &Region| self.server.memory.is_throttling() || replica.memory_pressure() >= 1.0;
        for replica in self.replicas.iter().filter(|replica| replica.is_replay_blocked()) {
            if replica.memstore_bytes() > 0 && is_needed(replica) {
                tracing::warn!(region = %replica.info().name_text(), "replayed edits are dropped to free memory");
                replica.drop_replayed();
            }
        }
    }
}

impl RegionServer {
    /// Replays what a default replica has announced. For a secondary replica it finds the files.
    pub(crate) fn replicate(&self, region: &Arc<Region>) {
        if region.is_secondary() {
            if let Err(error) = self.refresh_files_of(region) {
                tracing::warn!(region = %region.info().name_text(), %error, "store files are not refreshed");
            }
            return;
        }
        let Some(stream) = region.replica_stream() else { return };
        // The replicas are found while no other thread takes events: one that opens before an event
        // is taken is among them.
        let reader = stream.read();
        let replicas = self.replicas_of(region);
        stream.set_has_readers(!replicas.is_empty(), self.replicas_elsewhere(region).read);
        // The files of a new replica may have changed since its open, and no flush is requested.
        if !stream.takes_edits()
            && replicas.iter().filter(|replica| replica.request_first_flush()).count() > 0
        {
            stream.push_flushed(0, FileChanges::default());
        }
        stream.retry_flushed(clock::monotonic());
        let was_flushing = region.is_flushing();
        let replication = self.replication(region, stream, reader, &replicas);
        replication.run();
        replication.drop_blocked();
        drop(replication);
        let lacks_edits =
            |replica: &Arc<Region>| replica.is_replay_suspended() && !replica.is_replay_blocked();
        if stream.takes_edits() && replicas.iter().any(lacks_edits) {
            stream.stop_unless_resumed();
        }
        let elsewhere = self.replicas_elsewhere(region);
        let waits = stream.needs_flush() || (stream.takes_edits() && elsewhere.wait);
        let is_due = waits && self.regions.serves(region);
        // A flush that runs may start the stream, or has begun too early for that; then the next
        // round requests another one. If it ran before, its end may not be among the events.
        let is_flushing = was_flushing || region.is_flushing();
        if is_due && !is_flushing && !self.background.will_retry_flush(region) {
            let first = replicas.iter().filter(|replica| replica.request_first_flush());
            let is_first = first.count() > 0 || elsewhere.is_first;
            if stream.begin_restart(clock::monotonic(), is_first) {
                region.require_flush_of_all();
                self.background.request_flush(region);
                let sender = self.hooks.replica_sender();
                sender.into_iter().for_each(|sender| sender.flush_requested(region));
            }
        }
    }

    fn replicas_elsewhere(&self, region: &Arc<Region>) -> ReplicasElsewhere {
        let sender = self.hooks.replica_sender();
        sender.map(|sender| sender.replicas_elsewhere(region)).unwrap_or_default()
    }

    fn replication<'a>(
        &'a self,
        primary: &'a Arc<Region>,
        stream: &'a ReplicaStream,
        reader: ReplicaStreamReader<'a>,
        replicas: &'a [Arc<Region>],
    ) -> Replication<'a> {
        Replication { server: self, primary, stream, reader, replicas, failed: Cell::new(None) }
    }

    /// Makes the secondary replicas of a region wait for a flush, because events may be lost.
    fn lose_edits(&self, region: &Arc<Region>) {
        region.replica_stream().into_iter().for_each(|stream| stream.stop());
        self.hooks.replica_sender().into_iter().for_each(|sender| sender.lose_events(region));
        self.replicas_of(region).iter().for_each(|replica| replica.suspend_replay());
    }

    /// Returns the secondary replicas of a region that are online here.
    fn replicas_of(&self, region: &Region) -> Vec<Arc<Region>> {
        if region.info().is_meta() {
            // The descriptor of the open region may have an earlier number of replicas.
            let mut replicas = self.regions.of_table(region.info().table());
            replicas.retain(|replica| replica.is_secondary());
            return replicas;
        }
        let ids = 1..i32::try_from(region.table().region_replication()).unwrap_or(i32::MAX);
        ids.filter_map(|id| self.regions.find(region.info().replica(id).encoded_name())).collect()
    }

    /// Finds the files of a secondary replica.
    ///
    /// # Errors
    /// As [`Region::refresh_store_files`].
    pub(crate) fn refresh_files_of(&self, replica: &Arc<Region>) -> Result<bool> {
        let primary = self.regions.find(replica.info().replica(0).encoded_name());
        let Some((primary, stream)) = primary.as_ref().and_then(|one| Some((one, one.replica_stream()?)))
        else {
            return replica.refresh_store_files();
        };
        let (replicas, next) = ([Arc::clone(replica)], Cell::new(None));
        let reader = stream.read();
        let others = self.replicas_of(primary);
        let replicas = if others.is_empty() { &replicas[..] } else { &others };
        let replication = self.replication(primary, stream, reader, replicas);
        // A flush among the events may fill a gap.
        replication.run();
        let refreshed = replication.refresh(replica, 0, &next);
        // The sender has been told of the changes.
        let push = |flushed| stream.push_flushed(flushed, FileChanges::default());
        next.take().into_iter().for_each(push);
        refreshed
    }

    /// Requests a flush that frees the unflushed bytes of a region. Returns true if it was not
    /// requested before.
    pub(crate) fn request_flush_of(&self, region: &Arc<Region>) -> bool {
        if !region.is_secondary() {
            return self.background.request_flush(region);
        }
        match self.regions.find(region.info().replica(0).encoded_name()) {
            // Its flush frees the bytes already.
            Some(primary) if primary.is_flushing() => false,
            Some(primary) => self.background.request_flush(&primary),
            None => self.background.request_replication(region),
        }
    }

    /// Returns true if the unflushed bytes of a region can be freed only by a server that has its
    /// default replica.
    pub(crate) fn is_flushed_elsewhere(&self, region: &Region) -> bool {
        region.is_secondary() && self.regions.find(region.info().replica(0).encoded_name()).is_none()
    }

    /// Returns the default replica on this server whose flush frees a secondary replica's bytes, if
    /// that flush runs, or its files are about to be found.
    pub(crate) fn flushing_primary_of(&self, region: &Region) -> Option<Arc<Region>> {
        let primary = region.is_secondary().then(|| region.info().replica(0));
        let primary = self.regions.find(primary?.encoded_name())?;
        let is_unread = primary.replica_stream().is_some_and(|stream| stream.has_events());
        (is_unread || primary.is_flushing()).then_some(primary)
    }

    /// Requests to read the streams of regions: secondary replicas may have been opened or closed.
    pub fn check_replica_streams(&self, regions: &[Arc<Region>]) {
        for region in regions.iter().filter(|region| region.replica_stream().is_some()) {
            self.background.request_replication(region);
        }
    }
}
