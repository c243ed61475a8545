//! Rules of versions, deletes, times and filters, tested singly. Each rule is checked three times:
//! with all cells in the MemStore, with each in its own file, and with all in one file.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::{KeyValueBuilder, tag_type};
use evenkeel_common::{
    Budget, CellBuffer, CellComparator, CellRef, CellType, Charge, ErrorKind, KeyBuf, KeyValue, Result,
    TryResult,
};

use super::RegionScanner;
use crate::filter::{Filter, ReturnCode};
use crate::operations::{Families, FamilyColumns, Scan, TimeRange};
use crate::scanner::{LimitScope, NextState, ReplyCharge, ScannerContext};
use crate::store::Store;
use crate::store::testing::{NOW_MS, TestStore, drain, env, family, region};

/// `row qualifier timestamp kind value`; `-` for the empty qualifier. Kinds: P(ut), D(elete),
/// C(olumn), F(amily), V(ersion of the family).
fn parse(line: &str) -> KeyValue {
    let parts: Vec<&str> = line.split_whitespace().collect();
    let kind = match parts[3] {
        "P" => CellType::Put,
        "D" => CellType::Delete,
        "C" => CellType::DeleteColumn,
        "F" => CellType::DeleteFamily,
        "V" => CellType::DeleteFamilyVersion,
        other => panic!("kind {other}"),
    };
    let qualifier = parts[1].trim_start_matches('-').as_bytes();
    let value = parts.get(4).copied().unwrap_or("").as_bytes();
    KeyValue::new(parts[0].as_bytes(), b"f", qualifier, parts[2].parse().expect("number"), kind, value)
}

/// Checks a rule with the cells in every place; `lines` are written in order.
fn check(attributes: &[(&str, &str)], lines: &[&str], scan: impl Fn() -> Scan, expected: &[&str]) {
    for place in ["memstore", "files", "one file"] {
        let mut test = TestStore::new(attributes);
        for line in lines {
            test.add_cell(parse(line));
            if place == "files" {
                test.flush(0);
            }
        }
        if place == "one file" {
            test.flush(0);
        }
        assert_eq!(test.scan(scan()), expected, "{place}: {lines:?}");
    }
}

fn versions(max_versions: u32) -> Scan {
    Scan { max_versions, ..Scan::default() }
}

fn column(qualifier: &'static str) -> Families {
    columns(&[qualifier])
}

