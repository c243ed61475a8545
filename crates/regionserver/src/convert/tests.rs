//! Valid requests as clients send them, and invalid ones.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellType, Durability, ErrorKind, HBaseError, KeyValue, RegionInfo};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{ColumnValue, DeleteType, MutationType};
use evenkeel_region::operations::{MobRead, MutationKind, ReadType, Scan, TimeRange};
use evenkeel_rpc::{CellBlockReader, CellBlockWriter, CellCodec};

use super::{mutation, read, region, result};

fn block(cells: &[KeyValue]) -> CellBlockReader {
    let mut writer = CellBlockWriter::new(CellCodec::KeyValue, None);
    cells.iter().for_each(|cell| writer.push(&cell.as_cell()));
    CellBlockReader::new(CellCodec::KeyValue, writer.into_bytes().expect("no compression").into())
}

fn no_block() -> CellBlockReader {
    CellBlockReader::new(CellCodec::KeyValue, Bytes::new())
}

fn put(row: &[u8], value: &[u8]) -> KeyValue {
    KeyValue::put(row, b"f", b"q", 7, value)
}

fn proto(kind: MutationType, row: Option<&'static [u8]>, cells: i32) -> pb::MutationProto {
    pb::MutationProto {
        row: row.map(Bytes::from_static),
        mutate_type: Some(kind as i32),
        associated_cell_count: Some(cells),
        ..pb::MutationProto::default()
    }
}

fn value(
    qualifier: &'static [u8],
    value: Option<&'static [u8]>,
    delete_type: Option<DeleteType>,
) -> QualifierValue {
    QualifierValue {
        qualifier: Some(Bytes::from_static(qualifier)),
        value: value.map(Bytes::from_static),
        delete_type: delete_type.map(|kind| kind as i32),
        ..QualifierValue::default()
    }
}

fn inline(kind: MutationType, values: Vec<QualifierValue>) -> pb::MutationProto {
    pb::MutationProto {
        column_value: vec![ColumnValue { family: Bytes::from_static(b"f"), qualifier_value: values }],
        ..proto(kind, Some(b"r"), 0)
    }
}

fn get_of(proto: &pb::Get, on_demand: bool) -> Result<Scan, HBaseError> {
    read::get(proto, &proto.row, on_demand)
}

fn refused<T>(outcome: Result<T, HBaseError>, text: &str) {
    let error = outcome.err().expect("must be refused");
    assert!(error.is_do_not_retry(), "{error}");
    assert!(error.message().contains(text), "{error}");
}

#[test]
fn cells_come_from_the_block_in_order() {
    let mut block = block(&[put(b"a", b"1"), put(b"a", b"2"), put(b"b", b"3")]);
    let first = mutation::read(&proto(MutationType::Put, Some(b"a"), 2), &mut block, 0).expect("valid");
    let second = mutation::read(&proto(MutationType::Put, None, 1), &mut block, 0).expect("valid");
    assert_eq!(
        first.cells.iter().map(|cell| cell.as_cell().value().to_vec()).collect::<Vec<_>>(),
        [b"1", b"2"]
    );
    assert_eq!((&second.row[..], second.cells[0].as_cell().value()), (&b"b"[..], &b"3"[..]));
    assert_eq!(block.remaining_bytes(), 0);
}

#[test]
fn a_refused_mutation_still_takes_its_cells() {
    let mut block = block(&[put(b"x", b"1"), put(b"a", b"2"), put(b"b", b"3")]);
    refused(
        mutation::read(&proto(MutationType::Put, Some(b"a"), 2), &mut block, 0),
        "doesn't match the original",
    );
    let next = mutation::read(&proto(MutationType::Put, Some(b"b"), 1), &mut block, 0).expect("aligned");
    assert_eq!(next.cells[0].as_cell().value(), b"3");
}

