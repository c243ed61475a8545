//! Snapshots.

use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::{ErrorKind, TableName};
use evenkeel_protocol::pb;

use super::{Admin, ProcedurePoll, TableState};
use crate::error::{Error, RemoteException, Result};

/// How a snapshot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotType {
    /// MemStores are flushed first, so the snapshot has every acknowledged write.
    #[default]
    Flush,
    /// The snapshot has the present files, without a flush.
    SkipFlush,
    /// The table is disabled; the master chooses this type.
    Disabled,
}

/// A snapshot of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotDescription {
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: TableName,
    /// How it was taken.
    pub kind: SnapshotType,
    /// The user that took it.
    pub owner: Option<String>,
    /// When it was taken, in ms since 1970; 0 before.
    pub creation_ms: i64,
    /// Seconds to live; 0 means no limit.
    pub ttl_seconds: i64,
    /// `MAX_FILESIZE` of tables that are cloned from it; 0 for the snapshot's value.
    pub max_file_bytes: i64,
}

impl SnapshotDescription {
    /// Describes a snapshot with a flush.
    pub fn new(name: &str, table: TableName) -> Self {
        Self {
            name: name.to_owned(),
            table,
            kind: SnapshotType::Flush,
            owner: None,
            creation_ms: 0,
            ttl_seconds: 0,
            max_file_bytes: 0,
        }
    }

    /// Makes it a snapshot without a flush.
    pub fn skip_flush(mut self) -> Self {
        self.kind = SnapshotType::SkipFlush;
        self
    }

    /// Sets its time to live.
    pub fn ttl_seconds(mut self, seconds: i64) -> Self {
        self.ttl_seconds = seconds;
        self
    }

    fn message(&self) -> pb::SnapshotDescription {
        use pb::snapshot_description::Type;
        let kind = match self.kind {
            SnapshotType::Flush => Type::Flush,
            SnapshotType::SkipFlush => Type::Skipflush,
            SnapshotType::Disabled => Type::Disabled,
        };
        pb::SnapshotDescription {
            name: self.name.clone(),
            table: Some(self.table.to_string()),
            creation_time: (self.creation_ms != 0).then_some(self.creation_ms),
            r#type: Some(kind as i32),
            owner: self.owner.clone(),
            ttl: (self.ttl_seconds != 0).then_some(self.ttl_seconds),
            max_file_size: (self.max_file_bytes != 0).then_some(self.max_file_bytes),
            ..Default::default()
        }
    }

    fn of(message: pb::SnapshotDescription) -> Result<Self> {
        use pb::snapshot_description::Type;
        let kind = match message.r#type() {
            Type::Flush => SnapshotType::Flush,
            Type::Skipflush => SnapshotType::SkipFlush,
            Type::Disabled => SnapshotType::Disabled,
        };
        Ok(Self {
            table: message.table().parse()?,
            kind,
            creation_ms: message.creation_time(),
            ttl_seconds: message.ttl(),
            max_file_bytes: message.max_file_size(),
            name: message.name,
            owner: message.owner,
        })
    }
}