fn columns(qualifiers: &[&'static str]) -> Families {
    let qualifiers = qualifiers.iter().map(|q| Bytes::from_static(q.as_bytes())).collect();
    [FamilyColumns { family: Bytes::from_static(b"f"), qualifiers: Some(qualifiers) }].into()
}

const THREE: &[(&str, &str)] = &[("VERSIONS", "3")];

#[test]
fn versions_are_limited_by_family_and_scan() {
    let lines = ["r q 1 P a", "r q 2 P b", "r q 3 P c", "r q 4 P d"];
    check(THREE, &lines, || versions(1), &["r/q/4/d"]);
    check(THREE, &lines, || versions(9), &["r/q/4/d", "r/q/3/c", "r/q/2/b"]);
    check(THREE, &["r q 1 P a", "r q 1 P b", "r q 0 P z"], || versions(2), &["r/q/1/b", "r/q/0/z"]);
}

#[test]
fn delete_markers_hide_the_cells_they_cover() {
    let puts = ["r - 2 P e", "r a 1 P a1", "r a 2 P a2", "r a 3 P a3", "r b 2 P b2"];
    let cases: &[(&str, &[&str])] = &[
        ("r a 2 D", &["r//2/e", "r/a/3/a3", "r/a/1/a1", "r/b/2/b2"]),
        ("r a 2 C", &["r//2/e", "r/a/3/a3", "r/b/2/b2"]),
        ("r - 2 F", &["r/a/3/a3"]),
        ("r - 2 V", &["r/a/3/a3", "r/a/1/a1"]),
        ("r - 2 C", &["r/a/3/a3", "r/a/2/a2", "r/a/1/a1", "r/b/2/b2"]),
        ("s a 9 C", &["r//2/e", "r/a/3/a3", "r/a/2/a2", "r/a/1/a1", "r/b/2/b2"]),
    ];
    for (marker, expected) in cases {
        let lines: Vec<&str> = puts.iter().copied().chain([*marker]).collect();
        check(THREE, &lines, || versions(3), expected);
        let before: Vec<&str> = [*marker].into_iter().chain(puts).collect();
        check(THREE, &before, || versions(3), expected);
    }
}

#[test]
fn family_markers_are_seen_by_scans_of_a_column() {
    for marker in ["r - 2 F", "r - 2 V"] {
        let lines = ["r - 3 P e", "r a 2 P a", "r b 3 P b", marker];
        let scan = || Scan { families: columns(&["", "a", "b"]), ..versions(3) };
        check(THREE, &lines, scan, &["r//3/e", "r/b/3/b"]);
        check(THREE, &lines, || Scan { families: column("a"), ..Scan::get("r") }, &[]);
        let rowcol = [("BLOOMFILTER", "ROWCOL")];
        check(&rowcol, &lines, || Scan { families: column("a"), ..Scan::get("r") }, &[]);
    }
}

#[test]
fn time_ranges_come_before_versions() {
    let lines = ["r q 1 P a", "r q 2 P b", "r q 3 P c"];
    let range = |min, max| move || Scan { time_range: TimeRange { min, max }, ..versions(1) };
    check(THREE, &lines, range(1, 3), &["r/q/2/b"]);
    check(THREE, &lines, range(4, 9), &[]);
    let of_family = || Scan {
        family_time_ranges: vec![(Bytes::from_static(b"f"), TimeRange { min: 0, max: 2 })],
        ..versions(1)
    };
    check(THREE, &lines, of_family, &["r/q/1/a"]);
}

#[test]
fn a_marker_after_the_range_hides_unless_deleted_cells_are_kept() {
    let lines = ["r q 1 P a", "r q 5 C"];
    let range = || Scan { time_range: TimeRange { min: 0, max: 3 }, ..versions(1) };
    check(THREE, &lines, range, &[]);
    check(&[("KEEP_DELETED_CELLS", "TRUE")], &lines, range, &["r/q/1/a"]);
    check(&[("KEEP_DELETED_CELLS", "TRUE")], &lines, || versions(1), &[]);
}

#[test]
fn expired_cells_are_kept_up_to_min_versions() {
    let old = NOW_MS - 11_000;
    let young = NOW_MS - 9_000;
    let lines = [format!("r q {old} P old"), format!("r q {young} P young"), format!("r s {old} P only")];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (q_young, q_old) = (format!("r/q/{young}/young"), format!("r/q/{old}/old"));
    let s_old = format!("r/s/{old}/only");
    check(&[("TTL", "10"), ("VERSIONS", "3")], &lines, || versions(3), &[&q_young]);
    check(
        &[("TTL", "10"), ("VERSIONS", "3"), ("MIN_VERSIONS", "1")],
        &lines,
        || versions(3),
        &[&q_young, &s_old],
    );
    let min_two = [("TTL", "10"), ("VERSIONS", "3"), ("MIN_VERSIONS", "2")];
    check(&min_two, &lines, || versions(3), &[&q_young, &q_old, &s_old]);
    check(
        &min_two,
        &lines,
        || Scan { families: columns(&["q", "s"]), ..versions(3) },
        &[&q_young, &q_old, &s_old],
    );
}

#[test]
fn a_ttl_tag_expires_its_cell() {
    let put = |qualifier: &[u8], ttl_ms: i64| {
        let mut tags = vec![0, 9, tag_type::TTL];
        tags.extend_from_slice(&ttl_ms.to_be_bytes());
        let timestamp = NOW_MS - 1000;
        KeyValueBuilder {
            row: b"r",
            family: b"f",
            qualifier,
            timestamp,
            kind: CellType::Put,
            value: b"v",
            tags: &tags,
        }
        .build()
    };
    let mut test = TestStore::new(&[]);
    test.add_cell(put(b"dead", 999));
    test.add_cell(put(b"live", 1001));
    let expected = [format!("r/live/{}/v", NOW_MS - 1000)];
    assert_eq!(test.scan(versions(1)), expected);
    test.flush(test.seq_id);
    assert_eq!(test.scan(versions(1)), expected, "tags are in the file");
    test.clock.advance_ms(2);
    assert!(test.scan(versions(1)).is_empty());
}

#[test]
fn raw_scans_show_everything() {
    let lines = ["r a 1 P v", "r a 2 C", "r - 3 F"];
    let raw = || Scan { raw: true, ..versions(9) };
    check(THREE, &lines, raw, &["r//3/DeleteFamily", "r/a/2/DeleteColumn", "r/a/1/v"]);
}

#[test]
fn with_new_version_behavior_the_last_write_wins() {
    let attributes = [("NEW_VERSION_BEHAVIOR", "true"), ("VERSIONS", "2")];
    check(&attributes, &["r q 2 C", "r q 1 P a"], || versions(2), &["r/q/1/a"]);
    check(&attributes, &["r q 1 P a", "r q 2 C"], || versions(2), &[]);
    check(&attributes, &["r - 2 F", "r q 1 P a", "r - 1 P e"], || versions(2), &["r//1/e", "r/q/1/a"]);
    check(&attributes, &["r q 1 P a", "r - 2 F"], || versions(2), &[]);
    check(&attributes, &["r - 1 P e", "r - 2 F"], || versions(2), &[]);
    // The third version is out, also when a newer one is deleted later.
    let lines = ["r q 1 P a", "r q 2 P b", "r q 3 P c", "r q 3 D"];
    check(&attributes, &lines, || versions(2), &["r/q/2/b"]);
    check(&attributes, &["r q 1 P a", "r q 1 D", "r q 1 P b"], || versions(2), &["r/q/1/b"]);
    check(
        &attributes,
        &["r q 1 P a", "r s 1 P b"],
        || Scan { families: column("s"), ..versions(2) },
        &["r/s/1/b"],
    );
}

#[test]
fn stores_have_limits_and_offsets() {
    let lines = ["r a 1 P v", "r b 1 P v", "r c 1 P v", "s a 1 P v"];
    let scan = |store_limit, store_offset| move || Scan { store_limit, store_offset, ..versions(1) };
    check(&[], &lines, scan(1, 0), &["r/a/1/v", "s/a/1/v"]);
    check(&[], &lines, scan(1, 1), &["r/b/1/v"]);
    check(&[], &lines, scan(-1, 2), &["r/c/1/v"]);
}

#[test]
fn major_compactions_drop_deleted_cells_and_minor_ones_keep_markers() {
    let mut test = TestStore::new(THREE);
    test.add("r", "q", 5, CellType::Put, "v");
    test.flush(u64::MAX);
    test.add("r", "q", 7, CellType::DeleteColumn, "");
    test.flush(u64::MAX);
    let raw = || Scan { raw: true, ..versions(9) };
    assert_eq!(test.scan(raw()), ["r/q/7/DeleteColumn", "r/q/5/v"]);
    assert_eq!(test.compact(true, u64::MAX).map(|(files, _)| files.len()), Some(2));
    assert!(test.scan(raw()).is_empty());
    test.add("r", "q", 6, CellType::Put, "again");
    assert_eq!(test.scan(versions(1)), ["r/q/6/again"], "the marker is gone");
}

#[test]
fn compactions_leave_what_an_open_scanner_may_see() {
    let mut test = TestStore::new(&[("VERSIONS", "1")]);
    let first = test.add("r", "q", 1, CellType::Put, "old");
    test.flush(first);
    let mut scanner = test.scanner(versions(1), first);
    test.add("r", "q", 2, CellType::Put, "new");
    test.flush(first);
    test.compact(true, first);
    let mut later = test.scanner(versions(1), first);
    for scanner in [&mut scanner, &mut later] {
        assert_eq!(drain(scanner).expect("read").concat(), ["r/q/1/old"]);
    }
    assert_eq!(test.scan(versions(9)), ["r/q/2/new"]);
}

#[test]
fn kept_deleted_cells_outlive_major_compactions() {
    let mut test = TestStore::new(&[("KEEP_DELETED_CELLS", "TRUE"), ("VERSIONS", "2")]);
    test.add("r", "q", 1, CellType::Put, "v");
    test.add("r", "q", 2, CellType::DeleteColumn, "");
    test.flush(u64::MAX);
    test.compact(true, u64::MAX);
    assert!(test.scan(versions(1)).is_empty());
    let past = Scan { time_range: TimeRange { min: 0, max: 2 }, ..versions(1) };
    assert_eq!(test.scan(past), ["r/q/1/v"]);
}

/// A filter that returns the result of a closure for each cell.
struct Says<F>(F);

impl<F: FnMut(&CellRef<'_>) -> ReturnCode + Send> Filter for Says<F> {
    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok((self.0)(cell))
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(Some(KeyBuf::first_on_column(cell.row(), b"f", b"c")))
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        family == b"f"
    }
}

