//! The offline tools, run as a user runs them, over root directories that the test creates and then
//! damages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::NoCache;
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{
    CellComparator, CellType, ColumnFamilyDescriptor, KeyValue, RegionInfo, TableDescriptor, TableName,
};
use evenkeel_fs::{DirLock, LocalFileSystem};
use evenkeel_hfile::{
    BloomType, ChecksumType, HFileContext, HFileReader, HFileWriter, Half, OpenOptions, ReferenceRange,
    StoreFileMeta, TRAILER_BYTES,
};
use evenkeel_master::descriptors;
use evenkeel_protocol::{pb, with_magic};
use evenkeel_region::layout;
use evenkeel_wal::{NoListener, SyncLevel, Wal, WalConfig, WalEntry, WalOptions, WalReader};
use prost::Message;
use tempfile::TempDir;

const FILE: &str = "00112233445566778899aabbccddeeff";
const CREATED_MS: i64 = 1_700_000_000_000;

fn tool(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(args).env_remove("HBASE_CONF_DIR").output().expect("runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A root directory with a table `t` of the regions (-, b), (b, d), (d, -), a store file in each,
/// and hbase:meta.
struct Root {
    dir: TempDir,
    table: TableName,
    regions: Vec<RegionInfo>,
}

impl Root {
    fn new() -> Self {
        let root = Self::without_meta();
        root.write_meta(&root.regions);
        root
    }

    fn without_meta() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let table: TableName = "t".parse().expect("legal");
        let version = with_magic(&pb::HBaseVersionFileContent { version: "8".into() });
        std::fs::write(dir.path().join("hbase.version"), version).expect("written");
        let id = with_magic(&pb::ClusterId { cluster_id: "c".into() });
        std::fs::write(dir.path().join("hbase.id"), id).expect("written");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let descriptor = TableDescriptor::new(table.clone()).with_family(family);
        let table_dir = layout::table_dir(dir.path(), &table);
        descriptors::write(&LocalFileSystem::new(), &table_dir, &descriptor).expect("written");
        let mut root = Self { dir, table, regions: Vec::new() };
        for (start, end) in [("", "b"), ("b", "d"), ("d", "")] {
            let region = root.region(start, end, 1);
            root.write_region(&region);
            root.write_file(&region, FILE, &rows(&format!("{start}a"), 200), &context());
            root.regions.push(region);
        }
        root
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn region(&self, start: &str, end: &str, id: i64) -> RegionInfo {
        let key = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        RegionInfo::new(self.table.clone(), key(start), key(end), id)
    }

    fn region_dir(&self, region: &RegionInfo) -> PathBuf {
        layout::region_dir(self.path(), region)
    }

    fn file(&self, region: &RegionInfo, name: &str) -> PathBuf {
        self.region_dir(region).join("f").join(name)
    }

    fn write_region(&self, region: &RegionInfo) {
        let dir = self.region_dir(region);
        std::fs::create_dir_all(dir.join("f")).expect("made");
        let mut bytes = evenkeel_protocol::PB_MAGIC.to_vec();
        bytes.extend(pb::RegionInfo::from(region).encode_length_delimited_to_vec());
        std::fs::write(dir.join(layout::REGION_INFO_FILE), bytes).expect("written");
    }

    fn write_file(
        &self,
        region: &RegionInfo,
        name: &str,
        cells: &[KeyValue],
        context: &HFileContext,
    ) -> PathBuf {
        let path = self.file(region, name);
        write_hfile(&path, cells, context.clone());
        path
    }

    /// hbase:meta with a row for each region, and one for the table.
    fn write_meta(&self, regions: &[RegionInfo]) {
        let meta = RegionInfo::meta();
        self.write_region(&meta);
        let mut cells: Vec<_> = regions.iter().map(region_row).collect();
        cells.sort_by(|a, b| CellComparator::Meta.compare(&a.as_cell(), &b.as_cell()));
        let context =
            HFileContext { comparator: CellComparator::Meta, bloom: BloomType::RowCol, ..context() };
        let dir = self.region_dir(&meta);
        std::fs::remove_dir_all(dir.join("f")).expect("removed");
        drop(std::fs::remove_dir_all(dir.join("info")));
        write_hfile(&dir.join("info").join(FILE), &cells, context.clone());
        let state = pb::TableState { state: pb::table_state::State::Enabled.into() }.encode_to_vec();
        drop(std::fs::remove_dir_all(dir.join("table")));
        write_hfile(
            &dir.join("table").join(FILE),
            &[KeyValue::put(b"t", b"table", b"state", 1, &state)],
            context,
        );
    }

    /// Runs `verify`, which must end with this status; returns its lines.
    fn verify(&self, status: i32) -> String {
        let output = tool(&["verify", path_text(self.path())]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        text(&output)
    }

    /// Every file below the root, with its bytes.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut content, mut dirs) = (BTreeMap::new(), vec![self.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("listed") {
                let path = entry.expect("entry").path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => drop(content.insert(path.clone(), std::fs::read(path).expect("read"))),
                }
            }
        }
        content
    }
}

