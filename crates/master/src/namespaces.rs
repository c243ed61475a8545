//! Namespaces: the rows of hbase:namespace, one for each namespace, `info:d` = NamespaceDescriptor
//! without PBUF (`TableNamespaceManager`). Each write is durable on return, like those to
//! hbase:meta.
//!
//! As with hbase:meta, a write that failed may be in the log nonetheless. Its row is in doubt until
//! it is written again with its current value ([`NamespaceTable::revert_failed_writes`]), which
//! happens before any other change that concerns a namespace.
//!
//! # Bounds
//! The bytes of one descriptor, of all descriptors in the znodes, and of a name. A client can write
//! to hbase:namespace directly. So a row that no change through the master could have written is
//! logged and skipped, like one that cannot be parsed, and stays in the table.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::clock::Clock;
use evenkeel_common::names::{DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, check_namespace};
use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::{
    CellBuffer, CellType, Durability, ErrorKind, HBaseError, Result, TableName, TryError, quoted,
};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;
use evenkeel_zookeeper::znodes::Znodes;
use parking_lot::Mutex;
use prost::Message;

use super::Master;
use crate::namespace_limits::check_limits;
use crate::recovery::remove_if_empty;
use crate::tables::checks::check_directory_name;

const FAMILY: &[u8] = b"info";
const QUALIFIER: &[u8] = b"d";

/// The largest descriptor of a namespace, in bytes. HBase stores it in a znode, which ZooKeeper
/// limits to `jute.maxbuffer`, 1 MiB.
pub const DESCRIPTOR_BYTES_MAX: usize = 1 << 20;
/// The limit on the bytes of all namespaces' znodes, which are in memory: some 20,000 namespaces
/// without properties.
pub const ZNODE_BYTES_MAX: usize = 4 << 20;
/// Bytes that a property counts besides its name and its value: a decoded one takes more memory
/// than its encoding.
const PROPERTY_BYTES: usize = 16;

/// hbase:namespace.
#[derive(Debug)]
pub struct NamespaceTable {
    region: Arc<Region>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The timestamp of the last write. Every write has a later one, so that a delete never hides a
    /// later put.
    timestamp: i64,
    /// Names of namespaces whose last write failed.
    in_doubt_rows: BTreeSet<Bytes>,
}

impl NamespaceTable {
    /// Creates the table over its open region.
    pub fn new(region: Arc<Region>, clock: Arc<dyn Clock>) -> Self {
        Self { region, clock, state: Mutex::default() }
    }

    /// Creates the two namespaces that every cluster has.
    ///
    /// # Errors
    /// `IOException` from reading or writing the region.
    pub fn ensure_built_in(&self) -> Result<()> {
        for name in [DEFAULT_NAMESPACE, SYSTEM_NAMESPACE] {
            if !self.is_readable(name)? {
                self.put_without_settings(name)?;
            }
        }
        Ok(())
    }

