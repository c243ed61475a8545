//! Namespaces: the rows of hbase:namespace, one a namespace, `info:d` = NamespaceDescriptor without PBUF
//! (`TableNamespaceManager`). Each write survives the machine when it returns, as those to hbase:meta do.

use std::sync::Arc;

use evenkeel_common::cell::{KeyValueBuilder, LATEST_TIMESTAMP};
use evenkeel_common::names::{DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, check_namespace};
use evenkeel_common::{CellBuffer, CellType, Durability, ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::ops::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;
use prost::Message;

use super::Master;
use crate::standalone::recovery::remove_if_empty;

const FAMILY: &[u8] = b"info";
const QUALIFIER: &[u8] = b"d";

/// hbase:namespace.
#[derive(Debug)]
pub struct NamespaceTable {
    region: Arc<Region>,
}

impl NamespaceTable {
    /// Over the open region.
    pub fn new(region: Arc<Region>) -> Self {
        Self { region }
    }

    /// Makes the two namespaces that every cluster has.
    ///
    /// # Errors
    /// Whatever the region says.
    pub fn ensure_built_in(&self) -> Result<()> {
        for name in [DEFAULT_NAMESPACE, SYSTEM_NAMESPACE] {
            if self.find(name)?.is_none() {
                self.put(&pb::NamespaceDescriptor {
                    name: name.to_owned().into(),
                    configuration: Vec::new(),
                })?;
            }
        }
        Ok(())
    }

    /// Makes the namespaces of tables that are there and whose namespaces are not.
    ///
    /// # Errors
    /// Whatever the region says.
    pub fn ensure_those_of<'a>(&self, tables: impl Iterator<Item = &'a TableName>) -> Result<()> {
        for table in tables {
            let name = table.namespace();
            if self.find(name)?.is_none() {
                tracing::error!(namespace = name, %table, "the table's namespace is not known: it is made again, without its settings");
                self.put(&pb::NamespaceDescriptor {
                    name: name.to_owned().into(),
                    configuration: Vec::new(),
                })?;
            }
        }
        Ok(())
    }

    /// A namespace by name.
    ///
    /// # Errors
    /// `NamespaceNotFoundException`.
    pub fn get(&self, name: &str) -> Result<pb::NamespaceDescriptor> {
        self.find(name)?.ok_or_else(|| HBaseError::new(ErrorKind::NamespaceNotFound, name))
    }

    fn find(&self, name: &str) -> Result<Option<pb::NamespaceDescriptor>> {
        descriptor_of(&self.region.get(Scan::get(name.as_bytes().to_vec()))?)
    }

    /// Every namespace, ordered by name.
    ///
    /// # Errors
    /// Whatever the region says.
    pub fn list(&self) -> Result<Vec<pb::NamespaceDescriptor>> {
        let mut scanner = self.region.scanner(Scan::default())?;
        let (mut row, mut all) = (CellBuffer::new(), Vec::new());
        loop {
            row.clear();
            let state = scanner.next(&mut row, &mut ScannerContext::unlimited())?;
            all.extend(descriptor_of(&row)?);
            if !state.has_more() {
                return Ok(all);
            }
        }
    }

    /// Writes a namespace's row.
    ///
    /// # Errors
    /// Whatever the region says.
    pub fn put(&self, namespace: &pb::NamespaceDescriptor) -> Result<()> {
        let (row, family, qualifier, kind) = (&namespace.name[..], FAMILY, QUALIFIER, CellType::Put);
        let (timestamp, value) = (LATEST_TIMESTAMP, &namespace.encode_to_vec()[..]);
        let cell =
            KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] }.try_build()?;
        self.write(Mutation::new(MutationKind::Put, namespace.name.clone(), vec![cell]))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let row = name.as_bytes().to_vec();
        self.write(Mutation::new(MutationKind::Delete, row, Vec::new()))
    }

    fn write(&self, mutation: Mutation) -> Result<()> {
        self.region.mutate_wait(Mutation { durability: Durability::FsyncWal, ..mutation }).map(drop)
    }
}

fn descriptor_of(row: &CellBuffer) -> Result<Option<pb::NamespaceDescriptor>> {
    let Some(cell) = row.iter().find(|c| c.family() == FAMILY && c.qualifier() == QUALIFIER) else {
        return Ok(None);
    };
    let decoded = pb::NamespaceDescriptor::decode(cell.value());
    decoded
        .map(Some)
        .map_err(|e| HBaseError::io(format!("hbase:namespace row {}: {e}", cell.row().escape_ascii())))
}

impl Master {
    /// Makes a namespace.
    ///
    /// # Errors
    /// `NamespaceExistException`, or `ConstraintException` for an illegal name.
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
        if self.namespaces().find(&name)?.is_some() {
            return Err(HBaseError::new(
                ErrorKind::NamespaceExist,
                format!("Namespace {name} already exists"),
            ));
        }
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _alone = master.namespace_lock.write();
            master.fs().mkdirs(&evenkeel_region::layout::namespace_dir(master.root(), &name))?;
            master.put_namespace(&namespace)
        })
    }

    fn put_namespace(&self, namespace: &pb::NamespaceDescriptor) -> Result<Vec<u8>> {
        self.namespaces().put(namespace)?;
        if let Err(error) = self.parts.znodes.set_namespace(&name_of(namespace), namespace) {
            tracing::warn!(%error, "namespace not mirrored");
        }
        Ok(Vec::new())
    }

    /// Changes a namespace's properties.
    ///
    /// # Errors
    /// `NamespaceNotFoundException`.
    pub fn modify_namespace(
        self: &Arc<Self>,
        namespace: pb::NamespaceDescriptor,
        nonce: (u64, u64),
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.namespaces().get(&name_of(&namespace))?;
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _alone = master.namespace_lock.write();
            master.namespaces().get(&name_of(&namespace))?;
            master.put_namespace(&namespace)
        })
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// `NamespaceNotFoundException`, or `ConstraintException` when it is not empty or built in.
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
        self.procedures.submit(nonce, move || {
            let _alone = master.namespace_lock.write();
            master.check_removable(&name)?;
            master.namespaces().delete(&name)?;
            master.parts.znodes.remove_namespace(&name);
            remove_if_empty(master.fs(), &evenkeel_region::layout::namespace_dir(master.root(), &name))?;
            Ok(Vec::new())
        })
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