fn saying(say: impl FnMut(&CellRef<'_>) -> ReturnCode + Send + 'static) -> Scan {
    Scan { filter: Some(Box::new(Says(say))), ..versions(2) }
}

#[test]
fn filter_return_codes_steer_the_scan() {
    let lines = ["r a 2 P x", "r a 1 P y", "r b 1 P x", "r c 1 P x", "s a 1 P x"];
    let on_x =
        |code: ReturnCode| {
            move || {
                saying(move |cell| {
                    if cell.value() == b"x" && cell.qualifier() == b"a" { code } else { ReturnCode::Include }
                })
            }
        };
    let all = ["r/a/2/x", "r/a/1/y", "r/b/1/x", "r/c/1/x", "s/a/1/x"];
    check(THREE, &lines, on_x(ReturnCode::Include), &all);
    check(THREE, &lines, on_x(ReturnCode::Skip), &["r/a/1/y", "r/b/1/x", "r/c/1/x"]);
    check(THREE, &lines, on_x(ReturnCode::NextCol), &["r/b/1/x", "r/c/1/x"]);
    check(THREE, &lines, on_x(ReturnCode::NextRow), &[]);
    check(THREE, &lines, on_x(ReturnCode::SeekNextUsingHint), &["r/c/1/x"]);
    check(THREE, &lines, on_x(ReturnCode::IncludeAndNextCol), &["r/a/2/x", "r/b/1/x", "r/c/1/x", "s/a/1/x"]);
    check(THREE, &lines, on_x(ReturnCode::IncludeAndSeekNextRow), &["r/a/2/x", "s/a/1/x"]);
}

#[test]
fn versions_are_counted_after_the_filter() {
    let lines = ["r q 3 P no", "r q 2 P yes", "r q 1 P yes"];
    let yes =
        |cell: &CellRef<'_>| if cell.value() == b"yes" { ReturnCode::Include } else { ReturnCode::Skip };
    check(THREE, &lines, || Scan { max_versions: 1, ..saying(yes) }, &["r/q/2/yes"]);
    check(&[("VERSIONS", "1")], &["r q 3 P no", "r q 2 P yes"], || saying(yes), &[]);
}

fn two_families(scan: Scan) -> (Vec<Arc<Store>>, RegionScanner) {
    let stores = open_two(&[]);
    for (row, family) in [("r1", 0), ("r1", 1), ("r2", 0), ("r2", 1), ("r3", 0)] {
        let name: &[u8] = [&b"a"[..], b"f"][family];
        stores[family].add(&KeyValue::put(row.as_bytes(), name, b"q", 1, b"v").as_cell());
    }
    let scanner = scanner_of(&stores, scan);
    (stores, scanner)
}

/// Empty stores of the families `a` and `f`.
fn open_two(attributes: &[(&str, &str)]) -> Vec<Arc<Store>> {
    let (env, _) = env();
    let open = |name: &[u8]| Store::open(&env, family(name, attributes), &region()).expect("opens");
    vec![open(b"a"), open(b"f")]
}

fn scanner_of(stores: &[Arc<Store>], mut scan: Scan) -> RegionScanner {
    let views = stores.iter().map(|store| store.view()).collect();
    RegionScanner::new(&views, &mut scan, u64::MAX - 1, CellComparator::Default, NOW_MS).expect("opens")
}

fn families_of(scanner: &mut RegionScanner) -> Vec<String> {
    let mut rows = Vec::new();
    loop {
        let mut out = CellBuffer::new();
        let state = scanner.next(&mut out, &mut ScannerContext::unlimited()).expect("read");
        if !out.is_empty() {
            let of = |c: CellRef<'_>| format!("{}{}", c.row().escape_ascii(), c.family().escape_ascii());
            rows.push(out.iter().map(of).collect::<Vec<_>>().join(" "));
        }
        if state == NextState::NoMoreRows {
            return rows;
        }
    }
}

#[test]
fn families_are_merged_in_both_directions() {
    let (_stores, mut scanner) = two_families(Scan::default());
    assert_eq!(families_of(&mut scanner), ["r1a r1f", "r2a r2f", "r3a"]);
    let (_stores, mut scanner) = two_families(Scan { reversed: true, ..Scan::default() });
    assert_eq!(families_of(&mut scanner), ["r3a", "r2a r2f", "r1a r1f"]);
}

#[test]
fn families_on_demand_join_the_rows_that_pass() {
    let pass =
        |cell: &CellRef<'_>| if cell.row() == b"r1" { ReturnCode::NextRow } else { ReturnCode::Include };
    let scan = Scan { load_families_on_demand: true, ..saying(pass) };
    let (_stores, mut scanner) = two_families(scan);
    assert_eq!(families_of(&mut scanner), ["r2a r2f"], "row 3 has no cell in the family that decides");
}

#[test]
fn families_on_demand_are_refused_in_reverse() {
    let mut scan = Scan { load_families_on_demand: true, reversed: true, ..saying(|_| ReturnCode::Include) };
    let (stores, _) = two_families(Scan::default());
    let views = stores.iter().map(Store::view).collect();
    let refused = RegionScanner::new(&views, &mut scan, u64::MAX - 1, CellComparator::Default, NOW_MS).err();
    assert!(refused.expect("refused").into_failure().is_do_not_retry());
}

#[test]
fn limits_end_calls_only_at_allowed_points() {
    let mut test = TestStore::new(&[]);
    for (row, qualifier) in [("r", "a"), ("r", "b"), ("s", "a")] {
        test.add(row, qualifier, 1, CellType::Put, "v");
    }
    let states = |context: &dyn Fn() -> ScannerContext| {
        let mut scanner = test.scanner(Scan::default(), u64::MAX - 1);
        let mut states = Vec::new();
        while states.last().is_none_or(|(state, _)| *state != NextState::NoMoreRows) {
            let mut out = CellBuffer::new();
            let state = scanner.next(&mut out, &mut context()).expect("read");
            states.push((state, out.len()));
        }
        states
    };
    let unlimited = ScannerContext::unlimited;
    assert_eq!(states(&unlimited), [(NextState::MoreRows, 2), (NextState::NoMoreRows, 1)]);
    assert_eq!(
        states(&|| unlimited().with_batch(1)),
        [
            (NextState::BatchLimit, 1),
            (NextState::MoreRows, 1),
            (NextState::MoreRows, 1),
            (NextState::NoMoreRows, 0)
        ],
        "as in HBase, a limit that is reached at the end of the last row asks for another call"
    );
    assert_eq!(
        states(&|| unlimited().with_size_limit(LimitScope::BetweenCells, 1)),
        [
            (NextState::SizeLimitMidRow, 1),
            (NextState::SizeLimitRowEnd, 1),
            (NextState::SizeLimitRowEnd, 1),
            (NextState::NoMoreRows, 0)
        ]
    );
    assert_eq!(
        states(&|| unlimited().with_size_limit(LimitScope::BetweenRows, 1)),
        [(NextState::SizeLimitRowEnd, 2), (NextState::NoMoreRows, 1)]
    );
    let mut late = unlimited().with_deadline(LimitScope::BetweenCells, std::time::Instant::now());
    let mut scanner = test.scanner(Scan::default(), u64::MAX - 1);
    let state = scanner.next(&mut CellBuffer::new(), &mut late).expect("read");
    assert_eq!((state, scanner.peeked_row()), (NextState::TimeLimitRowEnd, Some(&b"r"[..])));
}

/// Stores of the families `a` and `f`, each with 20 cells in the row `r`.
fn long_row(attributes: &[(&str, &str)]) -> Vec<Arc<Store>> {
    let stores = open_two(attributes);
    for (store, name) in stores.iter().zip([b"a", b"f"]) {
        for n in 0..20 {
            let qualifier = format!("q{n:02}");
            store.add(&KeyValue::put(b"r", name, qualifier.as_bytes(), 1, &[7; 40]).as_cell());
        }
    }
    stores
}

/// Reads the row `r` as a Get does, with a budget of `room` bytes for its cells. Also returns the
/// bytes that were counted.
fn get_row(stores: &[Arc<Store>], scan: Scan, room: u64) -> (TryResult<Vec<Vec<u8>>>, u64) {
    let (mut out, mut context) = (CellBuffer::new(), ScannerContext::unlimited());
    context.set_charge(ReplyCharge::new(Charge::none(Budget::new(room)), 0));
    let read = scanner_of(stores, scan).next_row(&mut out, &mut context);
    (read.map(|()| out.iter().map(|cell| KeyBuf::of(&cell).bytes().to_vec()).collect()), context.size)
}

/// Rejects a row that has the cell `f:q19`, or ends the scan at a cell `q10`.
#[derive(Default)]
struct RefusesOrEnds {
    refuses: bool,
    ends: bool,
    refused: bool,
    ended: bool,
}

impl Filter for RefusesOrEnds {
    fn filter_all_remaining(&self) -> bool {
        self.ended
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.ended |= self.ends && cell.qualifier() == b"q10";
        self.refused |= self.refuses && (cell.family(), cell.qualifier()) == (b"f", b"q19");
        Ok(ReturnCode::Include)
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.refused)
    }
}

