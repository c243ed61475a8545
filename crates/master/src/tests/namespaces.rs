//! Namespaces: deletion beside the creation of a table, and rows that cannot be read.

use super::*;

#[test]
fn a_namespace_with_tables_is_not_deleted() {
    let cluster = Cluster::new();
    let namespace = pb::NamespaceDescriptor { name: Bytes::from("ns"), configuration: Vec::new() };
    cluster.run(|master| master.create_namespace(namespace, NO_NONCE)).expect("made");
    let table = TableDescriptor::new(TableName::new("ns", "t").expect("legal"));
    let table = table.with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    // Both are submitted at once. Whichever runs first, no table is left without a namespace or
    // directory.
    let ids = [
        cluster.master().create_table(table.clone(), Vec::new(), NO_NONCE),
        cluster.master().delete_namespace("ns".into(), NO_NONCE),
    ];
    let outcomes = ids.map(|id| cluster.run(|_| id));
    let made = cluster.master().table(table.name()).is_ok();
    assert_eq!((outcomes[0].is_ok(), outcomes[1].is_err()), (made, made));
    assert_eq!(cluster.master().namespaces().get("ns").is_ok(), made);
    assert_eq!(cluster.memory.exists(&path("data/ns/t/.tabledesc")).expect("looked"), made);
}

#[test]
fn a_namespace_that_cannot_be_read_does_not_stop_a_start() {
    let mut cluster = Cluster::with_table();
    let named =
        |name: &'static str| pb::NamespaceDescriptor { name: Bytes::from(name), configuration: Vec::new() };
    for name in ["ns", "other"] {
        cluster.run(|master| master.create_namespace(named(name), NO_NONCE)).expect("made");
    }
    let table = TableName::new("hbase", "namespace").expect("legal");
    cluster.clock.advance_ms(10);
    for name in ["ns", "default"] {
        // A field of 100 bytes, of which two are present.
        let cell = KeyValue::put(name.as_bytes(), b"info", b"d", cluster.clock.now_ms(), b"\x0a\x64ab");
        let mutation = Mutation::new(MutationKind::Put, Bytes::from(name), vec![cell]);
        cluster.regions_of(&table)[0].mutate_wait(mutation).expect("written");
    }
    cluster.end();
    cluster.start();
    let names: Vec<_> =
        cluster.master().namespaces().list().expect("read").into_iter().map(|n| n.name).collect();
    assert_eq!(names, ["default", "hbase", "other"]);
    assert!(cluster.master().namespaces().get("ns").is_err_and(|error| error.message().contains("row ns")));
    all_rows_are_there(&cluster, true, "default is made again");
}