#[test]
fn skipping_takes_exactly_the_cells_of_the_mutation() {
    let mut block = block(&[put(b"a", b"1"), put(b"b", b"2")]);
    mutation::skip(&proto(MutationType::Put, Some(b"a"), 1), &mut block);
    assert_eq!(block.next_cell().expect("cell").expect("cell").as_cell().row(), b"b");
    mutation::skip(&proto(MutationType::Put, Some(b"a"), i32::MAX), &mut block);
    mutation::skip(&proto(MutationType::Put, Some(b"a"), -1), &mut block);
}

#[test]
fn a_block_with_too_few_cells_is_refused() {
    refused(
        mutation::read(&proto(MutationType::Put, Some(b"a"), 1), &mut no_block(), 0),
        "but no cellScanner",
    );
    let mut block = block(&[put(b"a", b"1")]);
    let outcome = mutation::read(&proto(MutationType::Put, Some(b"a"), i32::MAX), &mut block, 0);
    refused(outcome, "but at index 1 no cell returned");
}

#[test]
fn cells_must_fit_their_mutation() {
    let delete = KeyValue::new(b"r", b"f", b"q", 7, CellType::DeleteColumn, b"");
    let maximum = KeyValue::new(b"r", b"f", b"q", 7, CellType::Maximum, b"");
    let no_family = KeyValue::put(b"r", b"", b"q", 7, b"");
    let read = |kind, cell: &KeyValue| {
        mutation::read(&proto(kind, Some(b"r"), 1), &mut block(std::slice::from_ref(cell)), 0)
    };
    assert!(read(MutationType::Delete, &delete).is_ok());
    refused(read(MutationType::Delete, &put(b"r", b"v")), "cannot hold a cell of type 4");
    refused(read(MutationType::Increment, &delete), "cannot hold a cell of type 12");
    refused(read(MutationType::Put, &maximum), "cannot hold a cell of type 255");
    refused(read(MutationType::Put, &no_family), "Family cannot be null");
}

#[test]
fn large_cells_are_refused_with_their_size() {
    let cell = put(b"r", &[0; 100]);
    let size = cell.as_cell().key_value_len() + 4;
    let read = |max| {
        mutation::read(&proto(MutationType::Put, Some(b"r"), 1), &mut block(std::slice::from_ref(&cell)), max)
    };
    assert!(read(size).is_ok());
    refused(read(size - 1), &format!("with size {size} exceeds limit of {} bytes", size - 1));
}

#[test]
fn long_blocks_and_messages_may_have_cells_that_are_too_large() {
    let cell = put(b"r", &[0; 100]);
    let size = cell.as_cell().key_value_len() + 4;
    let in_block = proto(MutationType::Put, Some(b"r"), 1);
    let in_message = inline(MutationType::Put, vec![value(b"q", Some(&[0; 100]), None)]);
    for (proto, mut block) in [(in_block, block(&[cell])), (in_message, no_block())] {
        assert!(mutation::may_exceed(&proto, &block, size - 1), "{proto:?}");
        assert!(!mutation::may_exceed(&proto, &block, 4 * size), "{proto:?}");
        assert!(!mutation::may_exceed(&proto, &block, 0), "0 is no limit");
        assert!(mutation::check_sizes(&proto, &mut block.clone(), size).is_ok());
        refused(mutation::check_sizes(&proto, &mut block, size - 1), "exceeds limit");
    }
}

#[test]
fn cells_may_travel_inside_the_message() {
    let mut proto = inline(MutationType::Put, vec![value(b"q", Some(b"v"), None)]);
    proto.timestamp = Some(5);
    let mutation = mutation::read(&proto, &mut no_block(), 0).expect("valid");
    let cell = mutation.cells[0].as_cell();
    assert_eq!(
        (cell.row(), cell.family(), cell.qualifier(), cell.timestamp()),
        (&b"r"[..], &b"f"[..], &b"q"[..], 5)
    );
    refused(
        mutation::read(&inline(MutationType::Put, vec![value(b"q", None, None)]), &mut no_block(), 0),
        "qualifier value",
    );
    refused(
        mutation::read(&super::tests::proto(MutationType::Put, None, 0), &mut no_block(), 0),
        "row cannot be null",
    );
}

