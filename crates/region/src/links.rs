//! Links: store files that belong to another table or region, by name (`HFileLink`).
//!
//! ```text
//! the link, an empty file:
//!     data/<ns>/<table>/<region>/<family>/[<ns2>=]<table2>=<region2>-<hfile>
//! its back reference, an empty file:
//!     archive/data/<ns2>/<table2>/<region2>/<family>/.links-<hfile>/<region>.[<ns>=]<table>
//! ```
//! A link is resolved to the location where its file was written, then to the archive, because the
//! file may be moved there at any time. The back reference keeps the cleaner from deleting the
//! file. A back reference whose link no longer exists is stale, and the cleaner deletes it.

use std::path::{Path, PathBuf};

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use evenkeel_fs::{CreateOptions, FileStatus, FileSystem};
use evenkeel_hfile::{HFileLink, StoreFileName};

const BACK_REFERENCES: &str = ".links-";

/// Returns the link to a file of a region. If the file is itself a link, returns that same link.
pub fn link_to(table: &TableName, region: &str, file: &str) -> HFileLink {
    HFileLink::parse(file).unwrap_or_else(|| HFileLink {
        namespace: table.namespace().to_owned(),
        table: table.qualifier().to_owned(),
        region: region.to_owned(),
        hfile: file.to_owned(),
    })
}

/// Returns where a link's file may be, below the root directory, in lookup order.
fn locations(root: &Path, link: &HFileLink, family: &str) -> [PathBuf; 4] {
    ["data", ".tmp/data", "mobdir/data", "archive/data"].map(|dir| {
        let region = root.join(dir).join(&link.namespace).join(&link.table).join(&link.region);
        region.join(family).join(&link.hfile)
    })
}

