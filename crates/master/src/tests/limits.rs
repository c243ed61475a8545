//! Limits of what a client can make the master keep.

use super::*;
use crate::namespaces::{DESCRIPTOR_BYTES_MAX, ZNODE_BYTES_MAX};

/// A namespace with a property of `bytes`.
fn namespace(name: &str, bytes: usize) -> pb::NamespaceDescriptor {
    let value = "v".repeat(bytes);
    let property = pb::NameStringPair { name: "property".to_owned(), value };
    pb::NamespaceDescriptor { name: Bytes::from(name.to_owned()), configuration: vec![property] }
}

fn znode_bytes(cluster: &Cluster) -> usize {
    let znodes = cluster.master().znodes();
    let parent = &znodes.paths().namespace;
    let children = znodes.tree().children(parent).expect("there");
    let data = |name: &String| znodes.tree().get(&format!("{parent}/{name}")).expect("there").0.len();
    children.iter().map(data).sum()
}

#[test]
fn a_namespace_descriptor_is_limited() {
    let cluster = Cluster::new();
    let large = namespace("large", DESCRIPTOR_BYTES_MAX);
    let error = cluster.run(|master| master.create_namespace(large.clone(), NO_NONCE)).expect_err("refused");
    assert!(error.is_do_not_retry() && error.message().contains("namespace large"), "{error}");
    cluster.run(|master| master.create_namespace(namespace("large", 1), NO_NONCE)).expect("made");
    let error = cluster.run(|master| master.modify_namespace(large, NO_NONCE)).expect_err("refused");
    assert!(error.is_do_not_retry(), "{error}");
    let fits = namespace("large", DESCRIPTOR_BYTES_MAX - 100);
    cluster.run(|master| master.modify_namespace(fits.clone(), NO_NONCE)).expect("modified");
    assert_eq!(cluster.master().namespaces().get("large"), Ok(fits));
    let long = "n".repeat(256);
    let error = cluster.run(|master| master.create_namespace(namespace(&long, 1), NO_NONCE));
    assert!(error.expect_err("no directory has this name").is_do_not_retry());
    let legal = namespace(&long[1..], 1);
    cluster.run(|master| master.create_namespace(legal, NO_NONCE)).expect("made");
}

#[test]
fn all_namespace_descriptors_together_are_limited() {
    let mut cluster = Cluster::new();
    let size = ZNODE_BYTES_MAX / 5;
    for at in 0..4 {
        let namespace = namespace(&format!("n{at}"), size);
        cluster.run(|master| master.create_namespace(namespace, NO_NONCE)).expect("made");
    }
    let create = |cluster: &Cluster, bytes| {
        cluster.run(|master| master.create_namespace(namespace("n4", bytes), NO_NONCE))
    };
    assert!(create(&cluster, size).expect_err("refused").is_do_not_retry());
    assert!(cluster.master().namespaces().get("n4").is_err());
    create(&cluster, size / 2).expect("made");
    let modified = cluster.run(|master| master.modify_namespace(namespace("n4", size), NO_NONCE));
    assert!(modified.expect_err("refused").is_do_not_retry());
    let modified = cluster.run(|master| master.modify_namespace(namespace("n3", size), NO_NONCE));
    modified.expect("its own node does not count");
    assert!(znode_bytes(&cluster) <= ZNODE_BYTES_MAX);
    // Rows that a client has written are not limited by the master.
    cluster.clock.advance_ms(10);
    for at in 10..20 {
        put_namespace(&cluster, &format!("n{at}"), &namespace(&format!("n{at}"), size));
    }
    cluster.end();
    cluster.start();
    assert!(znode_bytes(&cluster) <= ZNODE_BYTES_MAX, "{}", znode_bytes(&cluster));
    assert!(cluster.master().namespaces().get("n19").is_ok());
}

/// Writes a row of hbase:namespace, as a client can.
fn put_namespace(cluster: &Cluster, row: &str, namespace: &pb::NamespaceDescriptor) {
    let table = TableName::namespace_table();
    let value = prost::Message::encode_to_vec(namespace);
    let cell = KeyValue::put(row.as_bytes(), b"info", b"d", cluster.clock.now_ms(), &value);
    let mutation = Mutation::new(MutationKind::Put, Bytes::from(row.to_owned()), vec![cell]);
    cluster.regions_of(&table)[0].mutate_wait(mutation).expect("written");
}