#[test]
fn delete_types_become_cell_types() {
    let types = [
        (None, CellType::Delete),
        (Some(DeleteType::DeleteOneVersion), CellType::Delete),
        (Some(DeleteType::DeleteMultipleVersions), CellType::DeleteColumn),
        (Some(DeleteType::DeleteFamily), CellType::DeleteFamily),
        (Some(DeleteType::DeleteFamilyVersion), CellType::DeleteFamilyVersion),
    ];
    for (wire, kind) in types {
        let proto = inline(MutationType::Delete, vec![value(b"q", None, wire)]);
        let mutation = mutation::read(&proto, &mut no_block(), 0).expect("valid");
        let cell = mutation.cells[0].as_cell();
        assert_eq!(cell.cell_type(), Some(kind));
        let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        assert_eq!(cell.qualifier(), if of_family { &b""[..] } else { &b"q"[..] });
    }
}

#[test]
fn a_delete_of_the_row_has_no_cells() {
    let mut proto = proto(MutationType::Delete, Some(b"r"), 0);
    proto.timestamp = Some(9);
    let mutation = mutation::read(&proto, &mut no_block(), 0).expect("valid");
    assert!(mutation.cells.is_empty());
    assert_eq!((mutation.kind, mutation.timestamp), (MutationKind::Delete, 9));
}

#[test]
fn attributes_options_and_nonces_are_read() {
    let attribute = |name: &str, value: &[u8]| pb::NameBytesPair {
        name: name.into(),
        value: Some(value.to_vec().into()),
    };
    let mut proto = inline(MutationType::Increment, vec![value(b"q", Some(b"\0\0\0\0\0\0\0\x01"), None)]);
    proto.attribute = vec![
        attribute("_ttl", &60_000i64.to_be_bytes()),
        attribute("_rr_", &[0]),
        attribute("VISIBILITY", b"secret"),
    ];
    proto.durability = Some(4);
    proto.nonce = Some(11);
    proto.time_range = Some(pb::TimeRange { from: Some(3), to: None });
    let mutation = mutation::read(&proto, &mut no_block(), 0).expect("valid");
    assert_eq!((mutation.ttl_ms, mutation.return_results, mutation.nonce), (Some(60_000), false, 11));
    assert_eq!(mutation.durability, Durability::FsyncWal);
    assert_eq!(mutation.time_range, TimeRange { min: 3, max: i64::MAX });
    proto.mutate_type = Some(MutationType::Put as i32);
    assert_eq!(mutation::read(&proto, &mut no_block(), 0).expect("valid").nonce, 0, "puts have no nonce");
    proto.attribute = vec![attribute("_ttl", b"short")];
    refused(mutation::read(&proto, &mut no_block(), 0), "_ttl");
}

#[test]
fn unknown_numbers_are_refused() {
    let mut proto = inline(MutationType::Put, vec![value(b"q", Some(b"v"), None)]);
    proto.mutate_type = Some(77);
    refused(mutation::read(&proto, &mut no_block(), 0), "77");
    proto.mutate_type = Some(MutationType::Put as i32);
    proto.durability = Some(78);
    refused(mutation::read(&proto, &mut no_block(), 0), "78");
    let scan = pb::Scan { read_type: Some(79), ..pb::Scan::default() };
    refused(read::scan(&scan, true), "79");
}

#[test]
fn rows_are_checked() {
    let long = Bytes::from(vec![b'r'; 32_768]);
    for (row, text) in [(Bytes::new(), "Row length is 0"), (long.clone(), "Row length 32768 is > 32767")] {
        refused(get_of(&pb::Get { row: row.clone(), ..pb::Get::default() }, true), text);
        let proto = pb::MutationProto { row: Some(row), ..inline(MutationType::Put, Vec::new()) };
        refused(mutation::read(&proto, &mut no_block(), 0), text);
    }
    refused(read::scan(&pb::Scan { stop_row: Some(long), ..pb::Scan::default() }, true), "stopRow's length");
}

