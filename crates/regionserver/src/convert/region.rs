//! RegionSpecifier: the region that a request names.

use std::borrow::Cow;

use evenkeel_common::mob::mob_region;
use evenkeel_common::region_info::encoded_name_of;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableName, quoted};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::region_specifier::RegionSpecifierType;

/// Returns the encoded name of the region that a specifier names.
///
/// # Errors
/// `NotServingRegionException` for bytes that are no region name; the client then looks up the
/// region again.
pub fn encoded_name(specifier: &pb::RegionSpecifier) -> Result<Cow<'_, str>> {
    // Stock servers accept either form whatever the type is, and some tools rely on it.
    let whole = || {
        let text = std::str::from_utf8(&specifier.value).ok();
        text.filter(|name| is_encoded_name(name)).map(Cow::Borrowed)
    };
    let by_type = match specifier.r#type() {
        RegionSpecifierType::EncodedRegionName => whole().or_else(|| encoded_name_of(&specifier.value).ok()),
        RegionSpecifierType::RegionName => encoded_name_of(&specifier.value).ok().or_else(whole),
    };
    by_type.ok_or_else(|| {
        let name = quoted(&specifier.value);
        HBaseError::new(ErrorKind::NotServingRegion, format!("{name} is not a region's name"))
    })
}

/// Returns the table whose MOB region a specifier names by its full name; `None` for every other
/// region.
pub fn mob_region_table(specifier: &pb::RegionSpecifier) -> Option<TableName> {
    let at = specifier.value.iter().position(|byte| *byte == b',')?;
    let table: TableName = std::str::from_utf8(specifier.value.get(..at)?).ok()?.parse().ok()?;
    (*mob_region(&table).name() == specifier.value).then_some(table)
}

/// A specifier by full region name.
pub fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: RegionSpecifierType::RegionName as i32, value: region.name().clone() }
}

/// Returns true if a text has the form of an encoded name: 32 hexadecimal digits, or a decimal
/// number (hbase:meta).
fn is_encoded_name(name: &str) -> bool {
    let hex = name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    hex || (!name.is_empty() && name.len() <= 10 && name.bytes().all(|b| b.is_ascii_digit()))
}
