//! The MOB files that store files name: those of live files must exist, in the MOB directory of
//! their table or in its archive, or in those of the store's own table, where reads look, too.

use std::path::Path;

use evenkeel_common::TableName;
use evenkeel_common::mob::{MobFileRefs, mob_archive_dir, mob_family_dir};
use evenkeel_fs::FileSystem;
use evenkeel_hfile::{HFileReader, keys};

use super::Report;

/// Reports missing MOB files of a live store file, whose path is
/// `ROOT/data/<namespace>/<table>/<region>/<family>/<file>`.
pub(super) fn check_references(
    fs: &dyn FileSystem,
    path: &Path,
    family: &str,
    file: &HFileReader,
    report: &mut Report<'_>,
) {
    let (Some(root), Some(refs)) = (path.ancestors().nth(6), file.file_info(keys::MOB_FILE_REFS)) else {
        return;
    };
    let refs = match MobFileRefs::parse(refs) {
        Ok(refs) => refs,
        Err(error) => return report.fault_at(path, 0, error.message()),
    };
    let part = |above: usize| path.ancestors().nth(above)?.file_name()?.to_str();
    let own = part(4).zip(part(3)).and_then(|(namespace, table)| TableName::new(namespace, table).ok());
    for (table, name) in refs.iter() {
        let Ok(table) = table.parse::<TableName>() else { continue };
        let dirs = std::iter::once(&table)
            .chain(&own)
            .flat_map(|table| [mob_family_dir(root, table, family), mob_archive_dir(root, table, family)]);
        let dirs: Vec<_> = dirs.collect();
        if !dirs.iter().any(|dir| fs.exists(&dir.join(name)).unwrap_or(false)) {
            let what = format_args!("the MOB file {name} of {table}, which it names, does not exist");
            report.fault_at(path, 0, what);
        }
    }
}