fn region_row(region: &RegionInfo) -> KeyValue {
    KeyValue::put(region.name(), b"info", b"regioninfo", 1, &with_magic(&pb::RegionInfo::from(region)))
}

/// Small blocks, so that there are many, and two levels of index.
fn context() -> HFileContext {
    HFileContext {
        block_bytes: 512,
        index_block_bytes_max: 256,
        index_block_entries_min: 2,
        create_time_ms: CREATED_MS,
        ..HFileContext::default()
    }
}

fn rows(prefix: &str, count: usize) -> Vec<KeyValue> {
    let cell = |i| {
        KeyValue::put(format!("{prefix}{i:05}").as_bytes(), b"f", b"q", 7, format!("value{i}").as_bytes())
    };
    (0..count).map(cell).collect()
}

fn write_hfile(path: &Path, cells: &[KeyValue], context: HFileContext) {
    let mut writer = HFileWriter::create(&LocalFileSystem::new(), path, context).expect("created");
    cells.iter().for_each(|cell| writer.append(&cell.as_cell()).expect("appended"));
    writer.finish(StoreFileMeta { max_seq_id: Some(5), ..StoreFileMeta::default() }).expect("finished");
}

fn open(path: &Path) -> Arc<HFileReader> {
    HFileReader::open_path(&LocalFileSystem::new(), path, Arc::new(NoCache), &OpenOptions::default())
        .expect("opens")
}

