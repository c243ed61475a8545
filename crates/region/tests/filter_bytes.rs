//! A filter of any kind and size takes no more memory than it is charged for: while it is used, and
//! before that, while it is parsed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use evenkeel_region::filter::{Filter, bytes_to_read, from_proto_sized};
use prost::Message;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Counts the bytes that this thread has allocated and not freed, and their maximum.
struct Counting;

fn count(bytes: isize) {
    let live = LIVE.with(|live| {
        live.set(live.get() + bytes);
        live.get()
    });
    MOST.with(|most| most.set(most.get().max(live)));
}

// SAFETY: every call is passed on unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn of_class(class: &str, message: &impl Message) -> pb::Filter {
    let name = format!("org.apache.hadoop.hbase.filter.{class}");
    pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }
}

fn comparator(class: &str, message: &impl Message) -> pb::Comparator {
    let name = format!("org.apache.hadoop.hbase.filter.{class}");
    pb::Comparator { name, serialized_comparator: Some(message.encode_to_vec().into()) }
}

fn value_filter(comparator: pb::Comparator) -> pb::Filter {
    let op = pb::CompareType::Equal as i32;
    of_class(
        "ValueFilter",
        &pb::ValueFilter {
            compare_filter: pb::CompareFilter { compare_op: op, comparator: Some(comparator) },
        },
    )
}

fn regex(pattern: String) -> pb::Filter {
    let proto =
        pb::RegexStringComparator { pattern, pattern_flags: 0, charset: "UTF-8".to_owned(), engine: None };
    value_filter(comparator("RegexStringComparator", &proto))
}

fn bytes(n: usize) -> Bytes {
    vec![b'x'; n].into()
}

/// `count` distinct short names.
fn names(count: u32) -> Vec<Bytes> {
    (0..count).map(|at| at.to_be_bytes()[2..].to_vec().into()).collect()
}

fn list(filters: Vec<pb::Filter>) -> pb::Filter {
    of_class("FilterList", &pb::FilterList { operator: 2, filters })
}