#[test]
fn a_get_asks_for_exactly_what_it_names() {
    let column = |family: &'static [u8], qualifiers: &[&'static [u8]]| pb::Column {
        family: Bytes::from_static(family),
        qualifier: qualifiers.iter().map(|q| Bytes::from_static(q)).collect(),
    };
    let proto = pb::Get {
        row: Bytes::from_static(b"r"),
        column: vec![
            column(b"g", &[]),
            column(b"f", &[b"b", b"a"]),
            column(b"f", &[b"b", b""]),
            column(b"h", &[b"x"]),
            column(b"h", &[]),
        ],
        store_limit: Some(3),
        cf_time_range: vec![pb::ColumnFamilyTimeRange {
            column_family: Bytes::from_static(b"f"),
            time_range: pb::TimeRange { from: Some(1), to: Some(2) },
        }],
        ..pb::Get::default()
    };
    let scan = get_of(&proto, false).expect("valid");
    assert!(scan.is_get && scan.include_stop_row && scan.cache_blocks && !scan.load_families_on_demand);
    let names: Vec<_> = scan.families.iter().map(|family| &family.family[..]).collect();
    assert_eq!(names, [&b"f"[..], b"g", b"h"]);
    assert_eq!(scan.families[0].qualifiers.as_deref(), Some(&[Bytes::new(), "a".into(), "b".into()][..]));
    assert_eq!((&scan.families[1].qualifiers, &scan.families[2].qualifiers), (&None, &None));
    assert_eq!((scan.max_versions, scan.store_limit, scan.store_offset), (1, 3, 0));
    assert_eq!(scan.time_range_of(b"f"), TimeRange { min: 1, max: 2 });
    assert_eq!(scan.time_range_of(b"g"), TimeRange::ALL);
}

#[test]
fn scans_of_old_clients_keep_their_meaning() {
    let row = Bytes::from_static(b"r");
    let old = pb::Scan {
        start_row: Some(row.clone()),
        stop_row: Some(row),
        small: Some(true),
        ..pb::Scan::default()
    };
    let request = read::scan(&old, true).expect("valid");
    assert!(request.scan.include_stop_row && request.scan.is_get);
    assert_eq!(request.scan.read_type, ReadType::Pread);
    let new = pb::Scan { include_stop_row: Some(false), ..old };
    assert!(!read::scan(&new, true).expect("valid").scan.include_stop_row);
    let whole = read::scan(&pb::Scan::default(), true).expect("valid").scan;
    assert!(!whole.include_stop_row && !whole.is_get && whole.mvcc_read_point.is_none());
}

#[test]
fn scan_options_and_attributes_are_read() {
    let attribute =
        |name: &str, value: u8| pb::NameBytesPair { name: name.into(), value: Some(vec![value].into()) };
    let proto = pb::Scan {
        attribute: vec![attribute("_raw_", 0xff), attribute("_isolationlevel_", 2)],
        batch_size: Some(4),
        max_result_size: Some(1000),
        mvcc_read_point: Some(12),
        need_cursor_result: Some(true),
        reversed: Some(true),
        ..pb::Scan::default()
    };
    let request = read::scan(&proto, true).expect("valid");
    assert!(
        request.scan.raw && request.scan.read_uncommitted && request.scan.reversed && request.need_cursor
    );
    assert_eq!(
        (request.scan.batch, request.max_result_bytes, request.scan.mvcc_read_point),
        (4, Some(1000), Some(12))
    );
}