    /// Creates the missing namespaces of existing tables.
    ///
    /// # Errors
    /// `IOException` from reading or writing the region.
    pub fn ensure_namespaces_of<'a>(&self, tables: impl Iterator<Item = &'a TableName>) -> Result<()> {
        for table in tables {
            let name = table.namespace();
            if !self.is_readable(name)? {
                tracing::error!(namespace = name, %table, "the table's namespace is missing: it is created again, without its settings");
                self.put_without_settings(name)?;
            }
        }
        Ok(())
    }

    /// Returns true if a namespace has a row that can be parsed. Logs an unreadable row.
    fn is_readable(&self, name: &str) -> Result<bool> {
        let row = self.region.get(Scan::get(name.as_bytes().to_vec()))?;
        Ok(descriptor_of(&row)
            .inspect_err(|error| tracing::error!(%error, "the namespace cannot be read"))
            .is_ok_and(|namespace| namespace.is_some()))
    }

    fn put_without_settings(&self, name: &str) -> Result<()> {
        self.put(&pb::NamespaceDescriptor { name: name.to_owned().into(), configuration: Vec::new() })
    }

    /// Returns a namespace by name.
    ///
    /// # Errors
    /// Returns `NamespaceNotFoundException` if there is no such namespace.
    pub fn get(&self, name: &str) -> Result<pb::NamespaceDescriptor> {
        self.find(name)?.ok_or_else(|| HBaseError::new(ErrorKind::NamespaceNotFound, name))
    }

    fn find(&self, name: &str) -> Result<Option<pb::NamespaceDescriptor>> {
        descriptor_of(&self.region.get(Scan::get(name.as_bytes().to_vec()))?)
    }

    /// Returns every namespace, as [`NamespaceTable::visit`] does.
    ///
    /// # Errors
    /// Returns I/O errors of the region.
    pub fn list(&self) -> Result<Vec<pb::NamespaceDescriptor>> {
        let mut all = Vec::new();
        self.visit(|namespace| {
            all.push(namespace);
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls `visit` with every namespace, ordered by name. A row that cannot be parsed is logged
    /// and skipped, so that it does not prevent a start.
    ///
    /// # Errors
    /// Returns I/O errors of the region, and errors of `visit`, which end the call.
    pub fn visit(&self, mut visit: impl FnMut(pb::NamespaceDescriptor) -> Result<()>) -> Result<()> {
        let mut scanner = self.region.scanner(Scan::default())?;
        let mut row = CellBuffer::new();
        loop {
            row.clear();
            let state =
                scanner.next(&mut row, &mut ScannerContext::unlimited()).map_err(TryError::into_failure)?;
            match descriptor_of(&row) {
                Ok(namespace) => namespace.map_or(Ok(()), &mut visit)?,
                Err(error) => tracing::error!(%error, "the namespace cannot be read; it is skipped"),
            }
            if !state.has_more() {
                return Ok(());
            }
        }
    }

    /// Publishes every namespace as a znode, up to [`ZNODE_BYTES_MAX`] of them together. A
    /// namespace without a znode is logged.
    ///
    /// # Errors
    /// Returns I/O errors of the region.
    pub fn publish(&self, znodes: &Znodes) -> Result<()> {
        let mut free = ZNODE_BYTES_MAX;
        self.visit(|namespace| {
            let name = name_of(&namespace);
            match free.checked_sub(znodes.namespace_bytes(&name, &namespace)) {
                None => tracing::error!(namespace = name, "the namespaces are too large for a znode of each"),
                Some(rest) => match znodes.set_namespace(&name, &namespace) {
                    Ok(()) => free = rest,
                    Err(error) => tracing::error!(%error, "the namespace has no znode"),
                },
            }
            Ok(())
        })
    }

    /// Writes a namespace's row.
    ///
    /// # Errors
    /// `NotServingRegionException`, `RegionTooBusyException`, or `IOException` from the log. Then
    /// the namespace is unchanged, and in doubt.
    pub fn put(&self, namespace: &pb::NamespaceDescriptor) -> Result<()> {
        self.write(&namespace.name, Some(namespace))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.write(&Bytes::copy_from_slice(name.as_bytes()), None)
    }

    fn write(&self, name: &Bytes, content: Option<&pb::NamespaceDescriptor>) -> Result<()> {
        let mut state = self.state.lock();
        self.revert_rows(&mut state)?;
        self.write_row(name, content, &mut state)
    }

    /// Makes the log agree with the rows served: reverts writes that failed.
    ///
    /// # Errors
    /// `NotServingRegionException`, `RegionTooBusyException`, or `IOException` from the log. Then
    /// the rows stay in doubt.
    pub fn revert_failed_writes(&self) -> Result<()> {
        self.revert_rows(&mut self.state.lock())
    }

    fn revert_rows(&self, state: &mut State) -> Result<()> {
        for name in state.in_doubt_rows.clone() {
            let content = self.find(&String::from_utf8_lossy(&name))?;
            self.write_row(&name, content.as_ref(), state)?;
            state.in_doubt_rows.remove(&name);
        }
        Ok(())
    }

    fn write_row(
        &self,
        name: &Bytes,
        content: Option<&pb::NamespaceDescriptor>,
        state: &mut State,
    ) -> Result<()> {
        state.timestamp = self.clock.now_ms().max(state.timestamp.saturating_add(1));
        let timestamp = state.timestamp;
        let cell = |content: &pb::NamespaceDescriptor| {
            let (row, family, qualifier, kind) = (&name[..], FAMILY, QUALIFIER, CellType::Put);
            let value = &content.encode_to_vec()[..];
            KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] }.try_build()
        };
        let (kind, cells) = match content {
            Some(content) => (MutationKind::Put, vec![cell(content)?]),
            None => (MutationKind::Delete, Vec::new()),
        };
        let durability = Durability::FsyncWal;
        let mutation = Mutation { timestamp, durability, ..Mutation::new(kind, name.clone(), cells) };
        let written = self.region.mutate_wait(mutation).map(drop);
        written.inspect_err(|_| _ = state.in_doubt_rows.insert(name.clone()))
    }
}