fn filtered_by(filter: RefusesOrEnds) -> Scan {
    Scan { filter: Some(Box::new(filter)), ..versions(1) }
}

#[test]
fn a_charged_row_equals_an_uncharged_one() {
    type Ask = fn() -> Scan;
    let on_demand: Ask = || Scan { load_families_on_demand: true, ..saying(|_| ReturnCode::Include) };
    let ended: Ask = || filtered_by(RefusesOrEnds { ends: true, ..RefusesOrEnds::default() });
    let refused: Ask = || filtered_by(RefusesOrEnds { refuses: true, ..RefusesOrEnds::default() });
    let at_most_three: Ask = || Scan { store_limit: 3, ..versions(1) };
    let stores = long_row(&[]);
    for (ask, cells) in [(on_demand, 40), (ended, 11), (refused, 0), (at_most_three, 6)] {
        let (mut without, mut context) = (CellBuffer::new(), ScannerContext::unlimited());
        scanner_of(&stores, ask()).next(&mut without, &mut context).expect("read");
        let (read, size) = get_row(&stores, ask(), 1 << 20);
        let read = read.expect("read");
        let without: Vec<_> = without.iter().map(|cell| KeyBuf::of(&cell).bytes().to_vec()).collect();
        assert_eq!(read.len(), cells);
        assert!(read == without && size == context.size, "{size}");
        if cells > 0 {
            assert!(get_row(&stores, ask(), 60).0.is_err(), "the second cell has no room");
        }
    }
}

