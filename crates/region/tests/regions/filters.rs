//! Filters whose state depends on the families and rows that a scan reads.

use bytes::Bytes;
use evenkeel_protocol::pb;
use evenkeel_region::filter::from_proto;
use evenkeel_region::operations::{FamilyColumns, Scan};
use prost::Message;

use crate::harness::{Cluster, scan, values};

/// A `ColumnCountGetFilter` is meant for Gets. In a Scan it is finished behind the last column of a
/// row, until the next row resets it. HBase asks it about the next row before that.
#[test]
fn a_column_count_ends_the_family_that_passes_it() {
    let cluster = Cluster::new(&[(b"f", 1), (b"k", 1)]);
    for (row, family, value) in
        [("a", "f", "a1"), ("a", "k", "a2"), ("b", "f", "b1"), ("c", "k", "c2"), ("d", "f", "d1")]
    {
        cluster.put(row, family, "q", value).expect("put");
    }
    let counting = |limit, families: &[(&'static str, Option<&'static str>)]| {
        let filter = pb::ColumnCountGetFilter { limit };
        let filter = pb::Filter {
            name: "org.apache.hadoop.hbase.filter.ColumnCountGetFilter".to_owned(),
            serialized_filter: Some(filter.encode_to_vec().into()),
        };
        let families = families.iter().map(|(family, qualifier)| FamilyColumns {
            family: Bytes::from_static(family.as_bytes()),
            qualifiers: qualifier.map(|name| std::iter::once(Bytes::from_static(name.as_bytes())).collect()),
        });
        let filter = Some(from_proto(&filter).expect("legal"));
        Scan { families: families.collect(), filter, ..Scan::default() }
    };
    let shown = |limit, families: &[_]| {
        let cells = scan(cluster.region(), counting(limit, families));
        values(&cells).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (all, column) = ([("f", None), ("k", None)], [("f", None), ("k", Some("q"))]);
    assert_eq!(shown(2, &all), ["a1", "a2", "b1", "c2", "d1"]);
    // Row a passes the limit in k, whose next cell is that of row c.
    for families in [all, column] {
        assert_eq!(shown(1, &families), ["a1", "b1", "d1"], "{families:?}");
    }
}