fn descriptor_of(row: &CellBuffer) -> Result<Option<pb::NamespaceDescriptor>> {
    let Some(cell) = row.iter().find(|c| c.family() == FAMILY && c.qualifier() == QUALIFIER) else {
        return Ok(None);
    };
    parse(cell.row(), cell.value()).map(Some).map_err(|why| {
        let (row, value) = (quoted(cell.row()), quoted(cell.value()));
        HBaseError::io(format!("hbase:namespace row {row}: {why}: its value is {value}"))
    })
}

/// Parses the value of a row, or returns why no change through the master has written it.
fn parse(row: &[u8], value: &[u8]) -> Result<pb::NamespaceDescriptor, String> {
    if value.len() > DESCRIPTOR_BYTES_MAX {
        return Err(format!("it has {} bytes, more than {DESCRIPTOR_BYTES_MAX}", value.len()));
    }
    let namespace = pb::NamespaceDescriptor::decode(value).map_err(|e| e.to_string())?;
    if namespace.name != row {
        return Err("it describes another namespace".to_owned());
    }
    check_namespace(&name_of(&namespace)).map_err(|e| e.message().to_owned())?;
    Ok(namespace)
}

/// Returns the bytes of a descriptor that count.
fn descriptor_bytes(namespace: &pb::NamespaceDescriptor) -> usize {
    namespace.encoded_len() + PROPERTY_BYTES * namespace.configuration.len()
}

/// Checks the size of a descriptor, and returns a copy that does not share the bytes of the request
/// it was decoded from.
fn check_size(namespace: &pb::NamespaceDescriptor) -> Result<pb::NamespaceDescriptor> {
    let bytes = descriptor_bytes(namespace);
    if bytes > DESCRIPTOR_BYTES_MAX {
        return Err(HBaseError::do_not_retry(format!(
            "the descriptor of namespace {} takes {bytes} bytes, more than {DESCRIPTOR_BYTES_MAX}",
            quoted(&namespace.name)
        )));
    }
    let name = Bytes::copy_from_slice(&namespace.name);
    Ok(pb::NamespaceDescriptor { name, configuration: namespace.configuration.clone() })
}

impl Master {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Returns `NamespaceExistException`, `ConstraintException` for a limit below 1, or
    /// `DoNotRetryIOException` for an illegal name, a limit that is no number, or a descriptor that
    /// is too large.
    pub fn create_namespace(
        self: &Arc<Self>,
        namespace: pb::NamespaceDescriptor,
        nonce: (u64, u64),
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let name = name_of(&namespace);
        check_namespace(&name).map_err(|e| HBaseError::do_not_retry(e.message()))?;
        check_directory_name(&name)?;
        let namespace = check_size(&namespace)?;
        if self.namespaces().find(&name)?.is_some() {
            return Err(HBaseError::new(
                ErrorKind::NamespaceExist,
                format!("Namespace {name} already exists"),
            ));
        }
        check_limits(&namespace)?;
        let master = Arc::clone(self);
        self.procedures.submit_holding(
            descriptor_bytes(&namespace),
            "CreateNamespaceProcedure",
            nonce,
            Some(&TableName::namespace_table()),
            move || {
                let _alone = master.namespace_lock.write();
                master.check_has_znode_space(&name, &namespace)?;
                master.fs().mkdirs(&evenkeel_region::layout::namespace_dir(master.root(), &name))?;
                master.put_namespace(&namespace)
            },
        )
    }

