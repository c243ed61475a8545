//! MOB: medium-sized objects. The values of a family with `IS_MOB` that are longer than its
//! `MOB_THRESHOLD` are in MOB files, and the store files hold references to them.
//!
//! ```text
//! MOB file    mobdir/data/<ns>/<table>/<MOB region>/<family>/<name>      an HFile: the whole cells
//! MOB region  one for each table, without rows of its own: start key ".mob", region id 0
//! name        md5 of the start key, 32 hex | date of the newest cell, yyyyMMdd | uuid, 32 hex
//!             | '_' | encoded name of the region that wrote the file
//! reference   the cell's key; value = u32 length of the value | name of the MOB file
//!             tags = MOB_REFERENCE (5, empty) | MOB_TABLE_NAME (6, the table whose MOB directory
//!             has the file) | the cell's own tags
//! refs        MOB_FILE_REFS in the file info of a store file: all files that its cells refer to
//!             table '/' name { ',' name } { "//" table '/' name ... }; one zero byte for none
//! ```
//!
//! The table of a reference is that of its writer. A table cloned from a snapshot keeps the
//! references, so its values are in the MOB files of another table.
//!
//! The sources are HBase's `MobUtils`, `MobFileName` and `MobConstants`, and `TagType`. The bytes
//! of references come from disks: nothing here trusts them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use md5::{Digest, Md5};

use crate::cell::{CellRef, check_tags};
use crate::error::{HBaseError, Result};
use crate::length;
use crate::names::TableName;
use crate::region_info::RegionInfo;

/// In the root directory: the MOB files of all tables (`MobConstants.MOB_DIR_NAME`).
pub const MOB_DIR: &str = "mobdir";
/// The start key of a table's MOB region (`MobConstants.MOB_REGION_NAME`).
pub const MOB_REGION_START: &[u8] = b".mob";
/// The tag of a reference (`TagType.MOB_REFERENCE_TAG_TYPE`). It has no value.
pub const REFERENCE_TAG: u8 = 5;
/// The tag with the table whose MOB file a reference names (`TagType.MOB_TABLE_NAME_TAG_TYPE`).
pub const TABLE_TAG: u8 = 6;
/// The default of `MOB_THRESHOLD`, in bytes (`ColumnFamilyDescriptorBuilder`).
pub const THRESHOLD_DEFAULT: u64 = 100 << 10;
/// `MOB_FILE_REFS` of a store file without references (`HStoreFile.NULL_VALUE`).
pub const NO_REFS: &[u8] = &[0];

/// Bytes of the value's length in a reference.
const LENGTH_BYTES: usize = 4;
/// Where the parts of a MOB file's name end.
const START_END: usize = 32;
const DATE_END: usize = 40;
const UUID_END: usize = 72;
/// Between the uuid and the region in a MOB file's name.
const REGION_SEPARATOR: char = '_';
/// The longest encoded name of a region.
const REGION_BYTES_MAX: usize = 32;

/// Returns the MOB region of a table (`MobUtils.getMobRegionInfo`).
pub fn mob_region(table: &TableName) -> RegionInfo {
    RegionInfo::new(table.clone(), Bytes::from_static(MOB_REGION_START), Bytes::new(), 0)
}

/// Returns the directory of a table's MOB files, the parent of its MOB region.
pub fn mob_table_dir(root: &Path, table: &TableName) -> PathBuf {
    root.join(MOB_DIR).join("data").join(table.namespace()).join(table.qualifier())
}

/// Returns the directory of a family's MOB files.
pub fn mob_family_dir(root: &Path, table: &TableName, family: &str) -> PathBuf {
    mob_table_dir(root, table).join(mob_region(table).encoded_name()).join(family)
}

/// Returns the archive of a family's MOB files (`HFileArchiveUtil.getStoreArchivePath`).
pub fn mob_archive_dir(root: &Path, table: &TableName, family: &str) -> PathBuf {
    let archive = root.join("archive").join("data").join(table.namespace()).join(table.qualifier());
    archive.join(mob_region(table).encoded_name()).join(family)
}

/// The name of a MOB file, in its parts. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MobFileName {
    start: String,
    date: String,
    uuid: String,
    region: String,
}

impl MobFileName {
    /// The name of a file that a region writes. `date` is the day of its newest cell as `yyyyMMdd`,
    /// and `uuid` has 32 hexadecimal digits.
    pub fn new(region: &RegionInfo, date: &str, uuid: &str) -> Self {
        let start = Md5::digest(region.start_key()).iter().map(|byte| format!("{byte:02x}")).collect();
        let region = region.encoded_name().to_owned();
        Self { start, date: date.to_owned(), uuid: uuid.to_owned(), region }
    }

