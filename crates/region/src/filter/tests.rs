//! The cells that each filter serves of small tables, forward and reversed.

use evenkeel_common::{CellRef, ErrorKind, KeyValue};
use evenkeel_protocol::pb::{self, CompareType};

use super::testing::*;
use super::{ReplacedValue, ReturnCode};
use CompareType::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NoOp, NotEqual};

const TABLE: &str = "a/f:1=x a/f:2=y b/f:1=y b/g:3=z c/f:2=x d/g:1=y";

fn key_only(len_as_val: bool) -> pb::Filter {
    wire("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val })
}

fn first_key() -> pb::Filter {
    wire("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {})
}

fn page(page_size: i64) -> pb::Filter {
    wire("PageFilter", &pb::PageFilter { page_size })
}

fn prefix(prefix: &[u8]) -> pb::Filter {
    wire("PrefixFilter", &pb::PrefixFilter { prefix: Some(bytes(prefix)) })
}

fn column_prefix(prefix: &[u8]) -> pb::Filter {
    wire("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: bytes(prefix) })
}

fn skip(filter: pb::Filter) -> pb::Filter {
    wire("SkipFilter", &pb::SkipFilter { filter })
}

fn while_match(filter: pb::Filter) -> pb::Filter {
    wire("WhileMatchFilter", &pb::WhileMatchFilter { filter })
}

fn asked(proto: &pb::Filter, input: &str, reversed: bool) -> usize {
    scan(&mut *filter_of(proto), &cells(input), reversed).unwrap().asked
}

#[test]
fn compare_filters_take_each_operator() {
    for (class, op, value, served) in [
        ("RowFilter", Less, "b", "a/f:1=x a/f:2=y"),
        ("RowFilter", LessOrEqual, "b", "a/f:1=x a/f:2=y b/f:1=y b/g:3=z"),
        ("RowFilter", Equal, "b", "b/f:1=y b/g:3=z"),
        ("RowFilter", NotEqual, "b", "a/f:1=x a/f:2=y c/f:2=x d/g:1=y"),
        ("RowFilter", GreaterOrEqual, "c", "c/f:2=x d/g:1=y"),
        ("RowFilter", Greater, "c", "d/g:1=y"),
        ("RowFilter", NoOp, "b", ""),
        ("FamilyFilter", Equal, "g", "b/g:3=z d/g:1=y"),
        ("FamilyFilter", Less, "g", "a/f:1=x a/f:2=y b/f:1=y c/f:2=x"),
        ("FamilyFilter", NoOp, "g", ""),
        ("QualifierFilter", Greater, "1", "a/f:2=y b/g:3=z c/f:2=x"),
        ("QualifierFilter", NoOp, "1", ""),
        ("ValueFilter", GreaterOrEqual, "y", "a/f:2=y b/f:1=y b/g:3=z d/g:1=y"),
        ("ValueFilter", NotEqual, "y", "a/f:1=x b/g:3=z c/f:2=x"),
        ("ValueFilter", NoOp, "y", ""),
    ] {
        assert_serves(&compare(class, op, value.as_bytes()), TABLE, served);
    }
}

#[test]
fn a_compare_filter_without_comparator_fails_when_used() {
    let of = |op: CompareType| {
        let compare_filter = pb::CompareFilter { compare_op: op as i32, comparator: None };
        wire("ValueFilter", &pb::ValueFilter { compare_filter })
    };
    assert_serves(&of(NoOp), TABLE, "");
    let error = scan(&mut *filter_of(&of(Equal)), &cells(TABLE), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IllegalArgument);
}

#[test]
fn dependent_column_keeps_its_timestamps() {
    let input = "a/f:d@1=x a/f:d@2=y a/f:e@1 a/f:e@2 a/f:e@3 b/f:e@1";
    let of = |drop: bool, op: CompareType, value: Option<&[u8]>| {
        let compare_filter = pb::CompareFilter { compare_op: op as i32, comparator: value.map(binary) };
        let proto = pb::DependentColumnFilter {
            compare_filter,
            column_family: Some(bytes(b"f")),
            column_qualifier: Some(bytes(b"d")),
            drop_dependent_column: Some(drop),
        };
        wire("DependentColumnFilter", &proto)
    };
    assert_serves(&of(false, NoOp, None), input, "a/f:d@2=y a/f:d=x a/f:e@2 a/f:e");
    assert_serves(&of(true, NoOp, None), input, "a/f:e@2 a/f:e");
    assert_serves(&of(false, Equal, Some(b"y")), input, "a/f:d@2=y a/f:e@2");
    assert_serves(&of(false, NoOp, Some(b"y")), input, "");
}

fn single_column(op: CompareType, if_missing: bool, latest_only: bool) -> pb::SingleColumnValueFilter {
    pb::SingleColumnValueFilter {
        column_family: Some(bytes(b"f")),
        column_qualifier: Some(bytes(b"q")),
        compare_op: op as i32,
        comparator: binary(b"v"),
        filter_if_missing: Some(if_missing),
        latest_version_only: Some(latest_only),
    }
}

#[test]
fn single_column_value_judges_the_row() {
    let input = "a/f:q@2=v a/f:z b/f:q@2=w b/f:q@1=v b/f:z c/f:z d/f:a d/f:q@1=w";
    for (op, if_missing, latest_only, served) in [
        (Equal, false, true, "a/f:q@2=v a/f:z c/f:z"),
        (Equal, true, true, "a/f:q@2=v a/f:z"),
        (Equal, true, false, "a/f:q@2=v a/f:z b/f:q@2=w b/f:q=v b/f:z"),
        (NotEqual, true, true, "b/f:q@2=w b/f:q=v b/f:z d/f:a d/f:q=w"),
    ] {
        let filter = wire("SingleColumnValueFilter", &single_column(op, if_missing, latest_only));
        assert_serves(&filter, input, served);
    }
    let filter = filter_of(&wire("SingleColumnValueFilter", &single_column(Equal, true, true)));
    assert!(filter.is_family_essential(b"f") && !filter.is_family_essential(b"g"));
    let filter = filter_of(&wire("SingleColumnValueFilter", &single_column(Equal, false, true)));
    assert!(filter.is_family_essential(b"g"));
    let no_op = wire("SingleColumnValueFilter", &single_column(NoOp, false, true));
    assert!(scan(&mut *filter_of(&no_op), &cells(input), false).is_err());
}

#[test]
fn single_column_value_exclude_hides_the_column() {
    let proto =
        pb::SingleColumnValueExcludeFilter { single_column_value_filter: single_column(Equal, true, true) };
    let filter = wire("SingleColumnValueExcludeFilter", &proto);
    assert_serves(&filter, "a/f:a a/f:q@2=v a/f:q@1=w b/f:q=v c/f:q=w c/f:z", "a/f:a");
}

#[test]
fn absent_flags_of_single_column_value_are_false() {
    let proto = pb::SingleColumnValueFilter {
        filter_if_missing: None,
        latest_version_only: None,
        ..single_column(Equal, true, true)
    };
    assert_serves(
        &wire("SingleColumnValueFilter", &proto),
        "b/f:q@2=w b/f:q@1=v c/f:z",
        "b/f:q@2=w b/f:q=v c/f:z",
    );
}

#[test]
fn column_value_serves_only_that_column() {
    let proto = |op: CompareType| pb::ColumnValueFilter {
        family: bytes(b"f"),
        qualifier: bytes(b"q"),
        compare_op: op as i32,
        comparator: binary(b"v"),
    };
    let input = "a/f:a=v a/f:q@3=w a/f:q@2=v a/f:z=v b/f:q=w c/g:q=v";
    assert_serves(&wire("ColumnValueFilter", &proto(Equal)), input, "a/f:q@2=v");
    assert_serves(&wire("ColumnValueFilter", &proto(NotEqual)), input, "a/f:q@3=w b/f:q=w");
    assert_serves(&wire("ColumnValueFilter", &proto(NoOp)), input, "");
    assert!(!filter_of(&wire("ColumnValueFilter", &proto(Equal))).is_family_essential(b"g"));
}

#[test]
fn column_prefixes_seek() {
    let input = "a/f:a a/f:b a/f:b1 a/f:b2 a/f:c b/f:b b/g:b9 c/f:bb";
    let filter = column_prefix(b"b1");
    assert_serves(&filter, input, "a/f:b1");
    assert_serves(&column_prefix(b"b"), input, "a/f:b a/f:b1 a/f:b2 b/f:b b/g:b9 c/f:bb");
    assert_serves(&column_prefix(b""), "a/f:a b/f:", "a/f:a b/f:");
    // a, [b skipped], b1, b2 -> next family
    assert_eq!(asked(&filter, "a/f:a a/f:b a/f:b1 a/f:b2 a/f:c", false), 3);
    // A reversed scan reads rows forward and follows no hint within one.
    assert_serves_reversed(&filter, input, "a/f:b1");
}

#[test]
fn several_column_prefixes() {
    let of = |prefixes: &[&[u8]]| {
        let sorted_prefixes = prefixes.iter().map(|p| bytes(p)).collect();
        wire("MultipleColumnPrefixFilter", &pb::MultipleColumnPrefixFilter { sorted_prefixes })
    };
    let input = "a/f:a a/f:b1 a/f:c a/f:d a/f:d5 a/f:e b/f:e";
    assert_serves(&of(&[b"d", b"b"]), input, "a/f:b1 a/f:d a/f:d5");
    assert_eq!(asked(&of(&[b"d", b"b"]), input, false), 7);
    assert_serves(&of(&[]), "a/f:a b/f:e", "a/f:a b/f:e");
    // The longer prefix hides the shorter.
    assert_serves(&of(&[b"a", b"ab"]), "a/f:a a/f:aa a/f:ab1 a/f:ac", "a/f:a a/f:aa a/f:ab1");
    assert!(filter_error(&of(&[b"a", b"a"])).message().contains("distinct"));
}

#[test]
fn column_ranges() {
    let of = |min: Option<&[u8]>, min_inclusive, max: Option<&[u8]>, max_inclusive| {
        let proto = pb::ColumnRangeFilter {
            min_column: min.map(bytes),
            min_column_inclusive: Some(min_inclusive),
            max_column: max.map(bytes),
            max_column_inclusive: Some(max_inclusive),
        };
        wire("ColumnRangeFilter", &proto)
    };
    let input = "a/f:a a/f:b@2 a/f:b@1 a/f:c a/f:d b/f:a b/f:d";
    assert_serves(&of(Some(b"b"), true, Some(b"c"), true), input, "a/f:b@2 a/f:b a/f:c");
    assert_serves(&of(Some(b"b"), false, Some(b"d"), false), input, "a/f:c");
    assert_serves(&of(None, false, Some(b"b"), false), input, "a/f:a b/f:a");
    assert_serves(&of(Some(b"c"), true, None, false), input, "a/f:c a/f:d b/f:d");
    assert_serves(&of(Some(b""), true, Some(b""), false), input, "");
}

#[test]
fn column_pages() {
    let of = |limit, offset: Option<i32>, from: Option<&[u8]>| {
        let proto = pb::ColumnPaginationFilter { limit, offset, column_offset: from.map(bytes) };
        wire("ColumnPaginationFilter", &proto)
    };
    let input = "a/f:a@2 a/f:a@1 a/f:b a/f:c a/f:d b/f:d b/g:e";
    assert_serves(&of(2, Some(1), None), input, "a/f:b a/f:c b/g:e");
    assert_serves(&of(1, None, None), input, "a/f:a@2 b/f:d");
    assert_serves(&of(0, Some(0), None), input, "");
    assert_serves(&of(i32::MAX, Some(1), None), input, "");
    assert_serves(&of(2, None, Some(b"b")), input, "a/f:b a/f:c b/f:d b/g:e");
    assert_serves(&of(2, Some(7), Some(b"bb")), input, "a/f:c a/f:d b/f:d b/g:e");
    for (limit, offset) in [(-1, 0), (0, -1)] {
        let error = filter_error(&of(limit, Some(offset), None));
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
        assert!(error.message().contains("must be positive -1"), "{error}");
    }
}

#[test]
fn column_count_is_for_one_row() {
    let of = |limit| wire("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit });
    assert_serves(&of(2), "a/f:a@2 a/f:a@1 a/f:b a/f:c b/f:a", "a/f:a@2 a/f:b b/f:a");
    assert!(filter_error(&of(-1)).message().contains("-1"));
    let mut filter = filter_of(&of(0));
    let cells = cells("a/f:a");
    assert_eq!(filter.filter_cell(&cells[0].as_cell()).unwrap(), ReturnCode::NextCol);
    assert!(filter.filter_all_remaining());
    filter.reset();
    assert!(!filter.filter_all_remaining());
}

#[test]
fn prefix_seeks_and_ends() {
    let input = "a/f:1 a/f:2 b/f:1 ba/f:1 bz/f:1 c/f:1 d/f:1";
    assert_serves(&prefix(b"b"), input, "b/f:1 ba/f:1 bz/f:1");
    assert_serves_reversed(&prefix(b"b"), input, "bz/f:1 ba/f:1 b/f:1");
    // One cell before the prefix, three within; the row after ends the scan by its key.
    assert_eq!(asked(&prefix(b"b"), input, false), 4);
    // Reversed, the filter is also called for the row that is the hint.
    assert_eq!(asked(&prefix(b"b"), input, true), 5);
    assert!(scan(&mut *filter_of(&prefix(b"b")), &cells(input), false).unwrap().ended);
    assert_serves(&prefix(b"bb"), input, "");
    assert_serves(&prefix(b""), "a/f:1 b/f:1", "a/f:1 b/f:1");
    assert_serves(&wire("PrefixFilter", &pb::PrefixFilter { prefix: None }), input, "");
}

#[test]
fn a_row_shorter_than_the_prefix_is_before_it() {
    assert_serves(&prefix(b"a\x00"), "a/f:1 a\x00/f:1 a\x00b/f:1", "a\\x00/f:1 a\\x00b/f:1");
}

#[test]
fn a_reversed_prefix_that_ends_in_0xff_loses_no_row() {
    let rows = [&b"a\xff"[..], b"a\xff\x01", b"b"];
    let cells: Vec<_> = rows.iter().map(|row| KeyValue::put(row, b"f", b"q", 1, b"")).collect();
    let served = scan(&mut *filter_of(&prefix(b"a\xff")), &cells, true).unwrap();
    assert_eq!(served.text(), r"a\xff\x01/f:q a\xff/f:q");
    let served = scan(&mut *filter_of(&prefix(b"\xff")), &cells, true).unwrap();
    assert_eq!(served.text(), "");
}

#[test]
fn inclusive_stop_in_both_directions() {
    let of =
        |row: &[u8]| wire("InclusiveStopFilter", &pb::InclusiveStopFilter { stop_row_key: Some(bytes(row)) });
    let input = "a/f:1 b/f:1 c/f:1 d/f:1";
    assert_serves(&of(b"b"), input, "a/f:1 b/f:1");
    assert_serves_reversed(&of(b"c"), input, "d/f:1 c/f:1");
    assert!(scan(&mut *filter_of(&of(b"b")), &cells(input), false).unwrap().ended);
}

#[test]
fn pages_count_served_rows() {
    assert_serves(&page(2), TABLE, "a/f:1=x a/f:2=y b/f:1=y b/g:3=z");
    assert_serves(&page(0), TABLE, "");
    assert!(filter_error(&page(-1)).message().contains("must be positive"));
    let refuse_a = || compare("RowFilter", NotEqual, b"a");
    assert_serves(&all(vec![refuse_a(), page(1)]), TABLE, "b/f:1=y b/g:3=z");
    let refuse_x = || wire("SingleColumnValueFilter", &single_column(Equal, true, true));
    let input = "a/f:a a/f:q=w b/f:q=v c/f:q=v d/f:q=v";
    assert_serves(&all(vec![refuse_x(), page(2)]), input, "b/f:q=v c/f:q=v");
    // In the other order, the page also counts the rejected row.
    assert_serves(&all(vec![page(2), refuse_x()]), input, "b/f:q=v");
}

#[test]
fn random_rows_at_the_edges() {
    let of = |chance| wire("RandomRowFilter", &pb::RandomRowFilter { chance });
    assert_serves(&of(-0.5), TABLE, "");
    assert_serves(&of(0.0), TABLE, "");
    assert_serves(&of(f32::NAN), TABLE, "");
    assert_serves(&of(1.0), TABLE, TABLE);
    assert_serves(&of(2.0), TABLE, TABLE);
    let mut filter = filter_of(&of(0.25));
    let cells = cells("a/f:1");
    let taken = (0..10_000).filter(|_| !filter.filter_row_key(&cells[0].as_cell()).unwrap()).count();
    assert!((2_000..3_000).contains(&taken), "{taken}");
}

#[test]
fn filter_all_serves_nothing() {
    assert_serves(&wire("FilterAllFilter", &pb::FilterAllFilter {}), TABLE, "");
}

fn fuzzy(keys: &[(&[u8], &[u8])], v2: Option<bool>) -> pb::Filter {
    let pair =
        |(first, second): &(&[u8], &[u8])| pb::BytesBytesPair { first: bytes(first), second: bytes(second) };
    wire(
        "FuzzyRowFilter",
        &pb::FuzzyRowFilter { fuzzy_keys_data: keys.iter().map(pair).collect(), is_mask_v2: v2 },
    )
}

#[test]
fn fuzzy_masks_as_clients_send_them() {
    let input = "a1x/f:q a2x/f:q a2y/f:q b1x/f:q b9y/f:q c/f:q";
    for (mask, v2) in [
        (&[0u8, 1, 0][..], None),
        (&[0, 1, 0], Some(false)),
        (&[0, 1, 0], Some(true)),
        (&[0xff, 0, 0xff], Some(false)),
        (&[0xff, 2, 0xff], Some(true)),
    ] {
        let filter = fuzzy(&[(b"b?x", mask)], v2);
        assert_serves(&filter, input, "b1x/f:q");
        assert_serves_reversed(&filter, input, "b1x/f:q");
    }
    // All zeros: read as already converted, all free, in the first version; as fixed in the second.
    assert_serves(&fuzzy(&[(b"b9y", &[0, 0, 0])], None), "a1x/f:q b9y/f:q", "a1x/f:q b9y/f:q");
    assert_serves(&fuzzy(&[(b"b9y", &[0, 0, 0])], Some(true)), "a1x/f:q b9y/f:q", "b9y/f:q");
    assert!(filter_error(&fuzzy(&[(b"ab", &[0])], None)).message().contains("lengths"));
    assert_eq!(filter_error(&fuzzy(&[], None)).kind(), ErrorKind::DoNotRetry);
}

#[test]
fn fuzzy_seeks_over_what_cannot_match() {
    let input: String = (0..1000).map(|i| format!("{i:03}/f:q ")).collect();
    let filter = fuzzy(&[(b"?05", &[1, 0, 0]), (b"99?", &[0, 0, 1])], Some(true));
    let served = scan(&mut *filter_of(&filter), &cells(&input), false).unwrap();
    assert_eq!(served.cells.len(), 20);
    assert!(served.asked < 60, "{}", served.asked);
    let served = scan(&mut *filter_of(&filter), &cells(&input), true).unwrap();
    assert_eq!(served.cells.len(), 20);
    assert!(served.asked < 60, "{}", served.asked);
}

#[test]
fn fuzzy_serves_only_matching_rows() {
    let mut state = 11;
    for round in 0..3000 {
        let mut random = |n: u64| next_random(&mut state) % n;
        // Few letters, including the extremes, and rows no shorter than keys: the filter may skip
        // shorter ones.
        let letters = [0u8, 1, 0x7f, 0x80, 0xff];
        let keys: Vec<Vec<Option<u8>>> = (0..1 + random(3))
            .map(|_| {
                (0..1 + random(3)).map(|_| (random(2) == 0).then(|| letters[random(5) as usize])).collect()
            })
            .collect();
        let mut rows: Vec<Vec<u8>> = (0..random(40))
            .map(|_| (0..3 + random(2)).map(|_| letters[random(5) as usize]).collect())
            .collect();
        rows.sort();
        rows.dedup();
        let matches =
            |row: &Vec<u8>| keys.iter().any(|k| k.iter().zip(row).all(|(k, r)| k.is_none_or(|k| k == *r)));
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = keys
            .iter()
            .map(|k| {
                (
                    k.iter().map(|b| b.unwrap_or(9)).collect(),
                    k.iter().map(|b| if b.is_some() { 0xff } else { 2 }).collect(),
                )
            })
            .collect();
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(k, m)| (&k[..], &m[..])).collect();
        let table: Vec<_> = rows.iter().map(|row| KeyValue::put(row, b"f", b"q", 1, b"")).collect();
        for reversed in [false, true] {
            let served = scan(&mut *filter_of(&fuzzy(&pairs, Some(true))), &table, reversed).unwrap();
            let mut served: Vec<Vec<u8>> = served.cells.iter().map(|c| c.row().to_vec()).collect();
            if reversed {
                served.reverse();
            }
            let expected: Vec<Vec<u8>> = rows.iter().filter(|r| matches(r)).cloned().collect();
            assert_eq!(served, expected, "round {round} {keys:?} reversed {reversed}");
        }
    }
}

fn range(start: &str, start_inclusive: bool, stop: &str, stop_inclusive: bool) -> pb::RowRange {
    pb::RowRange {
        start_row: Some(bytes(start.as_bytes())),
        start_row_inclusive: Some(start_inclusive),
        stop_row: Some(bytes(stop.as_bytes())),
        stop_row_inclusive: Some(stop_inclusive),
    }
}

fn ranges(row_range_list: Vec<pb::RowRange>) -> pb::Filter {
    wire("MultiRowRangeFilter", &pb::MultiRowRangeFilter { row_range_list })
}

#[test]
fn row_ranges_in_both_directions() {
    let input = "a/f:q b/f:q c/f:q d/f:q e/f:q f/f:q g/f:q";
    let filter = ranges(vec![
        range("e", false, "f", true),
        range("b", true, "c", false),
        range("bb", true, "d", false),
    ]);
    assert_serves(&filter, input, "b/f:q c/f:q f/f:q");
    assert_serves_reversed(&filter, input, "f/f:q c/f:q b/f:q");
    let open = ranges(vec![range("", true, "b", false), range("f", true, "", false)]);
    assert_serves(&open, input, "a/f:q f/f:q g/f:q");
    assert_serves_reversed(&open, input, "g/f:q f/f:q a/f:q");
    assert_serves(&ranges(vec![range("c", true, "c", true)]), input, "c/f:q");
    assert!(
        scan(&mut *filter_of(&ranges(vec![range("b", true, "c", true)])), &cells(input), false)
            .unwrap()
            .ended
    );
    for bad in [vec![], vec![range("b", true, "a", true)], vec![range("b", true, "b", false)]] {
        assert_eq!(filter_error(&ranges(bad)).kind(), ErrorKind::DoNotRetry);
    }
}

#[test]
fn row_ranges_serve_their_union() {
    let mut state = 5;
    let rows: Vec<String> = (0..20).map(|i| format!("{i:02}")).collect();
    let input: String = rows.iter().map(|r| format!("{r}/f:q ")).collect();
    for _ in 0..3000 {
        let mut random = |n: u64| next_random(&mut state) % n;
        let mut list = Vec::new();
        for _ in 0..1 + random(5) {
            let (from, to) = (random(21), random(22));
            let name = |i: u64, open: u64| if i == open { String::new() } else { format!("{i:02}") };
            let (from, to) = (name(from, 20), name(to, 21));
            let (from_in, to_in) = (random(2) == 0, random(2) == 0);
            if from.is_empty() || to.is_empty() || from < to || (from == to && to_in) {
                list.push(range(&from, from_in, &to, to_in));
            }
        }
        if list.is_empty() {
            continue;
        }
        let within = |row: &str, r: &pb::RowRange| {
            let (start, stop) = (r.start_row.as_deref().unwrap(), r.stop_row.as_deref().unwrap());
            let row = row.as_bytes();
            (row > start || (row == start && r.start_row_inclusive()))
                && (stop.is_empty() || row < stop || (row == stop && r.stop_row_inclusive()))
        };
        let mut expected: Vec<_> = rows
            .iter()
            .filter(|row| list.iter().any(|r| within(row, r)))
            .map(|r| format!("{r}/f:q"))
            .collect();
        let filter = ranges(list.clone());
        assert_serves(&filter, &input, &expected.join(" "));
        expected.reverse();
        assert_serves_reversed(&filter, &input, &expected.join(" "));
    }
}

#[test]
fn row_ranges_seek() {
    let input: String = (0..100).map(|i| format!("{i:02}/f:q ")).collect();
    let filter = ranges(vec![range("20", true, "22", false), range("90", true, "91", false)]);
    assert_eq!(asked(&filter, &input, false), 6);
    assert_eq!(asked(&filter, &input, true), 8);
}

#[test]
fn key_only_replaces_values() {
    assert_serves(&key_only(false), "a/f:1=xyz a/f:2", "a/f:1 a/f:2");
    assert_serves(&key_only(true), "a/f:1=xyz a/f:2", r"a/f:1=\x00\x00\x00\x03 a/f:2=\x00\x00\x00\x00");
    // Within lists and wrappers, two transforms in sequence.
    assert_serves(&all(vec![key_only(true), key_only(true)]), "a/f:1=xyz", r"a/f:1=\x00\x00\x00\x04");
    assert_serves(
        &all(vec![skip(key_only(false)), while_match(key_only(true))]),
        "a/f:1=xyz",
        r"a/f:1=\x00\x00\x00\x00",
    );
    // In an OR, only members that include the cell replace its value.
    let either = any(vec![
        all(vec![compare("QualifierFilter", Equal, b"1"), key_only(false)]),
        compare("QualifierFilter", Equal, b"2"),
    ]);
    assert_serves(&either, "a/f:1=x a/f:2=y a/f:3=z", "a/f:1 a/f:2=y");
    assert_eq!(
        filter_of(&key_only(false)).transform(&cells("a/f:1=x")[0].as_cell()),
        Some(ReplacedValue::Empty)
    );
}

#[test]
fn first_keys() {
    assert_serves(&first_key(), TABLE, "a/f:1=x b/f:1=y c/f:2=x d/g:1=y");
    let proto = pb::FirstKeyValueMatchingQualifiersFilter { qualifiers: vec![bytes(b"3"), bytes(b"2")] };
    let filter = wire("FirstKeyValueMatchingQualifiersFilter", &proto);
    assert_serves(&filter, "a/f:1 a/f:2@2 a/f:2@1 a/f:3 b/f:1 b/g:3 b/g:4", "a/f:1 a/f:2@2 b/f:1 b/g:3");
}

#[test]
fn timestamps_with_and_without_hints() {
    let of = |timestamps: &[i64], can_hint| {
        wire(
            "TimestampsFilter",
            &pb::TimestampsFilter { timestamps: timestamps.to_vec(), can_hint: Some(can_hint) },
        )
    };
    let input = "a/f:1@9 a/f:1@8 a/f:1@7 a/f:1@5 a/f:1@2 a/f:2@5 b/f:1@3";
    for can_hint in [false, true] {
        assert_serves(&of(&[5, 9], can_hint), input, "a/f:1@9 a/f:1@5 a/f:2@5");
        assert_serves(&of(&[], can_hint), input, "");
    }
    assert_eq!(asked(&of(&[5, 9], false), input, false), 7);
    assert_eq!(asked(&of(&[5, 9], true), input, false), 6);
    assert!(filter_error(&of(&[1, -4], false)).message().contains("-4"));
}

#[test]
fn skip_drops_rows_with_any_refusal() {
    assert_serves(&skip(compare("ValueFilter", NotEqual, b"x")), TABLE, "b/f:1=y b/g:3=z d/g:1=y");
    // Any code but Include is a rejection, even one that takes the cell.
    let page = pb::ColumnPaginationFilter { limit: 5, offset: Some(0), column_offset: None };
    assert_serves(&skip(wire("ColumnPaginationFilter", &page)), TABLE, "");
    // The row key is not delegated, so a row filter has no effect.
    assert_serves(&skip(compare("RowFilter", Equal, b"b")), TABLE, TABLE);
}

#[test]
fn while_match_ends_the_scan() {
    assert_serves(&while_match(compare("RowFilter", Less, b"c")), TABLE, "a/f:1=x a/f:2=y b/f:1=y b/g:3=z");
    let served =
        scan(&mut *filter_of(&while_match(compare("ValueFilter", NotEqual, b"z"))), &cells(TABLE), false)
            .unwrap();
    assert_eq!(served.text(), "a/f:1=x a/f:2=y b/f:1=y");
    assert!(served.ended);
    // The direction is not delegated: the inner filter assumes a forward scan.
    assert_serves_reversed(&while_match(prefix(b"b")), TABLE, "");
}

#[test]
fn a_wrapper_forwards_everything_but_the_direction() {
    let wrapped = |filter: pb::Filter| wire("FilterWrapper", &pb::FilterWrapper { filter });
    assert_serves(&wrapped(prefix(b"b")), TABLE, "b/f:1=y b/g:3=z");
    assert_serves(&wrapped(key_only(false)), "a/f:1=x", "a/f:1");
    // Both it and the scan call it for each row.
    assert_serves(&wrapped(page(2)), TABLE, "a/f:1=x a/f:2=y");
}

#[test]
fn empty_lists_pass_everything() {
    assert_serves(&all(vec![]), TABLE, TABLE);
    assert_serves(&any(vec![]), TABLE, TABLE);
}

#[test]
fn an_and_stops_counting_at_a_refusal() {
    let two = || {
        wire(
            "ColumnPaginationFilter",
            &pb::ColumnPaginationFilter { limit: 1, offset: Some(0), column_offset: None },
        )
    };
    let not_1 = || compare("QualifierFilter", NotEqual, b"1");
    assert_serves(&all(vec![not_1(), two()]), "a/f:1 a/f:2 a/f:3", "a/f:2");
    assert_serves(&all(vec![two(), not_1()]), "a/f:1 a/f:2 a/f:3", "");
}

#[test]
fn an_or_skips_finished_members() {
    let first = first_key;
    let is_3 = || compare("QualifierFilter", Equal, b"3");
    assert_serves(&any(vec![first(), is_3()]), "a/f:1 a/f:2 a/f:3 b/f:2", "a/f:1 a/f:3 b/f:2");
    let count = wire("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit: 1 });
    assert_serves(&any(vec![count, is_3()]), "a/f:1@2 a/f:1@1 a/f:2 a/f:3", "a/f:1@2 a/f:3");
}

#[test]
fn lists_combine_the_hints_of_their_members() {
    let input: String = (0..100).map(|i| format!("r/f:{i:02} ")).collect();
    let both = all(vec![column_prefix(b"5"), column_prefix(b"57")]);
    assert_serves(&both, &input, "r/f:57");
    assert!(asked(&both, &input, false) < 5);
    let either = any(vec![column_prefix(b"57"), column_prefix(b"81")]);
    assert_serves(&either, &input, "r/f:57 r/f:81");
    // Between the two, the first is done with the row and the other waits for its hint.
    assert!(asked(&either, &input, false) < 30);
    // A rejection does not hide the hint of a later member.
    let late = all(vec![compare("ValueFilter", Equal, b"x"), column_prefix(b"57")]);
    assert_eq!(asked(&late, &input, false), 1 + 43);
    // Neither does a rejected row key.
    let rows = "a/f:q b/f:q c/f:q d/f:q";
    assert_serves(&all(vec![compare("RowFilter", NotEqual, b"a"), prefix(b"d")]), rows, "d/f:q");
    assert_eq!(asked(&all(vec![compare("RowFilter", NotEqual, b"a"), prefix(b"d")]), rows, false), 2);
    let either = any(vec![prefix(b"b"), prefix(b"d")]);
    assert_serves(&either, rows, "b/f:q d/f:q");
    assert_serves_reversed(&either, rows, "d/f:q b/f:q");
}

/// A condition on a single cell, as filters and as a plain function.
#[derive(Debug)]
enum Condition {
    Qualifier(CompareType, u8),
    Value(CompareType, u8),
    ColumnPrefix(u8),
    ColumnRange(u8, u8),
    Timestamp(i64, bool),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

impl Condition {
    fn random(state: &mut u64, depth: usize) -> Self {
        let mut random = |n: u64| next_random(state) % n;
        let letter = b'a' + random(4) as u8;
        let op = [Less, LessOrEqual, Equal, NotEqual, GreaterOrEqual, Greater, NoOp][random(7) as usize];
        let (kind, other, timestamp) =
            (random(if depth > 0 { 8 } else { 5 }), b'a' + random(4) as u8, 1 + random(3) as i64);
        let hint = random(2) == 0;
        match kind {
            0 => Self::Qualifier(op, letter),
            1 => Self::Value(op, letter),
            2 => Self::ColumnPrefix(letter),
            3 => Self::ColumnRange(letter, other),
            4 => Self::Timestamp(timestamp, hint),
            _ => {
                let members = (0..1 + random(3)).map(|_| ()).collect::<Vec<_>>();
                let members = members.iter().map(|()| Self::random(state, depth - 1)).collect();
                if hint { Self::All(members) } else { Self::Any(members) }
            }
        }
    }

    fn filter(&self) -> pb::Filter {
        match self {
            Self::Qualifier(op, letter) => compare("QualifierFilter", *op, &[*letter]),
            Self::Value(op, letter) => compare("ValueFilter", *op, &[*letter]),
            Self::ColumnPrefix(letter) => column_prefix(&[*letter]),
            Self::ColumnRange(min, max) => {
                let proto = pb::ColumnRangeFilter {
                    min_column: Some(bytes(&[*min])),
                    min_column_inclusive: Some(true),
                    max_column: Some(bytes(&[*max])),
                    max_column_inclusive: Some(false),
                };
                wire("ColumnRangeFilter", &proto)
            }
            Self::Timestamp(t, hint) => wire(
                "TimestampsFilter",
                &pb::TimestampsFilter { timestamps: vec![*t], can_hint: Some(*hint) },
            ),
            Self::All(members) => all(members.iter().map(Self::filter).collect()),
            Self::Any(members) => any(members.iter().map(Self::filter).collect()),
        }
    }

    fn holds(&self, cell: &CellRef<'_>) -> bool {
        let test = |op: &CompareType, part: &[u8], letter: u8| match op {
            Less => part < &[letter][..],
            LessOrEqual => part <= &[letter][..],
            Equal => part == [letter],
            NotEqual => part != [letter],
            GreaterOrEqual => part >= &[letter][..],
            Greater => part > &[letter][..],
            NoOp => false,
        };
        match self {
            Self::Qualifier(op, letter) => test(op, cell.qualifier(), *letter),
            Self::Value(op, letter) => test(op, cell.value(), *letter),
            Self::ColumnPrefix(letter) => cell.qualifier().starts_with(&[*letter]),
            Self::ColumnRange(min, max) => cell.qualifier() >= &[*min][..] && cell.qualifier() < &[*max][..],
            Self::Timestamp(t, _) => cell.timestamp() == *t,
            Self::All(members) => members.iter().all(|m| m.holds(cell)),
            Self::Any(members) => members.iter().any(|m| m.holds(cell)),
        }
    }
}

#[test]
fn lists_are_boolean_formulas() {
    let mut state = 99;
    for round in 0..4000 {
        let condition = Condition::random(&mut state, 3);
        let mut table: Vec<KeyValue> = (0..next_random(&mut state) % 40)
            .map(|_| {
                let mut random = |n: u64| next_random(&mut state) % n;
                let mut letter = || b'a' + random(4) as u8;
                let (row, family, qualifier, value) = (letter(), letter(), [letter(), letter()], letter());
                let qualifier_len = 1 + random(2) as usize;
                KeyValue::put(&[row], &[family], &qualifier[..qualifier_len], 1 + random(3) as i64, &[value])
            })
            .collect();
        table.sort_by(|a, b| evenkeel_common::CellComparator::Default.compare(&a.as_cell(), &b.as_cell()));
        table.dedup_by(|a, b| a.as_cell().key() == b.as_cell().key());
        for reversed in [false, true] {
            let served = scan(&mut *filter_of(&condition.filter()), &table, reversed).unwrap();
            let mut rows: Vec<&[KeyValue]> =
                table.chunk_by(|a, b| a.as_cell().same_row(&b.as_cell())).collect();
            if reversed {
                rows.reverse();
            }
            let expected: Vec<_> =
                rows.concat().into_iter().filter(|c| condition.holds(&c.as_cell())).collect();
            let served: Vec<_> = served.cells.iter().map(|c| KeyValue::copy_of(&c)).collect();
            assert_eq!(served, expected, "round {round} reversed {reversed}: {condition:?}");
        }
    }
}
