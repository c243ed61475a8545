//! Starts over what a server of HBase 1.x left: states are in ZooKeeper, hbase:meta has one family,
//! and a merged region names its parents in `info:mergeA` and `info:mergeB`.

use evenkeel_region::layout;

use super::*;
use crate::meta::{INFO, MetaChange};

#[test]
fn tables_without_a_state_are_enabled() {
    let mut cluster = Cluster::with_table();
    let empty = TableDescriptor::new("empty".parse().expect("legal"));
    let empty = empty.with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    cluster.run(|master| master.create_table(empty.clone(), Vec::new(), NO_NONCE)).expect("made");
    let names = [table_name(), empty.name().clone(), TableName::namespace_table()];
    let states = names.iter().cloned().map(MetaChange::DeleteState).collect();
    cluster.master().meta().commit(states).expect("written");
    // hbase:meta lists the region, so the table is not the rest of a change, even without it.
    let region = cluster.regions_of(empty.name())[0].info().clone();
    cluster.crash();
    cluster.memory.delete(&layout::region_dir(Path::new("/hbase"), &region)).expect("deleted");
    cluster.master().meta().commit(vec![MetaChange::DeleteState(empty.name().clone())]).expect("written");
    cluster.crash();
    all_rows_are_there(&cluster, true, "no states");
    let states = cluster.master().meta().table_states().expect("read");
    for name in names {
        let state = states.iter().find(|(table, _)| *table == name).map(|(_, state)| *state);
        assert_eq!(state, Some(TableState::Enabled), "{name}");
    }
    assert_eq!(cluster.regions_of(empty.name()).len(), 1);
}

#[test]
fn families_that_hbase_meta_lacks_are_added() {
    let mut cluster = Cluster::with_table();
    let dir = layout::table_dir(Path::new("/hbase"), &TableName::meta());
    let whole = descriptors::read(&cluster.memory, &dir).expect("read").expect("there is one");
    let info = whole.family(INFO).expect("there is one").clone();
    let old = TableDescriptor::new(TableName::meta()).with_family(info);
    cluster.end();
    descriptors::write(&cluster.memory, &dir, &old).expect("written");
    cluster.crash();
    all_rows_are_there(&cluster, true, "one family");
    let found = descriptors::read(&cluster.memory, &dir).expect("read").expect("there is one");
    assert_eq!(found.families().len(), 3);
    assert!(!cluster.master().meta().table_states().expect("read").is_empty());
}

#[test]
fn columns_of_merged_regions_are_removed_by_their_names() {
    let cluster = Cluster::with_table();
    let [first, second] = &cluster.regions()[..] else { panic!("two regions") };
    let gone = RegionInfo::new(table_name(), Bytes::new(), Bytes::from("c"), 1);
    let value = evenkeel_protocol::with_magic(&pb::RegionInfo::from(&gone));
    let row = first.info().name();
    let cell = |qualifier: &[u8]| KeyValue::put(row, INFO, qualifier, LATEST_TIMESTAMP, &value);
    let cells = vec![cell(b"mergeA"), cell(b"mergeB")];
    let meta = cluster.master().meta().region();
    meta.mutate_wait(Mutation::new(MutationKind::Put, row.clone(), cells)).expect("written");
    let parents = || {
        let regions = cluster.master().meta().regions(Some(&table_name())).expect("read");
        regions.iter().map(|region| region.merge_parents.len()).collect::<Vec<_>>()
    };
    assert_eq!(parents(), [2, 0]);
    assert_eq!(cluster.master().run_catalog_janitor().expect("ran"), 2);
    assert_eq!(parents(), [0, 0]);
    assert_eq!(cluster.master().run_catalog_janitor().expect("ran"), 0);
    assert!(second.flush().is_ok());
}

/// HBase 2 removed PREFIX_TREE: as there, no region of the table opens until the family is altered.
#[test]
fn a_family_with_a_removed_encoding_is_served_once_it_is_altered() {
    let mut cluster = Cluster::with_table();
    let dir = layout::table_dir(Path::new("/hbase"), &table_name());
    let found = descriptors::read(&cluster.memory, &dir).expect("read").expect("there is one");
    let family = found.family(b"f").expect("there is one").clone();
    let removed = found.clone().with_family(family.clone().with("DATA_BLOCK_ENCODING", "PREFIX_TREE"));
    descriptors::write(&cluster.memory, &dir, &removed).expect("written");
    cluster.crash();
    assert_eq!(cluster.regions().len(), 0);
    assert_eq!(cluster.regions_of(&TableName::namespace_table()).len(), 1, "others are served");
    cluster.run(disable).expect("disabled");
    let altered = |master: &Arc<Master>| master.modify_family(table_name(), family.clone(), NO_NONCE);
    cluster.run(altered).expect("altered");
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
    all_rows_are_there(&cluster, true, "altered");
}