#[test]
fn the_row_size_limit_applies_to_each_family() {
    let two_families_of_1600_bytes = |max: &str| {
        let stores = long_row(&[("hbase.table.max.rowsize", max)]);
        get_row(&stores, versions(1), 1 << 20)
    };
    assert_eq!(two_families_of_1600_bytes("1600").0.expect("each family is within the bound").len(), 40);
    let (refused, size) = two_families_of_1600_bytes("800");
    assert_eq!(refused.expect_err("refused").into_failure().kind(), ErrorKind::RowTooBig);
    assert!(size < 900, "{size}");
}

/// Drops the row `r` after all of its cells.
#[derive(Default)]
struct DropsR {
    is_r: bool,
}

impl Filter for DropsR {
    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.is_r = cell.row() == b"r";
        Ok(ReturnCode::Include)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.is_r)
    }
}

#[test]
fn a_row_that_a_filter_dropped_whole_does_not_count_towards_the_size() {
    let mut test = TestStore::new(&[]);
    for row in ["r", "s"] {
        test.add(row, "a", 1, CellType::Put, "v");
    }
    let scan = Scan { filter: Some(Box::new(DropsR::default())), ..versions(1) };
    let mut scanner = test.scanner(scan, u64::MAX - 1);
    let mut context = ScannerContext::unlimited().with_size_limit(LimitScope::BetweenCells, 1);
    let mut out = CellBuffer::new();
    let state = scanner.next(&mut out, &mut context).expect("read");
    assert_eq!((state, out.len(), context.rows_filtered), (NextState::NoMoreRows, 1, 1));
}

