//! The table of a test: created, replaced or reused, by the rules of HBase's tool (`checkTable`).

use bytes::Bytes;
use evenkeel_client::{Connection, TableState};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::error::PeError;
use crate::options::Options;

/// Makes sure that the table exists and fits; returns notes.
///
/// # Errors
/// [`PeError::Table`] if a read or delete finds no table or other families, [`PeError::Options`] if
/// the options describe no valid table, otherwise the cluster's error.
pub async fn prepare(connection: &Connection, options: &Options) -> Result<Vec<String>, PeError> {
    let name: TableName = options.table.parse().map_err(|e| PeError::Options(format!("--table: {e}")))?;
    let admin = connection.admin();
    let state = admin.table_state(&name).await?;
    let needs_data = options.kind().needs_data();
    let Some(state) = state else {
        if needs_data {
            let (table, command) = (&options.table, &options.command);
            return Err(PeError::Table(format!(
                "there is no table {table} for {command}; run a write command first"
            )));
        }
        return create(connection, options, &name).await;
    };
    let differences = differences(connection, options, &name).await?;
    if needs_data {
        let families = differences.iter().find(|d| d.starts_with("--families"));
        if let Some(families) = families {
            return Err(PeError::Table(format!("{}: {families}; run a write command first", options.table)));
        }
        return Ok(differences
            .into_iter()
            .map(|d| format!("{d}: the test runs on the table as it is"))
            .collect());
    }
    if differences.is_empty() {
        return Ok(Vec::new());
    }
    if state == TableState::Enabled {
        admin.disable_table(&name).await?;
    }
    admin.delete_table(&name).await?;
    let mut notes: Vec<_> = differences.into_iter().map(|d| format!("{d}: the table is replaced")).collect();
    notes.extend(create(connection, options, &name).await?);
    Ok(notes)
}

async fn create(
    connection: &Connection,
    options: &Options,
    name: &TableName,
) -> Result<Vec<String>, PeError> {
    let splits: Vec<Bytes> = options.splits().iter().map(|key| Bytes::copy_from_slice(key)).collect();
    connection.admin().create_table(&descriptor(options, name)?, &splits).await?;
    Ok(vec![format!("created table {name}, {} regions", splits.len() + 1)])
}

/// The differences between an existing table and the options.
async fn differences(
    connection: &Connection,
    options: &Options,
    name: &TableName,
) -> Result<Vec<String>, PeError> {
    let admin = connection.admin();
    let table = admin.describe(name).await?;
    let mut found = Vec::new();
    let families = table.families().len();
    if families != options.families {
        found.push(format!("--families={}, but there are {families}", options.families));
    }
    if options.presplit > 0 {
        let regions = admin.regions(name).await?.len();
        if regions != options.presplit {
            found.push(format!("--presplit={}, but there are {regions} regions", options.presplit));
        }
    }
    let policy = table.text("SPLIT_POLICY");
    if policy != options.split_policy.as_deref() {
        let policy = policy.unwrap_or("the default");
        let asked = options.split_policy.as_deref().unwrap_or("none");
        found.push(format!("--splitPolicy={asked}, but it has {policy}"));
    }
    let replicas = table.text("REGION_REPLICATION").and_then(|n| n.parse().ok()).unwrap_or(1u32);
    if replicas != options.replicas {
        found.push(format!("--replicas={}, but there are {replicas}", options.replicas));
    }
    Ok(found)
}

/// The table that the options describe.
fn descriptor(options: &Options, name: &TableName) -> Result<TableDescriptor, PeError> {
    let mut table = TableDescriptor::new(name.clone());
    for i in 0..options.families {
        let family = ColumnFamilyDescriptor::new(format!("info{i}").as_bytes());
        table = table.with_family(family_of(options, family.map_err(|e| PeError::Options(e.to_string()))?));
    }
    if options.replicas != 1 {
        table = table.with("REGION_REPLICATION", &options.replicas.to_string());
    }
    Ok(options.split_policy.iter().fold(table, |table, policy| table.with("SPLIT_POLICY", policy)))
}

fn family_of(options: &Options, family: ColumnFamilyDescriptor) -> ColumnFamilyDescriptor {
    let family = family
        .with("DATA_BLOCK_ENCODING", &options.block_encoding)
        .with("COMPRESSION", &options.compress)
        .with("BLOOMFILTER", &options.bloom_filter)
        .with("BLOCKSIZE", &options.block_size.to_string())
        .with("IN_MEMORY_COMPACTION", &options.inmemory_compaction);
    let family = if options.inmemory { family.with("IN_MEMORY", "true") } else { family };
    options.encryption.iter().fold(family, |family, kind| family.with("ENCRYPTION", kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_carry_the_options() {
        let line = "--families=2 --compress=SNAPPY --blockEncoding=DIFF --bloomFilter=ROWCOL --blockSize=4096 \
            --inmemory --inmemoryCompaction=BASIC --splitPolicy=P --replicas=2 sequentialWrite 1";
        let options = Options::of_line(line).expect("parses");
        let name: TableName = options.table.parse().expect("legal");
        let table = descriptor(&options, &name).expect("a table");
        let family = table.family(b"info1").expect("the second family");
        assert_eq!(
            (family.compression(), family.bloom_type(), family.block_bytes()),
            ("SNAPPY", "ROWCOL", 4096)
        );
        assert!(family.in_memory() && table.family(b"info2").is_none());
        assert_eq!((table.text("SPLIT_POLICY"), table.text("REGION_REPLICATION")), (Some("P"), Some("2")));
    }
}