/// Returns the file that a link refers to.
///
/// # Errors
/// `FileNotFoundException`, and `IOException` from the file system.
pub fn resolve(fs: &dyn FileSystem, root: &Path, link: &HFileLink, family: &str) -> Result<FileStatus> {
    // Twice, because the file may move to the archive during the lookup.
    let twice = || locations(root, link, family).into_iter();
    for path in twice().chain(twice()) {
        match fs.status(&path) {
            Ok(status) if !status.is_dir => return Ok(status),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(HBaseError::new(
        ErrorKind::FileNotFound,
        format!("no file behind the link {} of {family}", link.name()),
    ))
}

/// Creates a link in a family's directory, its back reference first. `of` is the region that the
/// directory belongs to.
///
/// # Errors
/// `IOException` from the file system.
pub fn create(
    fs: &dyn FileSystem,
    root: &Path,
    family_dir: &Path,
    of: (&TableName, &str),
    link: &HFileLink,
) -> Result<()> {
    let family = family_dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    create_back_reference(fs, root, family, of, link)?;
    Ok(touch(fs, &family_dir.join(link.name()))?)
}

/// Creates the back reference of a link that is about to be created in a region.
///
/// # Errors
/// `IOException` from the file system.
pub fn create_back_reference(
    fs: &dyn FileSystem,
    root: &Path,
    family: &str,
    (table, region): (&TableName, &str),
    link: &HFileLink,
) -> Result<()> {
    let archive = root.join("archive/data").join(&link.namespace).join(&link.table);
    let dir = archive.join(&link.region).join(family).join(format!("{BACK_REFERENCES}{}", link.hfile));
    fs.mkdirs(&dir)?;
    Ok(touch(fs, &dir.join(format!("{region}.{}", table.to_string().replace(':', "="))))?)
}

fn touch(fs: &dyn FileSystem, path: &Path) -> std::io::Result<()> {
    let mut file =
        fs.create(path, CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL })?;
    file.sync()?;
    file.close()
}

/// Returns true if this is the name of a directory of back references.
pub fn is_back_references_dir(name: &str) -> bool {
    name.starts_with(BACK_REFERENCES)
}

/// Returns the directory of a file's back references.
pub fn back_references_dir(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    Some(file.with_file_name(format!("{BACK_REFERENCES}{name}")))
}

/// Returns true if the link of a back reference in the archive exists, or a reference made through
/// it. A path that is not a back reference is stale.
///
/// # Errors
/// `IOException` from the file system.
pub fn is_referenced(fs: &dyn FileSystem, root: &Path, back_reference: &Path) -> Result<bool> {
    let Some((link, family, table, region)) = parse_back_reference(root, back_reference) else {
        return Ok(false);
    };
    let name = link.name();
    for dir in [".tmp", "mobdir", ""] {
        let table_dir = root.join(dir).join("data").join(table.namespace()).join(table.qualifier());
        let family_dir = table_dir.join(&region).join(&family);
        if fs.exists(&family_dir.join(&name))? || has_reference_to(fs, &family_dir, &name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_reference_to(fs: &dyn FileSystem, family_dir: &Path, name: &str) -> Result<bool> {
    match fs.list(family_dir) {
        Ok(files) => Ok(files.iter().any(|file| is_reference_to(file.name(), name))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if a file is a reference to the link `name`.
fn is_reference_to(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns the link's name, its family, and the table and region it is in.
fn parse_back_reference(root: &Path, path: &Path) -> Option<(HFileLink, String, TableName, String)> {
    let below = path.strip_prefix(root.join("archive/data")).ok()?;
    let parts: Vec<&str> = below.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let [namespace, table, region, family, dir, name] = parts[..] else { return None };
    let hfile = dir.strip_prefix(BACK_REFERENCES)?;
    let (in_region, in_table) = name.split_once('.')?;
    let in_table: TableName = in_table.replacen('=', ":", 1).parse().ok()?;
    let link = HFileLink {
        namespace: namespace.to_owned(),
        table: table.to_owned(),
        region: region.to_owned(),
        hfile: hfile.to_owned(),
    };
    Some((link, family.to_owned(), in_table, in_region.to_owned()))
}

/// Returns true if HBase accepts a name in a directory of store files
/// (`StoreFileInfo.validateStoreFileName`).
pub fn is_store_file_name(name: &str) -> bool {
    let is_other =
        matches!(StoreFileName::parse(name), Some(StoreFileName::Link(_) | StoreFileName::Reference { .. }));
    is_other || !name.contains('-')
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    const ROOT: &str = "/hbase";

    fn table(name: &str) -> TableName {
        name.parse().expect("legal")
    }

    #[test]
    fn a_link_to_a_link_is_the_same_link() {
        let link = link_to(&table("ns:t"), "aa11", "00ff");
        assert_eq!(link.name(), "ns=t=aa11-00ff");
        assert_eq!(link_to(&table("u"), "bb22", &link.name()), link);
    }

    #[test]
    fn back_references_are_kept_while_their_links_exist() {
        let (fs, root) = (MemoryFileSystem::new(), Path::new(ROOT));
        let family_dir = root.join("data/ns/clone/bb22/f");
        let link = link_to(&table("t"), "aa11", "00ff");
        create(&fs, root, &family_dir, (&table("ns:clone"), "bb22"), &link).expect("made");
        let back = root.join("archive/data/default/t/aa11/f/.links-00ff/bb22.ns=clone");
        assert!(fs.exists(&back).expect("looked") && is_referenced(&fs, root, &back).expect("looked"));
        let made_of_it = family_dir.join(format!("{}.cc33", link.name()));
        fs.rename(&family_dir.join(link.name()), &made_of_it).expect("renamed");
        assert!(is_referenced(&fs, root, &back).expect("looked"), "a reference goes through the link");
        fs.delete(&made_of_it).expect("deleted");
        assert!(!is_referenced(&fs, root, &back).expect("looked"));
        assert!(!is_referenced(&fs, root, &back.with_file_name("nonsense")).expect("looked"));
    }

    #[test]
    fn the_file_behind_a_link_may_be_in_the_archive() {
        let (fs, root) = (MemoryFileSystem::new(), Path::new(ROOT));
        let link = link_to(&table("t"), "aa11", "00ff");
        assert_eq!(resolve(&fs, root, &link, "f").expect_err("nowhere").kind(), ErrorKind::FileNotFound);
        for dir in ["archive/data", "data"] {
            let path = root.join(dir).join("default/t/aa11/f/00ff");
            fs.write_atomically(&path, b"x").expect("written");
            assert_eq!(resolve(&fs, root, &link, "f").expect("found").path, path);
        }
    }

    #[test]
    fn store_file_names_are_accepted_as_by_stock() {
        for good in ["00ff", "anything", "t-x=aa11-00ff", "t=aa11-00ff.bb22"] {
            assert!(is_store_file_name(good), "{good}");
        }
        assert!(!is_store_file_name("not-a-store-file"));
    }
}