/// Rejects the keys before `s`, and asks for a seek to `s` at their cells.
struct SeeksFromRejectedRows;

impl Filter for SeeksFromRejectedRows {
    fn filter_row_key(&mut self, first: &CellRef<'_>) -> Result<bool> {
        Ok(first.row() < &b"s"[..])
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let is_before = cell.row() < &b"s"[..];
        Ok(if is_before { ReturnCode::SeekNextUsingHint } else { ReturnCode::Include })
    }

    fn next_cell_hint(&mut self, _cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(Some(KeyBuf::first_on_row(b"s")))
    }
}

#[test]
fn hints_at_a_row_whose_key_was_rejected_pass_rows() {
    let mut test = TestStore::new(&[]);
    for row in ["r1", "r2", "r3", "s"] {
        test.add(row, "a", 1, CellType::Put, "v");
    }
    let scan = Scan { filter: Some(Box::new(SeeksFromRejectedRows)), ..versions(1) };
    let (mut scanner, mut context) = (test.scanner(scan, u64::MAX - 1), ScannerContext::unlimited());
    let state = scanner.next(&mut CellBuffer::new(), &mut context).expect("read");
    assert_eq!((state, context.rows_scanned, context.rows_filtered), (NextState::NoMoreRows, 2, 1));
}