/// The offsets of a file's blocks, and their types.
fn blocks(path: &Path) -> Vec<(u64, evenkeel_block_cache::BlockType)> {
    let reader = open(path);
    let (mut offset, mut blocks) = (0, Vec::new());
    while offset < reader.blocks_end() {
        let block = reader.block_at(offset).expect("sound");
        blocks.push((offset, block.kind()));
        offset += u64::from(block.on_disk_bytes());
    }
    blocks
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

/// Writes a WAL of three entries and closes it; returns its bytes, and the offsets of the entries.
fn wal_bytes() -> (Vec<u8>, Vec<u64>) {
    let dir = tempfile::tempdir().expect("temp dir");
    let wal_dir = dir.path().join("WALs");
    std::fs::create_dir_all(&wal_dir).expect("made");
    let options = WalOptions {
        fs: Arc::new(LocalFileSystem::new()),
        wal_dir,
        old_dir: dir.path().join("oldWALs"),
        prefix: "h%2C1%2C1".into(),
        suffix: String::new(),
        config: WalConfig::default(),
        clock: ManualClock::at(CREATED_MS),
        listener: Arc::new(NoListener),
    };
    let wal = Wal::open(options).expect("opened");
    for seq_id in 1..=3_u64 {
        let row = format!("row{seq_id}");
        let cell = KeyValue::put(row.as_bytes(), b"f", b"q\xff", 7, b"va\"lue");
        let region = Bytes::from_static(b"0123456789abcdef0123456789abcdef");
        let table = "t".parse().expect("legal");
        let entry = WalEntry::new(region, table, seq_id, CREATED_MS, vec![cell]);
        let txid = wal.append(&entry).expect("appended");
        wal.sync(txid, SyncLevel::Flush).expect("synced");
    }
    let path = wal.current_path();
    wal.close().expect("closed");
    let mut reader = WalReader::open(&LocalFileSystem::new(), &path).expect("opens");
    let mut starts = vec![reader.position()];
    while reader.next().expect("sound").is_some() {
        starts.push(reader.position());
    }
    assert_eq!(starts.len(), 4);
    (std::fs::read(path).expect("read"), starts)
}

fn wal_path(root: &Root) -> PathBuf {
    let dir = root.path().join("WALs/h,1,1");
    std::fs::create_dir_all(&dir).expect("made");
    dir.join("h%2C1%2C1.1700000000000")
}

#[test]
fn verify_finds_and_changes_nothing_in_a_sound_directory() {
    let root = Root::new();
    std::fs::write(wal_path(&root), wal_bytes().0).expect("written");
    let before = root.content();
    let said = root.verify(0);
    assert!(said.contains("5 store files, 1 WALs") && said.contains("0 faults, 0 notes"), "{said}");
    assert_eq!(root.content(), before);
    let _lock = DirLock::acquire(root.path()).expect("free");
    root.verify(0);
}

#[test]
fn every_damaged_byte_of_a_block_is_found_with_its_file_and_block() {
    let root = Root::new();
    let path = root.file(&root.regions[1], FILE);
    let (blocks, sound) = (blocks(&path), std::fs::read(&path).expect("read"));
    assert!(blocks.len() > 15, "{}", blocks.len());
    let end = sound.len() - TRAILER_BYTES;
    // A step without a common divisor with the format: it hits headers, bodies and checksums of all
    // kinds of blocks.
    for at in (0..end).step_by(331).chain(blocks.iter().map(|(offset, _)| *offset as usize + 9)) {
        flip(&path, at);
        let (block, kind) = blocks.iter().rfind(|(offset, _)| *offset <= at as u64).expect("a block");
        let said = root.verify(1);
        let expected = format!("fault: {} at offset {block}: ", path.display());
        assert!(said.contains(&expected), "byte {at} of {kind:?}: {said}");
        std::fs::write(&path, &sound).expect("written");
    }
    root.verify(0);
}

#[test]
fn crc_files_are_compared_with_their_files() {
    let root = Root::new();
    let path = root.file(&root.regions[1], FILE);
    let side = path.with_file_name(format!(".{FILE}.crc"));
    // CRC-32 of absent bytes: one checksum for the whole file, and those of a file of another
    // length.
    let claims = |bytes: u32, sums: usize| {
        [b"crc\0".to_vec(), bytes.to_be_bytes().to_vec(), vec![1; sums * 4]].concat()
    };
    for sums in [claims(1 << 20, 1), claims(512, 3)] {
        std::fs::write(&side, sums).expect("written");
        let said = root.verify(1);
        assert!(
            said.contains(&format!("fault: {} at offset 0: the checksums in the .crc file", path.display())),
            "{said}"
        );
    }
    std::fs::remove_file(&side).expect("removed");
    root.verify(0);
}

#[test]
fn a_block_that_claims_to_have_no_checksum_is_found() {
    let root = Root::new();
    let path = root.file(&root.regions[1], FILE);
    let sound = std::fs::read(&path).expect("read");
    for (offset, kind) in blocks(&path) {
        let mut bytes = sound.clone();
        bytes[offset as usize + 24] = 0;
        std::fs::write(&path, &bytes).expect("written");
        let said = root.verify(1);
        let expected =
            format!("{} at offset {offset}: a block without a checksum, unlike others", path.display());
        assert!(said.contains(&expected), "{kind:?}: {said}");
    }
}

#[test]
fn damage_does_not_hide_other_damage() {
    let root = Root::new();
    let path = root.file(&root.regions[1], FILE);
    let data: Vec<_> = blocks(&path).into_iter().filter(|(_, kind)| kind.is_data()).collect();
    flip(&path, data[1].0 as usize + 40);
    flip(&path, data[4].0 as usize);
    let said = root.verify(1);
    for (offset, _) in [data[1], data[4]] {
        assert!(said.contains(&format!("{} at offset {offset}: ", path.display())), "{said}");
    }
    assert_eq!(said.matches("fault: ").count(), 2, "{said}");
}

#[test]
fn cut_files_are_found() {
    let root = Root::new();
    let path = root.file(&root.regions[0], FILE);
    let sound = std::fs::read(&path).expect("read");
    for len in [0, 1, 100, sound.len() / 2, sound.len() - TRAILER_BYTES, sound.len() - 1] {
        std::fs::write(&path, &sound[..len]).expect("written");
        let said = root.verify(1);
        assert!(said.contains(&format!("fault: {} at offset ", path.display())), "{len}: {said}");
    }
}

#[test]
fn damage_without_checksums_is_found() {
    let root = Root::new();
    let region = &root.regions[1];
    let path = root.file(region, FILE);
    let unchecked = HFileContext { checksum: ChecksumType::Null, ..context() };
    std::fs::remove_file(&path).expect("removed");
    root.write_file(region, FILE, &rows("ba", 200), &unchecked);
    let sound = std::fs::read(&path).expect("read");
    root.verify(0);
    let place_of = |row: &[u8]| sound.windows(row.len()).position(|window| window == row).expect("there");
    let bloom =
        blocks(&path).iter().find(|(_, kind)| *kind == evenkeel_block_cache::BlockType::BloomChunk).copied();
    let bloom = bloom.expect("a chunk").0 as usize + 33;

    let mut bytes = sound.clone();
    bytes[bloom..bloom + 256].fill(0);
    expect_fault(&root, &path, &bytes, "bloom filter: ");

    // The row becomes 00000, and comes after the row 00001.
    let mut bytes = sound.clone();
    bytes[place_of(b"ba00002") + 6] = b'0';
    expect_fault(&root, &path, &bytes, "cell order: ba00000/f:q/7/Put comes after ba00001/f:q/7/Put");

    let mut bytes = sound.clone();
    bytes[place_of(b"ba00002") + 8] = b'g';
    expect_fault(&root, &path, &bytes, "family: ba00002/g:q/7/Put is of another family");

    let at = sound.len() - TRAILER_BYTES;
    let message = &sound[at + 8..];
    let mut trailer = pb::FileTrailerProto::decode_length_delimited(message).expect("a trailer");
    trailer.entry_count = Some(201);
    let encoded = trailer.encode_length_delimited_to_vec();
    let mut bytes = sound.clone();
    bytes[at + 8..at + 8 + encoded.len()].copy_from_slice(&encoded);
    expect_fault(&root, &path, &bytes, "trailer: it counts 201 cells, the file has 200");
}

fn expect_fault(root: &Root, path: &Path, bytes: &[u8], what: &str) {
    std::fs::write(path, bytes).expect("written");
    let said = root.verify(1);
    let line = said.lines().find(|line| line.starts_with("fault: ") && line.contains(what));
    let line = line.unwrap_or_else(|| panic!("{what} in {said}"));
    assert!(line.starts_with(&format!("fault: {} at offset ", path.display())), "{line}");
}

#[test]
fn a_file_in_the_wrong_region_is_found() {
    let root = Root::new();
    let path = root.write_file(&root.regions[0], "ff", &rows("ca", 3), &context());
    let said = root.verify(1);
    let expected =
        format!("fault: {} at offset 0: region: row ca00000 is not in the region [, b)", path.display());
    assert!(said.contains(&expected) && said.contains("the first of 3"), "{said}");
}

#[test]
fn a_missing_region_is_found_by_regioninfo_and_meta() {
    let root = Root::new();
    let missing = root.region_dir(&root.regions[1]);
    std::fs::remove_dir_all(&missing).expect("removed");
    let said = root.verify(1);
    assert!(said.contains("by .regioninfo: hole: no region holds the rows from b to d"), "{said}");
    assert!(said.contains(&format!("{}: missing, and a region in hbase:meta", missing.display())), "{said}");

    root.write_meta(&[root.regions[0].clone(), root.regions[2].clone()]);
    let said = root.verify(1);
    assert!(said.contains("by hbase:meta: hole: no region holds the rows from b to d"), "{said}");

    let alone = Root::without_meta();
    std::fs::remove_dir_all(alone.region_dir(&alone.regions[2])).expect("removed");
    let said = alone.verify(1);
    assert!(said.contains("by .regioninfo: no region holds the rows from d on"), "{said}");
    assert!(said.contains("there is no hbase:meta"), "{said}");
}

#[test]
fn an_overlapping_region_is_found() {
    let root = Root::new();
    let extra = root.region("a", "c", 2);
    root.write_region(&extra);
    root.write_file(&extra, FILE, &rows("ab", 2), &context());
    let dir = root.region_dir(&extra);
    let said = root.verify(1);
    assert!(
        said.contains(&format!("{}: not in hbase:meta, with 1 files of its own", dir.display())),
        "{said}"
    );
    assert!(said.contains(".regioninfo: overlap: ") && said.contains(path_text(&dir)), "{said}");

    // Without data it is a leftover of a change.
    std::fs::remove_file(root.file(&extra, FILE)).expect("removed");
    assert!(root.verify(0).contains(&format!("note: {}: left by an interrupted change", dir.display())));

    let all: Vec<_> = root.regions.iter().cloned().chain([extra]).collect();
    root.write_meta(&all);
    assert!(root.verify(1).contains("hbase:meta: overlap: "));
}

#[test]
fn a_split_without_its_parents_file_is_a_fault() {
    let root = Root::new();
    let parent = root.regions[1].clone();
    let (a, b) = (root.region("b", "ba00100", 2), root.region("ba00100", "d", 2));
    let reference = format!("{FILE}.{}", parent.encoded_name());
    for (daughter, range) in [(&a, ReferenceRange::Bottom), (&b, ReferenceRange::Top)] {
        root.write_region(daughter);
        std::fs::write(root.file(daughter, &reference), Half::at_row(b"ba00100", range).encode())
            .expect("written");
    }
    let split = parent.clone().with_flags(true, true);
    let all = [root.regions[0].clone(), split, a.clone(), b, root.regions[2].clone()];
    root.write_meta(&all);
    root.verify(0);

    let target = root.file(&parent, FILE);
    std::fs::remove_file(&target).expect("removed");
    let said = root.verify(1);
    let expected =
        format!("fault: {} at offset 0: the file that it refers to, ", root.file(&a, &reference).display());
    assert!(said.contains(&expected) && said.contains(path_text(&target)), "{said}");

    std::fs::write(root.file(&a, &reference), b"PBUFx").expect("written");
    assert!(root.verify(1).contains("not the content of a reference file"));
}

#[test]
fn rows_of_hbase_meta_are_read_from_the_wal_too() {
    let root = Root::new();
    let extra = root.region("x", "", 2);
    let meta = RegionInfo::meta();
    let dir = root.path().join("WALs/h,1,1");
    std::fs::create_dir_all(&dir).expect("made");
    let options = WalOptions {
        fs: Arc::new(LocalFileSystem::new()),
        wal_dir: dir,
        old_dir: root.path().join("oldWALs"),
        prefix: "h%2C1%2C1.meta".into(),
        suffix: ".meta".into(),
        config: WalConfig::default(),
        clock: ManualClock::at(CREATED_MS),
        listener: Arc::new(NoListener),
    };
    let wal = Wal::open(options).expect("opened");
    // The store file of hbase:meta has all edits up to 5; an older one must stay hidden.
    let hidden = root.region("y", "", 3);
    for (seq_id, region) in [(4, &hidden), (6, &extra)] {
        let name = Bytes::copy_from_slice(meta.encoded_name().as_bytes());
        let entry = WalEntry::new(name, meta.table().clone(), seq_id, CREATED_MS, vec![region_row(region)]);
        let txid = wal.append(&entry).expect("appended");
        wal.sync(txid, SyncLevel::Flush).expect("synced");
    }
    let said = root.verify(1);
    assert!(said.contains(&format!("{}: missing", root.region_dir(&extra).display())), "{said}");
    assert!(!said.contains(hidden.encoded_name()), "{said}");
    wal.close().expect("closed");
}

#[test]
fn a_torn_wal_is_a_note_and_a_damaged_one_a_fault() {
    let root = Root::new();
    let path = wal_path(&root);
    let (bytes, starts) = wal_bytes();
    for cut in [starts[2] + 1, starts[3] - 1] {
        std::fs::write(&path, &bytes[..cut as usize]).expect("written");
        let said = root.verify(0);
        let torn = cut - starts[2];
        let expected = format!("note: {} at offset {}: torn tail of {torn} bytes", path.display(), starts[2]);
        assert!(said.contains(&expected), "{said}");
    }
    let mut damaged = bytes.clone();
    damaged[starts[1] as usize] = 0;
    std::fs::write(&path, &damaged).expect("written");
    let said = root.verify(1);
    let expected = format!("fault: {} at offset {}: corrupt WAL entry: ", path.display(), starts[1]);
    assert!(said.contains(&expected), "{said}");

    // A crash cannot explain this, because the file was closed.
    let mut damaged = bytes.clone();
    damaged.drain(starts[3] as usize - 2..starts[3] as usize);
    std::fs::write(&path, &damaged).expect("written");
    assert!(root.verify(1).contains(&format!("{} at offset {}: ", path.display(), starts[2])));

    std::fs::write(&path, b"XWAL and so on").expect("written");
    assert!(root.verify(1).contains(&format!("{} at offset 0: ", path.display())));
}

#[test]
fn damaged_small_files_are_found() {
    let root = Root::new();
    let table_dir = layout::table_dir(root.path(), &root.table);
    let descriptor = std::fs::read_dir(table_dir.join(".tabledesc")).expect("listed").next().expect("one");
    let paths = [
        root.region_dir(&root.regions[0]).join(layout::REGION_INFO_FILE),
        descriptor.expect("entry").path(),
        root.path().join("hbase.version"),
    ];
    for path in paths {
        let sound = std::fs::read(&path).expect("read");
        for bytes in [&sound[..sound.len() - 1], b"", b"PBUF\xff\xff\xff"] {
            std::fs::write(&path, bytes).expect("written");
            let said = root.verify(1);
            assert!(said.contains("fault: ") && said.contains(path_text(&path)), "{said}");
        }
        std::fs::write(&path, sound).expect("written");
    }
    root.verify(0);
}

#[test]
fn a_missing_descriptor_is_found() {
    let root = Root::new();
    let dir = layout::table_dir(root.path(), &root.table).join(".tabledesc");
    std::fs::remove_dir_all(&dir).expect("removed");
    assert!(root.verify(1).contains(&format!("fault: {}: no table descriptor", dir.display())));
}

#[test]
fn the_masters_own_region_is_read_too() {
    let root = Root::new();
    let table: TableName = "master:store".parse().expect("legal");
    let tree = root.path().join("MasterData");
    let region = RegionInfo::new(table.clone(), Bytes::new(), Bytes::new(), 1);
    let dir = layout::region_dir(&tree, &region);
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let descriptor = TableDescriptor::new(table.clone()).with_family(family);
    descriptors::write(&LocalFileSystem::new(), &layout::table_dir(&tree, &table), &descriptor)
        .expect("written");
    let path = dir.join("f").join(FILE);
    write_hfile(&path, &rows("r", 3), context());
    let mut bytes = evenkeel_protocol::PB_MAGIC.to_vec();
    bytes.extend(pb::RegionInfo::from(&region).encode_length_delimited_to_vec());
    std::fs::write(dir.join(layout::REGION_INFO_FILE), bytes).expect("written");
    assert!(root.verify(0).contains("6 store files"));
    flip(&path, 50);
    assert!(root.verify(1).contains(&format!("fault: {} at offset 0: ", path.display())));
}

#[test]
fn a_directory_that_is_no_root_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    for dir in [dir.path().to_owned(), dir.path().join("absent")] {
        let output = tool(&["verify", path_text(&dir)]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(path_text(&dir)));
    }
    assert_eq!(tool(&["verify"]).status.code(), Some(2));
}