    /// Parses a name; `None` if it is not the name of a MOB file of HBase 2.
    pub fn parse(name: &str) -> Option<Self> {
        if !is_mob_file_name(name) {
            return None;
        }
        let start = name.get(..START_END)?;
        let date = name.get(START_END..DATE_END)?;
        let uuid = name.get(DATE_END..UUID_END)?;
        let region = name.get(UUID_END..)?.strip_prefix(REGION_SEPARATOR)?;
        Some(Self {
            start: start.to_owned(),
            date: date.to_owned(),
            uuid: uuid.to_owned(),
            region: region.to_owned(),
        })
    }

    /// The day of the file's newest cell, `yyyyMMdd`.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// The encoded name of the region that wrote the file.
    pub fn region(&self) -> &str {
        &self.region
    }
}

impl std::fmt::Display for MobFileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{}{REGION_SEPARATOR}{}", self.start, self.date, self.uuid, self.region)
    }
}

/// Returns true if a cell is a reference to a MOB file (`MobUtils.isMobReferenceCell`).
#[inline]
pub fn is_reference(cell: &CellRef<'_>) -> bool {
    !cell.tags().is_empty() && cell.tag_iter().any(|(kind, _)| kind == REFERENCE_TAG)
}

/// A reference, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobReference<'a> {
    /// The length of the value, in bytes, as the writer of the reference recorded it.
    pub value_bytes: u32,
    /// The name of the MOB file, for which [`is_mob_file_name`] holds.
    pub file: &'a str,
    /// The table whose MOB directory has the file; `None` for references of HBase before the tag.
    pub table: Option<&'a str>,
}

impl<'a> MobReference<'a> {
    /// Parses the reference in a cell for which [`is_reference`] holds.
    ///
    /// # Errors
    /// `IOException` if its value is not one of a reference (`Corrupted MOB reference` in HBase).
    pub fn of(cell: &CellRef<'a>) -> Result<Self> {
        let parsed = cell.value().split_first_chunk::<LENGTH_BYTES>().and_then(|(bytes, file)| {
            let file = std::str::from_utf8(file).ok().filter(|file| is_mob_file_name(file))?;
            Some((u32::from_be_bytes(*bytes), file))
        });
        let (value_bytes, file) =
            parsed.ok_or_else(|| HBaseError::io(format!("Corrupted MOB reference: {cell:?}")))?;
        let table = cell.tag_iter().find(|(kind, _)| *kind == TABLE_TAG);
        let table = table.and_then(|(_, name)| std::str::from_utf8(name).ok());
        Ok(Self { value_bytes, file, table })
    }

    /// The table of the reference.
    ///
    /// # Errors
    /// `IOException`, with HBase's words, if it has no such tag or an illegal one.
    pub fn table_name(&self, cell: &CellRef<'_>) -> Result<TableName> {
        self.table.and_then(|name| name.parse().ok()).ok_or_else(|| {
            HBaseError::io(format!(
                "MOB cell did not contain a tablename tag. should not be possible. see ref guide on mob \
                 troubleshooting. cell={cell:?}"
            ))
        })
    }
}