#[test]
fn a_namespace_row_with_an_illegal_name_does_not_stop_a_start() {
    let mut cluster = Cluster::with_table();
    cluster.run(|master| master.create_namespace(namespace("ns", 1), NO_NONCE)).expect("made");
    cluster.clock.advance_ms(10);
    for (row, name) in [("a/b", "a/b"), ("..", ".."), ("c", "other"), ("nul", "nul\u{0}")] {
        put_namespace(&cluster, row, &namespace(name, 1));
    }
    put_namespace(&cluster, "vast", &namespace("vast", 2 * DESCRIPTOR_BYTES_MAX));
    cluster.end();
    cluster.start();
    let names: Vec<_> =
        cluster.master().namespaces().list().expect("read").into_iter().map(|n| n.name).collect();
    assert_eq!(names, ["default", "hbase", "ns"]);
    let znodes = cluster.master().znodes();
    assert_eq!(znodes.tree().children(&znodes.paths().namespace).expect("there"), ["default", "hbase", "ns"]);
    let error = cluster.master().namespaces().get("c").expect_err("unreadable");
    assert!(error.message().contains("row c: it describes another namespace"), "{error}");
    all_rows_are_there(&cluster, true, "the start succeeds");
}

#[test]
fn a_table_descriptor_stays_limited_when_families_are_added() {
    let cluster = Cluster::with_table();
    let family = |name: &str| {
        let family = ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
        family.with("VALUE", &"v".repeat(400 << 10))
    };
    // All are submitted before the first one is made, so each alone would fit.
    let lock = cluster.master().lock_table(&table_name()).expect("free");
    let submit = |name| cluster.master().add_family(table_name(), family(name), NO_NONCE);
    let ids = ["x", "y", "z"].map(|name| submit(name).expect("submitted"));
    drop(lock);
    let outcomes = ids.map(|id| cluster.run(|_| Ok(id)));
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert!(outcomes[2].as_ref().expect_err("refused").is_do_not_retry());
    assert_eq!(cluster.master().table(&table_name()).expect("there").descriptor.families().len(), 4);
    let modified = cluster.run(|master| master.modify_family(table_name(), family("f"), NO_NONCE));
    assert!(modified.expect_err("refused").is_do_not_retry());
}

#[test]
fn changes_of_single_regions_wait_for_their_table_without_a_thread() {
    let cluster = Cluster::with_table();
    let master = cluster.master();
    let region = encoded(master)[0].clone();
    let lock = master.lock_table(&table_name()).expect("free");
    let submit = |_| master.submit_transit(&region, Master::reopen_region).expect("submitted");
    let ids: Vec<_> = (0..40).map(submit).collect();
    let other: TableName = "other".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(other).with_family(family);
    cluster.run(|master| master.create_table(table, Vec::new(), NO_NONCE)).expect("another table changes");
    assert!(ids.iter().all(|id| master.procedures().state(*id).expect("kept").outcome.is_none()));
    drop(lock);
    ids.iter().for_each(|id| drop(cluster.run(|_| Ok(*id)).expect("moved")));
    let unknown = master.submit_transit("0123456789abcdef0123456789abcdef", Master::assign_region);
    assert_eq!(unknown.expect_err("no such region").kind(), ErrorKind::UnknownRegion);
}

#[test]
fn a_list_of_table_descriptors_names_each_table_once_and_is_charged() {
    let cluster = Cluster::with_table();
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VALUE", &"v".repeat(500 << 10));
    cluster.run(|master| master.modify_family(table_name(), family, NO_NONCE)).expect("modified");
    let list = || {
        let table_names = vec![pb::TableName::from(&table_name()); 200];
        let request = pb::GetTableDescriptorsRequest { table_names, ..Default::default() };
        crate::service::tables::get_table_descriptors(cluster.master(), request)
    };
    assert_eq!(list().expect("listed").table_schema.len(), 1);
    let budget = Arc::clone(cluster.master().parts.regionserver.unsent_budget());
    let taken = budget.free() - (100 << 10);
    assert!(budget.acquire(taken));
    assert_eq!(list().expect_err("no space").kind(), ErrorKind::CallQueueTooBig);
    assert_eq!(budget.used(), taken);
}