impl Admin {
    /// Takes a snapshot and waits until it is complete.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn snapshot(&self, snapshot: &SnapshotDescription) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let snapshot = snapshot.message();
        let request = pb::SnapshotRequest { snapshot: snapshot.clone(), nonce_group, nonce };
        let response: pb::SnapshotResponse = self.call("Snapshot", &request).await?;
        match response.proc_id {
            Some(id) => self.wait_for_procedure(id as u64).await,
            None => self.wait_for_snapshot(snapshot).await,
        }
    }

    /// For masters that take snapshots without a procedure.
    async fn wait_for_snapshot(&self, snapshot: pb::SnapshotDescription) -> Result<()> {
        let mut poll = ProcedurePoll::new(&self.connection);
        let name = snapshot.name.clone();
        let request = pb::IsSnapshotDoneRequest { snapshot: Some(snapshot) };
        loop {
            let response: pb::IsSnapshotDoneResponse = self.call("IsSnapshotDone", &request).await?;
            if response.done() {
                return Ok(());
            }
            poll.pause(|| format!("snapshot {name}")).await?;
        }
    }

    /// All complete snapshots.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_snapshots(&self) -> Result<Vec<SnapshotDescription>> {
        let response: pb::GetCompletedSnapshotsResponse =
            self.call("GetCompletedSnapshots", &pb::GetCompletedSnapshotsRequest {}).await?;
        response.snapshots.into_iter().map(SnapshotDescription::of).collect()
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let snapshot = pb::SnapshotDescription { name: name.to_owned(), ..Default::default() };
        let request = pb::DeleteSnapshotRequest { snapshot };
        let _: pb::DeleteSnapshotResponse = self.call("DeleteSnapshot", &request).await?;
        Ok(())
    }

    /// Clones a snapshot into a table, which must not exist.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn clone_snapshot(&self, name: &str, table: &TableName) -> Result<()> {
        if self.table_exists(table).await? {
            return Err(exception(ErrorKind::TableExists, table.to_string()));
        }
        self.restore(name, table).await?;
        self.wait_open(table).await
    }

    /// Restores a disabled table from its snapshot; a deleted table is created again. With
    /// `failsafe`, a snapshot of the present state is taken first, restored if the restore fails,
    /// and deleted otherwise.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn restore_snapshot(&self, name: &str, failsafe: bool) -> Result<()> {
        let snapshots = self.list_snapshots().await?;
        let known = snapshots.into_iter().find(|s| s.name == name);
        let unknown = || exception(ErrorKind::SnapshotDoesNotExist, format!("no snapshot {name}"));
        let table = known.ok_or_else(unknown)?.table;
        match self.table_state(&table).await? {
            None => return self.clone_snapshot(name, &table).await,
            Some(TableState::Disabled) => {}
            Some(_) => return Err(exception(ErrorKind::TableNotDisabled, table.to_string())),
        }
        self.connection.locations().remove_table(&table);
        match failsafe {
            false => self.restore(name, &table).await,
            true => self.restore_failsafe(name, &table).await,
        }
    }

    async fn restore_failsafe(&self, name: &str, table: &TableName) -> Result<()> {
        let now_ms = SystemClock.now_ms();
        let before = format!("hbase-failsafe-{name}-{now_ms}");
        self.snapshot(&SnapshotDescription::new(&before, table.clone())).await?;
        if let Err(error) = self.restore(name, table).await {
            self.restore(&before, table).await?;
            self.delete_snapshot(&before).await?;
            return Err(error);
        }
        self.delete_snapshot(&before).await
    }

    async fn restore(&self, name: &str, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let snapshot = SnapshotDescription::new(name, table.clone()).message();
        let request = pb::RestoreSnapshotRequest {
            snapshot,
            nonce_group,
            nonce,
            restore_acl: Some(false),
            custom_sft: None,
        };
        let response: pb::RestoreSnapshotResponse = self.call("RestoreSnapshot", &request).await?;
        self.wait_for_procedure(response.proc_id).await
    }
}

/// The exception that HBase's client raises locally.
fn exception(kind: ErrorKind, message: String) -> Error {
    Error::Remote(Box::new(RemoteException::new(kind.class_name(), &message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_come_back() {
        let mut snapshot =
            SnapshotDescription::new("s", "ns:t".parse().expect("legal")).skip_flush().ttl_seconds(60);
        snapshot.owner = Some("me".into());
        snapshot.creation_ms = 5;
        assert_eq!(SnapshotDescription::of(snapshot.message()).expect("reads"), snapshot);
        let bad = pb::SnapshotDescription { table: Some("a:b:c".into()), ..Default::default() };
        assert!(SnapshotDescription::of(bad).is_err());
    }
}