/// Returns true if a reference may name this file: it has the name of a MOB file of HBase 2.5 and
/// later, or of one before, which lacks the region. No other file may be opened for a cell that a
/// client wrote.
pub fn is_mob_file_name(name: &str) -> bool {
    let (Some(start), Some(date)) = (name.get(..START_END), name.get(START_END..DATE_END)) else {
        return false;
    };
    let (Some(uuid), Some(rest)) = (name.get(DATE_END..UUID_END), name.get(UUID_END..)) else {
        return false;
    };
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_region = |name: &str| {
        (1..=REGION_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let has_region = rest.strip_prefix(REGION_SEPARATOR).is_some_and(is_region);
    let is_whole = rest.is_empty() || has_region;
    is_whole && is_hex(start) && is_hex(uuid) && date.bytes().all(|byte| byte.is_ascii_digit())
}

/// Writes references to one MOB file (`MobUtils.createMobRefCell`). It keeps its buffers.
#[derive(Clone, Debug)]
pub struct ReferenceWriter {
    prefix: Vec<u8>,
    value: Vec<u8>,
    tags: Vec<u8>,
}

impl ReferenceWriter {
    /// For references to files of a table.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the table's name does not fit in a tag.
    pub fn new(table: &TableName) -> Result<Self> {
        let name = table.to_string();
        let mut prefix = vec![0, 1, REFERENCE_TAG];
        prefix.extend_from_slice(&length::must_u16(name.len() + 1).to_be_bytes());
        prefix.push(TABLE_TAG);
        prefix.extend_from_slice(name.as_bytes());
        check_tags(&prefix)?;
        Ok(Self { prefix, value: Vec::new(), tags: Vec::new() })
    }

    /// Returns the reference to the cell's value in `file`, which borrows the writer's buffers.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the tags of the reference are longer than a cell may have.
    pub fn reference<'a>(&'a mut self, cell: &CellRef<'a>, file: &str) -> Result<CellRef<'a>> {
        self.value.clear();
        self.value.extend_from_slice(&length::must_u32(cell.value().len()).to_be_bytes());
        self.value.extend_from_slice(file.as_bytes());
        self.tags.clear();
        self.tags.extend_from_slice(&self.prefix);
        self.tags.extend_from_slice(cell.tags());
        CellRef::new(cell.key(), &self.value, &self.tags, cell.seq_id())
    }
}

/// The MOB files that the cells of a store file refer to (`MOB_FILE_REFS`), by table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MobFileRefs(BTreeMap<String, BTreeSet<String>>);

impl MobFileRefs {
    /// Parses the value of the file info (`MobUtils.deserializeMobFileRefs`).
    ///
    /// # Errors
    /// `IOException` for bytes of another form.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut refs = Self::default();
        if bytes.len() <= 1 {
            return Ok(refs);
        }
        let malformed = || {
            HBaseError::io(
                "MOB reference data does not match expected encoding: no table name included before list of mob refs.",
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
        for entry in text.split("//") {
            let (table, files) = entry.split_once('/').ok_or_else(malformed)?;
            let table: TableName = table.parse().map_err(|_| malformed())?;
            for file in files.split(',') {
                if !is_mob_file_name(file) {
                    return Err(malformed());
                }
                refs.insert(&table.to_string(), file);
            }
        }
        Ok(refs)
    }

    /// The value of the file info (`MobUtils.serializeMobFileRefs`).
    pub fn encode(&self) -> Vec<u8> {
        if self.is_empty() {
            return NO_REFS.to_vec();
        }
        let entries = self.0.iter().map(|(table, files)| {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            format!("{table}/{}", files.join(","))
        });
        entries.collect::<Vec<_>>().join("//").into_bytes()
    }

    /// Adds a file of a table, given by its full name. Allocates only for a new one.
    pub fn insert(&mut self, table: &str, file: &str) {
        match self.0.get_mut(table) {
            Some(files) if files.contains(file) => {}
            Some(files) => drop(files.insert(file.to_owned())),
            None => drop(self.0.insert(table.to_owned(), BTreeSet::from([file.to_owned()]))),
        }
    }

    /// Adds the files of others.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|(table, file)| self.insert(table, file));
    }

    /// Returns true if this file of a table is among them.
    pub fn contains(&self, table: &str, file: &str) -> bool {
        self.0.get(table).is_some_and(|files| files.contains(file))
    }

    /// All files, each with its table's full name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(table, files)| files.iter().map(move |file| (table.as_str(), file.as_str())))
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Returns true if there is no file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::KeyValueBuilder;
    use crate::{CellType, KeyValue};

    /// A name of HBase before 2.5.
    fn old_name(digit: char) -> String {
        format!("{}20201127{}", "d".repeat(32), digit.to_string().repeat(32))
    }

    fn table(name: &str) -> TableName {
        name.parse().expect("legal")
    }

    /// The encoded name of `some_table` is that of the examples in HBase's reference guide, and
    /// that of `mob` is a directory that stock HBase 2.6.4 made.
    #[test]
    fn the_mob_region_of_a_table_has_a_fixed_name() {
        let region = mob_region(&table("t"));
        assert_eq!(&region.name()[..8], b"t,.mob,0");
        let encoded = |name| mob_region(&table(name)).encoded_name().to_owned();
        assert_eq!(encoded("some_table"), "372c1b27e3dc0b56c3a031926e5efbe9");
        assert_eq!(encoded("mob"), "d03fd4b3e06fa777620047d45772c63d");
        let root = Path::new("/hbase");
        let dir = mob_family_dir(root, &table("ns:t"), "f");
        let encoded = mob_region(&table("ns:t")).encoded_name().to_owned();
        assert_eq!(dir, root.join("mobdir/data/ns/t").join(&encoded).join("f"));
        let archive = mob_archive_dir(root, &table("t"), "f");
        assert_eq!(archive, root.join("archive/data/default/t").join(region.encoded_name()).join("f"));
    }

    #[test]
    fn a_name_has_four_parts() {
        let region = RegionInfo::new(table("t"), Bytes::from_static(b"row"), Bytes::new(), 7);
        let uuid = "0123456789abcdef0123456789abcdef";
        let name = MobFileName::new(&region, "20261127", uuid);
        let text = name.to_string();
        let md5: String = Md5::digest(b"row").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(text, format!("{md5}20261127{uuid}_{}", region.encoded_name()));
        let parsed = MobFileName::parse(&text).expect("a name");
        assert_eq!((parsed.date(), parsed.region()), ("20261127", region.encoded_name()));
        assert_eq!(parsed, name);
        // MD5 of no bytes: the name of a file of the first region begins with it.
        let first = RegionInfo::new(table("t"), Bytes::new(), Bytes::new(), 7);
        assert!(MobFileName::new(&first, "20261127", uuid).to_string().starts_with("d41d8cd98f00b204"));
        for other in ["", "x", &text[..72], &text[..73], &text.replace('_', "-"), &format!("t=r-{text}"), "é"]
        {
            assert_eq!(MobFileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_reference_has_the_length_the_name_and_two_tags_before_those_of_the_cell() {
        let tag = [&[0, 2, 64][..], b"x"].concat();
        let cell = KeyValueBuilder { value: &[7; 300], tags: &tag, ..builder() }.build();
        let mut writer = ReferenceWriter::new(&table("ns:t")).expect("short");
        let cell = cell.as_cell();
        let reference = writer.reference(&cell, &old_name('a')).expect("fits");
        assert_eq!(reference.key(), cell.key());
        assert_eq!(reference.value(), [&300_u32.to_be_bytes()[..], old_name('a').as_bytes()].concat());
        let tags = [&[0, 1, 5, 0, 5, 6][..], b"ns:t", &tag].concat();
        assert_eq!(reference.tags(), tags);
        assert!(is_reference(&reference) && !is_reference(&cell));
        let parsed = MobReference::of(&reference).expect("a reference");
        assert_eq!(parsed, MobReference { value_bytes: 300, file: &old_name('a'), table: Some("ns:t") });
        assert_eq!(parsed.table_name(&reference).expect("legal"), table("ns:t"));
    }

    fn builder() -> KeyValueBuilder<'static> {
        KeyValueBuilder {
            row: b"r",
            family: b"f",
            qualifier: b"q",
            timestamp: 5,
            kind: CellType::Put,
            value: b"",
            tags: b"",
        }
    }

    #[test]
    fn malformed_references_are_errors() {
        let names = [
            "",
            "../up",
            ".tmp",
            "name",
            &"a".repeat(300),
            &format!("{}_{}", old_name('a'), "a".repeat(33)),
            &format!("{}_", old_name('a')),
            &format!("{}/", old_name('a')),
            &format!("t=77aa-{}", old_name('a')),
            "é",
        ]
        .map(|name| [b"\0\0\0\x01", name.as_bytes()].concat());
        for value in names.iter().map(|name| &name[..]).chain([&b""[..], b"\0\0\0", b"\0\0\0\x01\xff"]) {
            let cell = KeyValue::put(b"r", b"f", b"q", 5, value);
            let error = MobReference::of(&cell.as_cell()).expect_err("malformed");
            assert!(error.message().starts_with("Corrupted MOB reference"), "{error}");
        }
        let value = [b"\0\0\0\x01", old_name('a').as_bytes()].concat();
        let cell = KeyValue::put(b"r", b"f", b"q", 5, &value);
        let reference = MobReference::of(&cell.as_cell()).expect("without a table");
        assert!(reference.table_name(&cell.as_cell()).is_err());
    }

    #[test]
    fn refs_have_the_form_of_hbase() {
        let mut refs = MobFileRefs::default();
        assert_eq!(refs.encode(), NO_REFS);
        assert_eq!(MobFileRefs::parse(NO_REFS).expect("none"), refs);
        let [a, b, c] = ['a', 'b', 'c'].map(old_name);
        refs.insert("t", &b);
        refs.insert("t", &a);
        refs.insert("ns:u", &c);
        refs.insert("t", &a);
        assert_eq!(refs.encode(), format!("ns:u/{c}//t/{a},{b}").as_bytes());
        assert_eq!(refs.len(), 3);
        assert_eq!(MobFileRefs::parse(&refs.encode()).expect("parsed"), refs);
        assert!(refs.contains("t", &a) && !refs.contains("t", &c) && !refs.contains("u", &c));
        let bad = ["/A", "tA", "t/A//", "t/A,,A", "t/", "t/A/A", "t/name", "t/A,t=77aa-A"];
        for bad in bad.map(|bad| bad.replace('A', &a)) {
            assert!(MobFileRefs::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(MobFileRefs::parse(b"\xff\xff").is_err());
    }
}