#[test]
fn a_major_compaction_leaves_one_sound_file_and_archives_the_others() {
    let root = Root::new();
    let region = &root.regions[1];
    let mut newer = rows("ba", 3);
    newer.iter_mut().for_each(|cell| cell.set_seq_id(4));
    let delete = KeyValue::new(b"ba00000", b"f", b"q", 7, CellType::DeleteColumn, b"");
    root.write_file(region, "aa", &newer, &context());
    root.write_file(region, "bb", &[delete], &context());

    let lock = DirLock::acquire(root.path()).expect("free");
    let output = tool(&["compact", path_text(root.path())]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("in use"), "{}", text(&output));
    drop(lock);

    let output = tool(&["compact", "--major", "--table", "t", path_text(root.path())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let names = |dir: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(dir).expect("listed");
        entries.map(|entry| entry.expect("entry").path()).collect()
    };
    let files = names(&root.region_dir(region).join("f"));
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(open(&files[0]).entry_count(), 199);
    assert_eq!(names(&layout::archive_region_dir(root.path(), region).join("f")).len(), 3);
    root.verify(0);

    let output = tool(&["compact", "--table", "absent", path_text(root.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("no table absent"));
}

#[test]
fn compaction_leaves_the_parents_of_a_split_alone() {
    let root = Root::new();
    let parent = root.regions[1].clone();
    root.write_file(&parent, "aa", &rows("bb", 2), &context());
    root.write_meta(&[
        root.regions[0].clone(),
        parent.clone().with_flags(true, true),
        root.regions[2].clone(),
    ]);
    let output = tool(&["compact", "--major", path_text(root.path())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(root.file(&parent, FILE).exists() && root.file(&parent, "aa").exists());
    assert!(!root.file(&root.regions[0], FILE).exists(), "the others were compacted");
}

/// A file whose every byte is known.
fn small_file(dir: &Path) -> PathBuf {
    let path = dir.join("f").join(FILE);
    let mut cells = vec![
        KeyValue::new(b"r1", b"f", b"", 9, CellType::DeleteFamily, b""),
        KeyValue::put(b"r1", b"f", b"a", 7, b"one"),
        KeyValue::put(b"r1", b"f", b"b\xff", 7, b"t\\wo"),
        KeyValue::put(b"r2", b"f", b"a", 8, b"three"),
    ];
    cells[1].set_seq_id(3);
    write_hfile(&path, &cells, HFileContext { block_bytes: 64, ..context() });
    path
}

#[test]
fn hfile_prints_cells() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = small_file(dir.path());
    let output = tool(&["hfile", "-p", "-v", "-k", "-a", "-f", path_text(&path)]);
    let expected = format!(
        "Scanning -> {}\n\
         K: r1/f:/9/DeleteFamily/vlen=0/seqid=0 V: \n\
         K: r1/f:a/7/Put/vlen=3/seqid=3 V: one\n\
         K: r1/f:b\\xFF/7/Put/vlen=4/seqid=0 V: t\\x5Cwo\n\
         K: r2/f:a/8/Put/vlen=5/seqid=0 V: three\n\
         Scanned kv count -> 4\n",
        path.display()
    );
    assert_eq!(text(&output), expected);

    let output = tool(&["hfile", "-e", "-w", "r\\x32", path_text(&path)]);
    assert_eq!(text(&output), "K: r2/f:a/8/Put/vlen=5/seqid=0\nScanned kv count -> 1\n");
    let output = tool(&["hfile", "-e", "-r", path_text(dir.path())]);
    assert!(text(&output).ends_with("Scanned kv count -> 4\n"), "{}", text(&output));
}

#[test]
fn hfile_prints_the_trailer_the_file_info_and_the_index() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = small_file(dir.path());
    let said = text(&tool(&["hfile", "-m", "-b", "-h", path_text(&path)]));
    for line in [
        "    firstKey=r1/f:/9/DeleteFamily,",
        "    lastKey=r2/f:a/8/Put,",
        "    entries=4,",
        "    entryCount=4,",
        "    majorVersion=3,",
        "    BLOOM_FILTER_TYPE = ROW",
        "    DELETE_FAMILY_COUNT = 1",
        "    MAX_SEQ_ID_KEY = 5",
        "    TIMERANGE = 0....9",
        "    hfile.CREATE_TIME_TS = 1700000000000",
        "    hfile.LASTKEY = r2/f:a/8/Put",
        "    No of Keys in bloom: 2",
        "Delete Family Bloom filter:",
        "key=r1/f:/9/DeleteFamily",
        "  offset=0, dataSize=",
        "[blockType=DATABLK*, fileOffset=0, ",
        "[blockType=BLMFMET2, fileOffset=",
    ] {
        assert!(said.lines().any(|said| said.starts_with(line)), "{line} in\n{said}");
    }
}

#[test]
fn hfile_prints_statistics() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = small_file(dir.path());
    let said = text(&tool(&["hfile", "-d", "-f", path_text(&path)]));
    let part = |name: &str| {
        let from = said.find(&format!("   {name}:\n")).unwrap_or_else(|| panic!("{name} in\n{said}"));
        said[from..].split("\n   ").take(20).collect::<Vec<_>>().join("\n")
    };
    assert!(part("Row size (columns)").contains("max = 3"), "{said}");
    assert!(part("Val length").contains("mean = 3.00"), "{said}");
    assert!(part("Cell size (bytes)").contains("count = 4"), "{said}");
    assert!(part("Data block size (bytes)").contains("#"), "{said}");
    assert!(said.ends_with("Key of biggest row: r1\n"), "{said}");
}

#[test]
fn hfile_names_unreadable_files() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = small_file(dir.path());
    flip(&path, 40);
    let output = tool(&["hfile", "-e", path_text(&path)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains(&format!("{} at offset 0: ", path.display())), "{}", text(&output));
    assert_eq!(tool(&["hfile", "-e", "/absent/00"]).status.code(), Some(2));
    assert_eq!(tool(&["hfile", "-e"]).status.code(), Some(2));
}

#[test]
fn wal_prints_entries() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("h%2C1%2C1.1");
    let (bytes, starts) = wal_bytes();
    std::fs::write(&path, &bytes).expect("written");
    let output = tool(&["wal", "-p", "-s", "2", path_text(&path)]);
    let expected = format!(
        "Writer Classes: ProtobufLogWriter\n\
         Cell Codec Class: org.apache.hadoop.hbase.regionserver.wal.WALCellCodec\n\
         Sequence=2, table=t, region=0123456789abcdef0123456789abcdef, \
         at write timestamp=Tue Nov 14 22:13:20 UTC 2023\n\
         row=row2, column=f:q\\xFF, timestamp=7, type=Put\n    value: va\"lue\n\
         cell total size sum: 33\nedit size: 33\nposition: {}\nend: closed at {}\n",
        starts[2], starts[3]
    );
    assert_eq!(text(&output), expected);
    for (args, rows) in [
        (&["-k"][..], "row=row1\nrow=row2\nrow=row3\n"),
        (&["-k", "-w", "row3"], "row=row3\n"),
        (&["-k", "-f", "row"], "row=row1\nrow=row2\nrow=row3\n"),
        (&["-k", "-t", "a,b"], ""),
        (&["-k", "-r", "0123"], ""),
        (&["-k", "-g", &starts[2].to_string()], "row=row3\n"),
    ] {
        let args: Vec<&str> = ["wal"].iter().chain(args).copied().chain([path_text(&path)]).collect();
        let said = text(&tool(&args));
        assert_eq!(said.split_once("WALCellCodec\n").map(|(_, rest)| rest), Some(rows), "{args:?}");
    }
}

#[test]
fn wal_prints_json_and_reports_damage() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("h%2C1%2C1.1");
    let (bytes, starts) = wal_bytes();
    std::fs::write(&path, &bytes).expect("written");
    let said = text(&tool(&["wal", "-j", "-p", "-s", "2", path_text(&path)]));
    let expected = "[{\"table\":\"t\",\"region\":\"0123456789abcdef0123456789abcdef\",\"sequence\":2,\
        \"write_time\":1700000000000,\"actions\":[{\"row\":\"row2\",\"type\":\"Put\",\"family\":\"f\",\
        \"qualifier\":\"q\\\\xFF\",\"timestamp\":7,\"vlen\":6,\"total_size_sum\":33,\"value\":\"va\\\"lue\"}]}]\n";
    assert_eq!(said, expected);

    let mut damaged = bytes.clone();
    damaged[starts[1] as usize] = 0;
    std::fs::write(&path, &damaged).expect("written");
    let output = tool(&["wal", path_text(&path)]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("row=row1,") && !said.contains("row=row2,"), "{said}");
    assert!(said.contains(&format!("corrupt WAL entry at {}", starts[1])), "{said}");

    std::fs::write(&path, &bytes[..starts[2] as usize + 5]).expect("written");
    let said = text(&tool(&["wal", path_text(&path)]));
    assert!(
        said.contains(&format!("end: torn, 5 bytes after the last whole entry at {}", starts[2])),
        "{said}"
    );
}