    /// Checks that the znodes of all namespaces stay within [`ZNODE_BYTES_MAX`].
    fn check_has_znode_space(&self, name: &str, namespace: &pb::NamespaceDescriptor) -> Result<()> {
        let bytes = self.parts.znodes.namespace_bytes_with(name, namespace);
        if bytes <= ZNODE_BYTES_MAX {
            return Ok(());
        }
        Err(HBaseError::do_not_retry(format!(
            "the descriptors of all namespaces take {bytes} bytes with that of {name}, more than {ZNODE_BYTES_MAX}"
        )))
    }

    fn put_namespace(&self, namespace: &pb::NamespaceDescriptor) -> Result<Vec<u8>> {
        self.namespaces().put(namespace).inspect_err(|_| self.wake_assignment())?;
        if let Err(error) = self.parts.znodes.set_namespace(&name_of(namespace), namespace) {
            tracing::warn!(%error, "namespace not mirrored");
        }
        Ok(Vec::new())
    }

    /// Replaces a namespace's properties.
    ///
    /// # Errors
    /// `NamespaceNotFoundException`; `ConstraintException` for a limit below 1;
    /// `DoNotRetryIOException` for a limit that is no number, or a descriptor that is too large.
    pub fn modify_namespace(
        self: &Arc<Self>,
        namespace: pb::NamespaceDescriptor,
        nonce: (u64, u64),
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let name = name_of(&namespace);
        self.namespaces().get(&name)?;
        let namespace = check_size(&namespace)?;
        check_limits(&namespace)?;
        let master = Arc::clone(self);
        self.procedures.submit_holding(
            descriptor_bytes(&namespace),
            "ModifyNamespaceProcedure",
            nonce,
            Some(&TableName::namespace_table()),
            move || {
                let _alone = master.namespace_lock.write();
                master.namespaces().get(&name)?;
                master.check_has_znode_space(&name, &namespace)?;
                master.put_namespace(&namespace)
            },
        )
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// Returns `NamespaceNotFoundException`, or `ConstraintException` if it is not empty or is
    /// built in.
    pub fn delete_namespace(self: &Arc<Self>, name: String, nonce: (u64, u64)) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        if name == DEFAULT_NAMESPACE || name == SYSTEM_NAMESPACE {
            let message = format!("Reserved namespace {name} cannot be removed.");
            return Err(HBaseError::new(ErrorKind::Constraint, message));
        }
        self.check_removable(&name)?;
        let master = Arc::clone(self);
        self.procedures.submit(
            "DeleteNamespaceProcedure",
            nonce,
            Some(&TableName::namespace_table()),
            move || {
                let _alone = master.namespace_lock.write();
                master.check_removable(&name)?;
                master.namespaces().delete(&name).inspect_err(|_| master.wake_assignment())?;
                master.parts.znodes.remove_namespace(&name);
                let dir = evenkeel_region::layout::namespace_dir(master.root(), &name);
                if let Err(error) = remove_if_empty(master.fs(), &dir) {
                    tracing::warn!(%error, "the empty directory of a deleted namespace could not be removed");
                }
                master.remove_quotas_of_deleted(&QuotaTarget::Namespace(name));
                Ok(Vec::new())
            },
        )
    }

    fn check_removable(&self, name: &str) -> Result<()> {
        self.namespaces().get(name)?;
        let tables = self.tables().iter().filter(|t| t.descriptor.name().namespace() == name).count();
        if tables == 0 {
            return Ok(());
        }
        let message = format!("Only empty namespaces can be removed. Namespace {name} has {tables} tables");
        Err(HBaseError::new(ErrorKind::Constraint, message))
    }
}

fn name_of(namespace: &pb::NamespaceDescriptor) -> String {
    String::from_utf8_lossy(&namespace.name).into_owned()
}
