//! Snapshots.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    waits "DeleteSnapshot" => delete,
    waits "GetCompletedSnapshots" => completed,
    waits "IsSnapshotDone" => is_done,
    waits "RestoreSnapshot" => restore_or_clone,
    waits "Snapshot" => take,
];

/// How long a client should wait for a snapshot (`hbase.snapshot.master.timeout.millis`).
pub(super) const TIMEOUT_MS: i64 = 300_000;

fn take(master: &Arc<Master>, q: pb::SnapshotRequest) -> Result<pb::SnapshotResponse> {
    let has_nonce = q.nonce_group.is_some() && q.nonce.is_some();
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.take_snapshot(q.snapshot, nonce)?;
    let proc_id = has_nonce.then_some(id as i64);
    Ok(pb::SnapshotResponse { expected_timeout: TIMEOUT_MS, proc_id })
}

fn is_done(master: &Arc<Master>, q: pb::IsSnapshotDoneRequest) -> Result<pb::IsSnapshotDoneResponse> {
    let done = master.is_snapshot_done(&q.snapshot.unwrap_or_default())?;
    Ok(pb::IsSnapshotDoneResponse { done: Some(done), snapshot: None })
}

fn completed(
    master: &Arc<Master>,
    _: pb::GetCompletedSnapshotsRequest,
) -> Result<pb::GetCompletedSnapshotsResponse> {
    Ok(pb::GetCompletedSnapshotsResponse { snapshots: master.completed_snapshots()? })
}

fn delete(master: &Arc<Master>, q: pb::DeleteSnapshotRequest) -> Result<pb::DeleteSnapshotResponse> {
    master.delete_snapshot(&q.snapshot.name).map(|()| pb::DeleteSnapshotResponse {})
}

fn restore_or_clone(
    master: &Arc<Master>,
    q: pb::RestoreSnapshotRequest,
) -> Result<pb::RestoreSnapshotResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let proc_id = master.restore_or_clone_snapshot(&q.snapshot, q.custom_sft.as_deref(), nonce)?;
    Ok(pb::RestoreSnapshotResponse { proc_id })
}
