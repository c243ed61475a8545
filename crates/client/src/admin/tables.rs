//! Tables.

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;

use super::{Admin, TableState};
use crate::error::{Error, Result};
use crate::retry::Retry;

impl Admin {
    /// Creates a table with regions that start at the split keys, and waits until they are open.
    ///
    /// # Errors
    /// The master's exception, or [`Error::RetriesExhausted`]. This holds for all operations.
    pub async fn create_table(&self, table: &TableDescriptor, split_keys: &[Bytes]) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let table_schema = table.into();
        let request =
            pb::CreateTableRequest { table_schema, split_keys: split_keys.to_vec(), nonce_group, nonce };
        let response: pb::CreateTableResponse = self.call("CreateTable", &request).await?;
        self.finish(response.proc_id).await?;
        self.wait_open(table.name()).await
    }

    /// Enables a table and waits until its regions are open.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn enable_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::EnableTableRequest { table_name: table.into(), nonce_group, nonce };
        let response: pb::EnableTableResponse = self.call("EnableTable", &request).await?;
        self.finish(response.proc_id).await?;
        self.wait_open(table).await
    }

    /// Disables a table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn disable_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::DisableTableRequest { table_name: table.into(), nonce_group, nonce };
        let response: pb::DisableTableResponse = self.call("DisableTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(response.proc_id).await
    }

    /// Deletes a disabled table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn delete_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::DeleteTableRequest { table_name: table.into(), nonce_group, nonce };
        let response: pb::DeleteTableResponse = self.call("DeleteTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(response.proc_id).await
    }

    /// Empties a disabled table and enables it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn truncate_table(&self, table: &TableName, preserve_splits: bool) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let preserve_splits = Some(preserve_splits);
        let request =
            pb::TruncateTableRequest { table_name: table.into(), preserve_splits, nonce_group, nonce };
        let response: pb::TruncateTableResponse = self.call("truncateTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(response.proc_id).await?;
        self.wait_open(table).await
    }

    /// Replaces a table's descriptor.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_table(&self, table: &TableDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, table_schema) = (table.name().into(), table.into());
        let request = pb::ModifyTableRequest {
            table_name,
            table_schema,
            nonce_group,
            nonce,
            reopen_regions: Some(true),
        };
        let response: pb::ModifyTableResponse = self.call("ModifyTable", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Changes the store file tracker of a table: `DEFAULT`, `FILE`, or the name of a class.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_table_store_file_tracker(&self, table: &TableName, tracker: &str) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, dst_sft) = (table.into(), tracker.to_owned());
        let request = pb::ModifyTableStoreFileTrackerRequest { table_name, dst_sft, nonce_group, nonce };
        let response: pb::ModifyTableStoreFileTrackerResponse =
            self.call("ModifyTableStoreFileTracker", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Changes the store file tracker of a family, as [`Admin::modify_table_store_file_tracker`].
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_family_store_file_tracker(
        &self,
        table: &TableName,
        family: &[u8],
        tracker: &str,
    ) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, dst_sft) = (table.into(), tracker.to_owned());
        let family = family.to_vec().into();
        let request =
            pb::ModifyColumnStoreFileTrackerRequest { table_name, family, dst_sft, nonce_group, nonce };
        let response: pb::ModifyColumnStoreFileTrackerResponse =
            self.call("ModifyColumnStoreFileTracker", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Adds a family to a table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn add_family(&self, table: &TableName, family: &ColumnFamilyDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, column_families) = (table.into(), family.into());
        let request = pb::AddColumnRequest { table_name, column_families, nonce_group, nonce };
        let response: pb::AddColumnResponse = self.call("AddColumn", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Replaces the descriptor of a table's family.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_family(&self, table: &TableName, family: &ColumnFamilyDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, column_families) = (table.into(), family.into());
        let request = pb::ModifyColumnRequest { table_name, column_families, nonce_group, nonce };
        let response: pb::ModifyColumnResponse = self.call("ModifyColumn", &request).await?;
        self.finish(response.proc_id).await
    }

    /// Deletes a family of a table with its data.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn delete_family(&self, table: &TableName, family: &[u8]) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let column_name = Bytes::copy_from_slice(family);
        let request = pb::DeleteColumnRequest { table_name: table.into(), column_name, nonce_group, nonce };
        let response: pb::DeleteColumnResponse = self.call("DeleteColumn", &request).await?;
        self.finish(response.proc_id).await
    }

    /// The number of regions without the table's newest descriptor, and of all its regions (the
    /// shell's `alter_status`).
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn alter_status(&self, table: &TableName) -> Result<(u32, u32)> {
        let request = pb::GetSchemaAlterStatusRequest { table_name: table.into() };
        let response: pb::GetSchemaAlterStatusResponse = self.call("GetSchemaAlterStatus", &request).await?;
        Ok((response.yet_to_update_regions(), response.total_regions()))
    }

    /// The names of all user tables.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_tables(&self) -> Result<Vec<TableName>> {
        self.list_tables_matching(None, false).await
    }

    /// The names of the tables that match a Java regular expression, or of all; system tables only
    /// if requested.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_tables_matching(&self, regex: Option<&str>, system: bool) -> Result<Vec<TableName>> {
        let request = pb::GetTableNamesRequest {
            regex: regex.map(str::to_owned),
            include_sys_tables: Some(system),
            namespace: None,
        };
        let response: pb::GetTableNamesResponse = self.call("GetTableNames", &request).await?;
        names(&response.table_names)
    }

    /// The names of all tables that are enabled, or of all that are disabled.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_tables_by_state(&self, enabled: bool) -> Result<Vec<TableName>> {
        let request = pb::ListTableNamesByStateRequest { is_enabled: enabled };
        let response: pb::ListTableNamesByStateResponse =
            self.call("ListTableNamesByState", &request).await?;
        names(&response.table_names)
    }

    /// A table's descriptor.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], or as [`Admin::create_table`].
    pub async fn describe(&self, table: &TableName) -> Result<TableDescriptor> {
        let request =
            pb::GetTableDescriptorsRequest { table_names: vec![table.into()], ..Default::default() };
        let response: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).await?;
        let schema = response.table_schema.first().ok_or_else(|| Error::TableNotFound(table.clone()))?;
        Ok(schema.try_into()?)
    }

    /// The descriptors of tables, as [`Admin::list_tables_matching`] names them.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn describe_tables(&self, regex: Option<&str>, system: bool) -> Result<Vec<TableDescriptor>> {
        let request = pb::GetTableDescriptorsRequest {
            table_names: Vec::new(),
            regex: regex.map(str::to_owned),
            include_sys_tables: Some(system),
            namespace: None,
        };
        let response: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).await?;
        response.table_schema.iter().map(|schema| Ok(schema.try_into()?)).collect()
    }

    /// A table's state in hbase:meta; `None` if there is no such table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn table_state(&self, table: &TableName) -> Result<Option<TableState>> {
        let mut retry = Retry::new(self.connection.config());
        loop {
            match self.connection.table_state_once(table).await {
                Ok(state) => return Ok(state),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// Returns true if hbase:meta has the table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn table_exists(&self, table: &TableName) -> Result<bool> {
        Ok(self.table_state(table).await?.is_some())
    }

    /// Returns true if a table is enabled.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], or as [`Admin::create_table`].
    pub async fn is_table_enabled(&self, table: &TableName) -> Result<bool> {
        Ok(self.known_state(table).await? == TableState::Enabled)
    }

    /// Returns true if a table is disabled.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], or as [`Admin::create_table`].
    pub async fn is_table_disabled(&self, table: &TableName) -> Result<bool> {
        Ok(self.known_state(table).await? == TableState::Disabled)
    }

    async fn known_state(&self, table: &TableName) -> Result<TableState> {
        self.table_state(table).await?.ok_or_else(|| Error::TableNotFound(table.clone()))
    }
}

pub(super) fn names(names: &[pb::TableName]) -> Result<Vec<TableName>> {
    names.iter().map(|name| Ok(TableName::try_from(name)?)).collect()
}
