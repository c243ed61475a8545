//! Checks that regions cover every row of a table exactly once.

use evenkeel_common::{Binary, RegionInfo, TableName};

use super::Report;

/// A region, and the file or row that describes it.
pub struct RegionSource {
    pub info: RegionInfo,
    pub by: String,
}

/// Checks the regions of one table, as one source lists them.
pub fn check_coverage(
    table: &TableName,
    source: &str,
    mut regions: Vec<RegionSource>,
    report: &mut Report<'_>,
) {
    regions.sort_by(|a, b| (a.info.start_key(), end_of(&a.info)).cmp(&(b.info.start_key(), end_of(&b.info))));
    let mut fault = |what: String| report.fault(format_args!("table {table} by {source}: {what}"));
    let Some(first) = regions.first() else { return };
    if !first.info.start_key().is_empty() {
        fault(format!("no region holds the rows before {}, where {} begins", start(&first.info), first.by));
    }
    // The region with the greatest end so far.
    let mut reach = first;
    for told in regions.iter().filter(|told| is_inverted(&told.info)) {
        fault(format!("{} begins at {} and ends before", told.by, start(&told.info)));
    }
    for next in regions.iter().skip(1) {
        let (end, begin) = (end_of(&reach.info), Some(next.info.start_key().as_ref()));
        match cmp_end(end, begin) {
            std::cmp::Ordering::Less => fault(format!(
                "hole: no region holds the rows from {} to {}, between {} and {}",
                Binary(reach.info.end_key()),
                start(&next.info),
                reach.by,
                next.by
            )),
            std::cmp::Ordering::Greater => fault(format!(
                "overlap: {} and {} both hold the rows from {}",
                reach.by,
                next.by,
                start(&next.info)
            )),
            std::cmp::Ordering::Equal => {}
        }
        if cmp_end(end_of(&next.info), end).is_gt() {
            reach = next;
        }
    }
    if !reach.info.end_key().is_empty() {
        fault(format!(
            "no region holds the rows from {} on, where {} ends",
            Binary(reach.info.end_key()),
            reach.by
        ));
    }
}

/// The end of a region; `None` is after all rows.
fn end_of(info: &RegionInfo) -> Option<&[u8]> {
    Some(info.end_key().as_ref()).filter(|end| !end.is_empty())
}

/// Compares ends; `None` is the greatest.
fn cmp_end(a: Option<&[u8]>, b: Option<&[u8]>) -> std::cmp::Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

fn is_inverted(info: &RegionInfo) -> bool {
    end_of(info).is_some_and(|end| end <= info.start_key().as_ref())
}

fn start(info: &RegionInfo) -> String {
    match info.start_key().as_ref() {
        b"" => "the first row".to_owned(),
        key => Binary(key).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn faults(regions: &[(&'static str, &'static str)]) -> String {
        let table: TableName = "t".parse().expect("legal");
        let told = |(at, (start, end)): (usize, &(&'static str, &'static str))| RegionSource {
            info: RegionInfo::new(table.clone(), Bytes::from(*start), Bytes::from(*end), at as i64),
            by: format!("r{at}"),
        };
        let mut out = Vec::new();
        let mut report = Report::new(&mut out);
        check_coverage(&table, "test", regions.iter().enumerate().map(told).collect(), &mut report);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn whole_chains_have_no_fault() {
        for whole in [&[][..], &[("", "")], &[("b", ""), ("", "b")], &[("", "a"), ("a", "b"), ("b", "")]] {
            assert_eq!(faults(whole), "");
        }
    }

    #[test]
    fn each_break_of_the_chain_is_reported_once() {
        let cases: [(&[(&str, &str)], &str); 6] = [
            (&[("a", "")], "before a, where r0"),
            (&[("", "a")], "from a on, where r0 ends"),
            (&[("", "a"), ("b", "")], "hole: no region holds the rows from a to b, between r0 and r1"),
            (&[("", "c"), ("b", "")], "overlap: r0 and r1 both hold the rows from b"),
            (&[("", ""), ("b", "c")], "overlap: r0 and r1"),
            (&[("", "m"), ("", "m"), ("m", "")], "overlap: r0 and r1 both hold the rows from the first row"),
        ];
        for (regions, expected) in cases {
            let said = faults(regions);
            assert!(said.contains(expected) && said.lines().count() == 1, "{regions:?}: {said}");
        }
    }

    #[test]
    fn a_region_that_ends_before_it_begins() {
        assert!(faults(&[("", "b"), ("b", "a"), ("b", "")]).contains("r1 begins at b and ends before"));
    }
}