#[test]
fn time_ranges_must_make_sense() {
    let get = |from: i64, to: i64| pb::Get {
        row: Bytes::from_static(b"r"),
        time_range: Some(pb::TimeRange { from: Some(from as u64), to: Some(to as u64) }),
        ..pb::Get::default()
    };
    refused(get_of(&get(-1, 5), true), "Timestamp cannot be negative. minStamp:-1, maxStamp:5");
    refused(get_of(&get(6, 5), true), "maxStamp is smaller than minStamp");
    assert_eq!(get_of(&get(5, 5), true).expect("empty but legal").time_range, TimeRange { min: 5, max: 5 });
}

#[test]
fn regions_are_named_by_full_or_encoded_name() {
    let info = RegionInfo::new("t".parse().expect("legal"), Bytes::from_static(b"k"), Bytes::new(), 3);
    let specifier = region::specifier(&info);
    assert_eq!(region::encoded_name(&specifier).expect("valid"), info.encoded_name());
    for kind in [1, 2] {
        let value = info.encoded_name().as_bytes().to_vec().into();
        let encoded = pb::RegionSpecifier { r#type: kind, value };
        assert_eq!(region::encoded_name(&encoded).expect("valid"), info.encoded_name());
        let name = pb::RegionSpecifier { r#type: kind, value: Bytes::from_static(b"hbase:meta,,1") };
        assert_eq!(region::encoded_name(&name).expect("valid"), "1588230740");
        let name = pb::RegionSpecifier { r#type: kind, value: Bytes::from_static(b"hbase:meta,,1_0001") };
        assert_eq!(region::encoded_name(&name).expect("valid"), "534574363");
    }
    let garbage = pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"\xff,,") };
    assert_eq!(region::encoded_name(&garbage).expect_err("garbage").kind(), ErrorKind::NotServingRegion);
}

#[test]
fn results_carry_their_cells_or_count_them() {
    let mut cells = CellBuffer::new();
    cells.push(&put(b"r", b"v").as_cell());
    cells.push(&KeyValue::new(b"r", b"f", b"", 8, CellType::DeleteFamily, b"").as_cell());
    let result = result::with_cells(cells, false, true);
    assert_eq!((result.partial, result.stale, result.cell.len()), (Some(true), Some(false), 2));
    let cell = &result.cell[0];
    assert_eq!((cell.row.as_deref(), cell.value.as_deref()), (Some(&b"r"[..]), Some(&b"v"[..])));
    assert_eq!((cell.timestamp, cell.cell_type, result.cell[1].cell_type), (Some(7), Some(4), Some(14)));
    assert_eq!(result::counted(3, false).associated_cell_count, Some(3));
    assert_eq!(result::counted(0, false), pb::Result::default());
    assert_eq!(result::with_cells(CellBuffer::new(), false, false), pb::Result::default());
}

#[test]
fn exceptions_name_their_class_and_begin_as_java_prints_them() {
    let pair = result::exception(&HBaseError::do_not_retry("no"));
    assert_eq!(pair.name, "org.apache.hadoop.hbase.DoNotRetryIOException");
    let text = pair.value.expect("text");
    assert!(text.starts_with(b"org.apache.hadoop.hbase.DoNotRetryIOException: no\n\tat "));
}

/// Returns a cell block of one cell with tags, whatever its tags are.
fn tagged_block(timestamp: i64, kind: CellType, tags: &[u8]) -> CellBlockReader {
    let mut key_value = KeyValue::new(b"r", b"f", b"q", timestamp, kind, b"").to_bytes().to_vec();
    if !tags.is_empty() {
        key_value.extend(u16::try_from(tags.len()).expect("short").to_be_bytes());
        key_value.extend(tags);
    }
    let len = u32::try_from(key_value.len()).expect("short").to_be_bytes();
    let next = put(b"next", b"").to_bytes();
    let next_len = u32::try_from(next.len()).expect("short").to_be_bytes();
    let block = [&len[..], &key_value, &next_len, &next].concat();
    CellBlockReader::new(CellCodec::KeyValueWithTags, block.into())
}

const KINDS: [(MutationType, CellType); 4] = [
    (MutationType::Put, CellType::Put),
    (MutationType::Delete, CellType::DeleteColumn),
    (MutationType::Append, CellType::Put),
    (MutationType::Increment, CellType::Put),
];

#[test]
fn cells_are_validated_whatever_their_source() {
    let bad_tags: [(&[u8], &str); 5] = [
        (&[7], "Overflow when reading tag length at position=0"),
        (&[0, 0], "Invalid tag length at position=0, tagLength=0"),
        (&[0, 2, 64, 1, 0], "Overflow when reading tag length at position=4"),
        (&[0, 9, 64], "Invalid tag length at position=0, tagLength=9"),
        (&[0, 2, 8, 1], "TTL tag of 1 bytes"),
    ];
    for (mutation, kind) in KINDS {
        for (tags, text) in bad_tags {
            let mut block = tagged_block(7, kind, tags);
            refused(mutation::read(&proto(mutation, Some(b"r"), 1), &mut block, 0), text);
            let next = mutation::read(&proto(MutationType::Put, Some(b"next"), 1), &mut block, 0);
            next.expect("the block goes on behind it");
            let mut value = value(b"q", Some(b""), None);
            value.tags = Some(Bytes::from_static(tags));
            if mutation != MutationType::Delete {
                refused(mutation::read(&inline(mutation, vec![value]), &mut no_block(), 0), text);
            }
        }
        let mut block = tagged_block(7, kind, &[0, 1, 64, 0, 2, 65, 1]);
        mutation::read(&proto(mutation, Some(b"r"), 1), &mut block, 0).expect("whole tags");
        let mut block = tagged_block(-1, kind, &[]);
        let read = mutation::read(&proto(mutation, Some(b"r"), 1), &mut block, 0);
        refused(read, "Timestamp cannot be negative. ts=-1");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused_with_hbases_words() {
    for kind in [MutationType::Put, MutationType::Append, MutationType::Increment] {
        let mut long_tags = value(b"q", Some(b""), None);
        long_tags.tags = Some(vec![0; 65_536].into());
        let read = mutation::read(&inline(kind, vec![long_tags]), &mut no_block(), 0);
        refused(read, "tagslength 65536 > 65535");
        let mut negative = value(b"q", Some(b""), None);
        negative.timestamp = Some(-3i64 as u64);
        let read = mutation::read(&inline(kind, vec![negative]), &mut no_block(), 0);
        refused(read, "Timestamp cannot be negative. ts=-3");
    }
}

#[test]
fn a_malformed_cell_block_is_not_retried() {
    let mut block = CellBlockReader::new(CellCodec::KeyValue, Bytes::from_static(&[0, 0, 0, 9, 0, 0]));
    let read = mutation::read(&proto(MutationType::Put, Some(b"r"), 1), &mut block, 0);
    refused(read, "a length in the cell block extends past its end");
}

#[test]
fn attributes_define_how_mob_values_are_read() {
    let attribute = |name: &str, value: &'static [u8]| pb::NameBytesPair {
        name: name.into(),
        value: Some(Bytes::from_static(value)),
    };
    let scan = |attribute| {
        let proto = pb::Scan { attribute, ..pb::Scan::default() };
        read::scan(&proto, true).expect("legal").scan.mob
    };
    assert_eq!(scan(Vec::new()), MobRead::default());
    let all = [
        "hbase.mob.scan.raw",
        "hbase.mob.scan.ref.only",
        "hbase.mob.cache.blocks",
        "empty.value.on.mobcell.miss",
    ];
    let expected = MobRead { raw: true, references_only: true, cache_blocks: true, empty_on_miss: true };
    assert_eq!(scan(all.map(|name| attribute(name, b"\xff")).to_vec()), expected);
    // As in HBase, a value that is no boolean is not set.
    assert_eq!(scan(all.map(|name| attribute(name, b"true")).to_vec()), MobRead::default());
}