/// Each kind that has arguments, as large as a message of a megabyte allows.
fn large_filters() -> Vec<(&'static str, pb::Filter)> {
    let comparable = |n| pb::ByteArrayComparable { value: Some(bytes(n)) };
    let range = |row: Bytes| pb::RowRange {
        start_row: Some(row.clone()),
        start_row_inclusive: Some(true),
        stop_row: Some(row),
        stop_row_inclusive: Some(true),
    };
    let fuzzy = |name: Bytes| pb::BytesBytesPair { second: vec![0; name.len()].into(), first: name };
    let small = || of_class("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
    let nested = (0..90).fold(small(), |filter, _| of_class("SkipFilter", &pb::SkipFilter { filter }));
    let sorted = |count| pb::MultipleColumnPrefixFilter { sorted_prefixes: names(count) };
    vec![
        ("long prefix", of_class("PrefixFilter", &pb::PrefixFilter { prefix: Some(bytes(1 << 18)) })),
        ("long column", of_class("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: bytes(1 << 18) })),
        ("column prefixes", of_class("MultipleColumnPrefixFilter", &sorted(15_000))),
        (
            "ranges",
            of_class(
                "MultiRowRangeFilter",
                &pb::MultiRowRangeFilter { row_range_list: names(15_000).into_iter().map(range).collect() },
            ),
        ),
        (
            "fuzzy keys",
            of_class(
                "FuzzyRowFilter",
                &pb::FuzzyRowFilter {
                    fuzzy_keys_data: names(15_000).into_iter().map(fuzzy).collect(),
                    is_mask_v2: None,
                },
            ),
        ),
        (
            "a long fuzzy key",
            of_class(
                "FuzzyRowFilter",
                &pb::FuzzyRowFilter { fuzzy_keys_data: vec![fuzzy(bytes(30_000))], is_mask_v2: None },
            ),
        ),
        (
            "timestamps",
            of_class(
                "TimestampsFilter",
                &pb::TimestampsFilter {
                    timestamps: (0..50_000).map(|at| at % 100).collect(),
                    can_hint: None,
                },
            ),
        ),
        ("a list", list((0..5_000).map(|_| small()).collect())),
        ("nested", nested),
        ("lists in lists", list((0..2_000).map(|_| list(vec![small()])).collect())),
        (
            "a long value",
            value_filter(comparator(
                "BinaryComparator",
                &pb::BinaryComparator { comparable: comparable(1 << 18) },
            )),
        ),
        (
            "long text",
            value_filter(comparator(
                "SubstringComparator",
                &pb::SubstringComparator { substr: "x".repeat(1 << 18) },
            )),
        ),
        ("a short expression", regex("a.*b".to_owned())),
        ("a large expression", regex("(?:[a-z]{50}){30}".to_owned())),
        ("expressions", list((0..20).map(|at| regex(format!("a.*{at}.*b|c+d"))).collect())),
    ]
}

/// Shows the filter some rows, so that it allocates what it needs in use.
fn use_it(filter: &mut Box<dyn Filter>) {
    for row in 0..30_u8 {
        let text: Vec<u8> = (0..300_u32).map(|at| (at.wrapping_mul(u32::from(row) + 7) % 97) as u8).collect();
        let cell = KeyValue::put(&[row, 1], b"f", &text, 5, &text);
        let cell = cell.as_cell();
        drop(filter.filter_row_key(&cell));
        drop(filter.filter_cell(&cell));
        drop(filter.next_cell_hint(&cell));
        drop(filter.filter_row());
        filter.reset();
    }
}

#[test]
fn filter_memory_stays_within_its_charge() {
    for (name, proto) in large_filters() {
        let before = LIVE.with(Cell::get);
        let (mut filter, charged) =
            from_proto_sized(&proto).unwrap_or_else(|error| panic!("{name}: {error}"));
        use_it(&mut filter);
        let taken = (LIVE.with(Cell::get) - before).max(0) as u64;
        assert!(taken <= charged, "{name}: {taken} bytes, charged for {charged}");
        assert!(charged <= taken.max(1 << 16) * 64, "{name}: {taken} bytes, charged for {charged}");
    }
}

/// Filters with many elements that are as small on the wire as the class allows: all keys and
/// lengths are empty.
fn empty_elements() -> Vec<(&'static str, pb::Filter)> {
    let raw = |class: &str, element: &[u8]| {
        let name = format!("org.apache.hadoop.hbase.filter.{class}");
        pb::Filter { name, serialized_filter: Some(element.repeat(100_000).into()) }
    };
    let single = |class: &str, element: &[u8]| {
        let mut filter = raw(class, element);
        filter.serialized_filter = Some(element.to_vec().into());
        filter
    };
    let of_list = |member: pb::Filter| list(vec![member]);
    vec![
        ("members of no class", raw("FilterList", &[0x08, 1, 0x12, 0])),
        ("column prefixes", raw("MultipleColumnPrefixFilter", &[0x0a, 0])),
        ("ranges", raw("MultiRowRangeFilter", &[0x0a, 0])),
        ("fuzzy keys", raw("FuzzyRowFilter", &[0x0a, 0])),
        ("timestamps", raw("TimestampsFilter", &[0x0a, 1, 1])),
        ("qualifiers", raw("FirstKeyValueMatchingQualifiersFilter", &[0x0a, 0])),
        ("ranges in a list", of_list(raw("MultiRowRangeFilter", &[0x0a, 0]))),
        ("members of no class in a list", of_list(raw("FilterList", &[0x08, 1, 0x12, 0]))),
        ("one prefix", single("PrefixFilter", &[0x0a, 0])),
    ]
}

#[test]
fn decoding_a_filter_stays_within_its_estimate() {
    for (name, proto) in large_filters().into_iter().chain(empty_elements()) {
        if name.contains("expression") {
            continue;
        }
        let said = bytes_to_read(&proto);
        let before = LIVE.with(Cell::get);
        MOST.with(|most| most.set(before));
        let read = from_proto_sized(&proto).map(|(_, charged)| charged);
        let taken = (MOST.with(Cell::get) - before).max(0) as u64;
        // The message of a rejection names what it rejects.
        assert!(taken <= said + 8192, "{name}: {taken} bytes, said {said}");
        assert!(read.is_err() || read.is_ok_and(|charged| charged <= said), "{name}: said {said}");
    }
}
