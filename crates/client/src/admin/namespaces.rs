//! Namespaces.

use std::collections::BTreeMap;

use evenkeel_common::TableName;
use evenkeel_protocol::pb;

use super::Admin;
use super::tables::names;
use crate::error::Result;

/// A namespace: its name and its configuration (such as `hbase.namespace.quota.maxtables`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor {
    /// The name.
    pub name: String,
    /// Settings by name.
    pub configuration: BTreeMap<String, String>,
}

impl NamespaceDescriptor {
    /// A namespace without settings.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), configuration: BTreeMap::new() }
    }

    /// Adds a setting.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.configuration.insert(name.to_owned(), value.to_owned());
        self
    }

    fn message(&self) -> pb::NamespaceDescriptor {
        let pair = |(name, value): (&String, &String)| pb::NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        let configuration = self.configuration.iter().map(pair).collect();
        pb::NamespaceDescriptor { name: self.name.clone().into(), configuration }
    }

    fn of(message: pb::NamespaceDescriptor) -> Self {
        let configuration = message.configuration.into_iter().map(|pair| (pair.name, pair.value)).collect();
        Self { name: String::from_utf8_lossy(&message.name).into_owned(), configuration }
    }
}

impl Admin {
    /// Creates a namespace.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn create_namespace(&self, namespace: &NamespaceDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let namespace_descriptor = namespace.message();
        let request = pb::CreateNamespaceRequest { namespace_descriptor, nonce_group, nonce };
        let response: pb::CreateNamespaceResponse = self.call("CreateNamespace", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Replaces a namespace's settings.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_namespace(&self, namespace: &NamespaceDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let namespace_descriptor = namespace.message();
        let request = pb::ModifyNamespaceRequest { namespace_descriptor, nonce_group, nonce };
        let response: pb::ModifyNamespaceResponse = self.call("ModifyNamespace", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Deletes a namespace that has no tables.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::DeleteNamespaceRequest { namespace_name: name.to_owned(), nonce_group, nonce };
        let response: pb::DeleteNamespaceResponse = self.call("DeleteNamespace", &request).await?;
        self.finish(response.proc_id).await
    }

    /// A namespace with its settings.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn describe_namespace(&self, name: &str) -> Result<NamespaceDescriptor> {
        let request = pb::GetNamespaceDescriptorRequest { namespace_name: name.to_owned() };
        let response: pb::GetNamespaceDescriptorResponse =
            self.call("GetNamespaceDescriptor", &request).await?;
        Ok(NamespaceDescriptor::of(response.namespace_descriptor))
    }

    /// All namespaces with their settings, HBase's own among them.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_namespaces(&self) -> Result<Vec<NamespaceDescriptor>> {
        let request = pb::ListNamespaceDescriptorsRequest {};
        let response: pb::ListNamespaceDescriptorsResponse =
            self.call("ListNamespaceDescriptors", &request).await?;
        Ok(response.namespace_descriptor.into_iter().map(NamespaceDescriptor::of).collect())
    }

    /// The names of a namespace's tables.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_namespace_tables(&self, name: &str) -> Result<Vec<TableName>> {
        let request = pb::ListTableNamesByNamespaceRequest { namespace_name: name.to_owned() };
        let response: pb::ListTableNamesByNamespaceResponse =
            self.call("ListTableNamesByNamespace", &request).await?;
        names(&response.table_name)
    }
}
