//! Helpers that the tests of the log share.
#![allow(dead_code)] // each test uses its part

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::clock::ManualClock;
use evenkeel_common::varint::{read_varint, write_varint};
use evenkeel_common::{KeyValue, TableName};
use evenkeel_fs::{FaultyFileSystem, FileSystem, LocalFileSystem, MemoryFileSystem};
use evenkeel_wal::{
    ClusterUuid, Compression, FamilyScope, NoListener, ReadError, Scope, SyncLevel, Wal, WalCompression,
    WalConfig, WalEntry, WalListener, WalOptions, WalReader,
};
use parking_lot::Mutex;

pub const WAL_DIR: &str = "/WALs/h,1,2";
pub const OLD_DIR: &str = "/oldWALs";
pub const REGION: Bytes = Bytes::from_static(b"00000000000000000000000000000001");

pub fn table() -> TableName {
    "t".parse().expect("legal")
}

/// An entry of one cell in family `f`, whose value is of `len` bytes.
pub fn entry_of(region: Bytes, seq_id: u64, len: usize) -> WalEntry {
    let value: Vec<u8> = (0..len).map(|i| (i as u64 * 7 + seq_id) as u8).collect();
    let row = format!("row{seq_id}");
    let mut cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1000 + seq_id as i64, &value);
    cell.set_seq_id(seq_id);
    WalEntry::new(region, table(), seq_id, 1_700_000_000_000, vec![cell])
}

pub fn entry(seq_id: u64) -> WalEntry {
    entry_of(REGION, seq_id, 20)
}

/// Records all callbacks.
#[derive(Default)]
pub struct RecordingListener {
    pub aborts: Mutex<Vec<String>>,
    pub flushes: Mutex<Vec<(Bytes, Vec<Bytes>)>>,
}

impl WalListener for RecordingListener {
    fn abort(&self, reason: &str) {
        self.aborts.lock().push(reason.to_owned());
    }

    fn request_flush(&self, stores: &[(Bytes, Vec<Bytes>)]) {
        self.flushes.lock().extend_from_slice(stores);
    }
}

pub fn open_with(
    fs: impl FileSystem + 'static,
    config: WalConfig,
    listener: Arc<dyn WalListener>,
) -> Arc<Wal> {
    fs.mkdirs(WAL_DIR.as_ref()).expect("mkdirs");
    open_in(Arc::new(fs), WAL_DIR.as_ref(), OLD_DIR.as_ref(), config, listener, ManualClock::at(1000))
}

pub fn open(fs: impl FileSystem + 'static) -> Arc<Wal> {
    open_with(fs, WalConfig::default(), Arc::new(NoListener))
}

pub fn open_in(
    fs: Arc<dyn FileSystem>,
    wal_dir: &Path,
    old_dir: &Path,
    config: WalConfig,
    listener: Arc<dyn WalListener>,
    clock: Arc<ManualClock>,
) -> Arc<Wal> {
    let options = WalOptions {
        fs,
        wal_dir: wal_dir.into(),
        old_dir: old_dir.into(),
        prefix: "h%2C1%2C2".into(),
        suffix: String::new(),
        config,
        clock,
        listener,
    };
    Wal::open(options).expect("open")
}

pub fn open_local(dir: &Path, config: WalConfig) -> Arc<Wal> {
    let wal_dir = dir.join("WALs/h,1,2");
    LocalFileSystem::new().mkdirs(&wal_dir).expect("mkdirs");
    let fs = Arc::new(LocalFileSystem::new());
    open_in(fs, &wal_dir, &dir.join("oldWALs"), config, Arc::new(NoListener), ManualClock::at(1000))
}

/// The entries of a file up to its end, and the error that ended the reading, if any.
pub fn read_file(fs: &dyn FileSystem, path: &Path) -> (Vec<WalEntry>, Option<ReadError>) {
    let mut reader = match WalReader::open(fs, path) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut entries = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, None),
            Err(error) => return (entries, Some(error)),
        }
    }
}

/// The entries of all files of a directory, by name, none of which may be corrupt.
pub fn read_dir(fs: &dyn FileSystem, dir: &Path) -> Vec<WalEntry> {
    let files = fs.list(dir).unwrap_or_default();
    let read = files.iter().map(|file| {
        let (entries, error) = read_file(fs, &file.path);
        assert!(error.is_none(), "{error:?}");
        entries
    });
    read.flatten().collect()
}

pub fn seq_ids(entries: &[WalEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq_id).collect()
}

pub fn live_files(fs: &dyn FileSystem) -> Vec<PathBuf> {
    fs.list(WAL_DIR.as_ref()).unwrap_or_default().into_iter().map(|file| file.path).collect()
}

pub fn not_inline() -> WalConfig {
    WalConfig { inline_sync: false, ..WalConfig::default() }
}

pub fn append_synced(wal: &Wal, seq_id: u64) -> evenkeel_common::Result<()> {
    let txid = wal.append(&entry(seq_id))?;
    wal.sync(txid, SyncLevel::Flush)
}

pub fn faulty() -> (MemoryFileSystem, FaultyFileSystem) {
    let memory = MemoryFileSystem::new();
    (memory.clone(), FaultyFileSystem::new(memory))
}

/// An entry with all optional fields.
pub fn rich_entry(seq_id: u64) -> WalEntry {
    let mut entry = entry_of(REGION, seq_id, 40);
    let tagged = KeyValueBuilder {
        row: b"row",
        family: b"g",
        qualifier: b"",
        timestamp: -1,
        kind: evenkeel_common::CellType::DeleteFamily,
        value: b"",
        tags: &[0, 2, 8, 1],
    };
    let mut cell = tagged.build();
    cell.set_seq_id(seq_id);
    entry.cells.push(cell);
    entry.nonce = 7;
    entry.nonce_group = 8;
    entry.scopes = vec![FamilyScope { family: Bytes::from_static(b"f"), scope: Scope::Serial }];
    entry.cluster_ids = vec![ClusterUuid { most: 1, least: 2 }];
    entry.attributes = vec![("name".into(), Bytes::from_static(b"value"))];
    entry
}

/// Every format of a file: plain, with dictionaries, and with values in each compression.
pub fn forms() -> Vec<Option<WalCompression>> {
    let dictionaries = WalCompression::default();
    let values = |kind, zstd_framed| WalCompression { values: Some(kind), zstd_framed, tags: true };
    let by_codec =
        [Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Bzip2];
    let mut forms = vec![None, Some(dictionaries), Some(WalCompression { tags: false, ..dictionaries })];
    forms.extend(by_codec.map(|kind| Some(values(kind, false))));
    forms.push(Some(values(Compression::Zstd, true)));
    forms.push(Some(values(Compression::None, false)));
    forms
}

/// The bytes of a file of these entries, and the offset of each entry; the last offset is the end
/// of the entries.
pub fn file_in(form: Option<WalCompression>, entries: &[WalEntry], closed: bool) -> (Vec<u8>, Vec<usize>) {
    let fs = MemoryFileSystem::new();
    let config = WalConfig { compression: form, ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    let path = wal.current_path();
    let mut offsets = vec![fs.status(&path).expect("status").len as usize];
    for entry in entries {
        let txid = wal.append(entry).expect("append");
        wal.sync(txid, SyncLevel::Flush).expect("sync");
        offsets.push(fs.status(&path).expect("status").len as usize);
    }
    if closed {
        wal.close().expect("close");
    }
    (fs.read_all(&path, 1 << 20).expect("read"), offsets)
}

/// The file as HBase writes it: without the checksums of its entries. The offsets change with it.
pub fn without_checksums(bytes: &[u8], offsets: &[usize]) -> (Vec<u8>, Vec<usize>) {
    use prost::Message;
    const FIELD_BYTES: usize = 6;
    let mut header =
        evenkeel_protocol::pb::WalHeader::decode_length_delimited(&bytes[4..]).expect("a header");
    assert_eq!(header.entry_checksums.take(), Some(true));
    let mut out = bytes[..4].to_vec();
    out.extend_from_slice(&header.encode_length_delimited_to_vec());
    let mut new_offsets = vec![out.len()];
    for entry in offsets.windows(2).map(|range| &bytes[range[0]..range[1]]) {
        let (key_len, key_at) = read_varint(entry).expect("a length");
        assert_eq!(entry[key_at..key_at + 2], [0xc5, 0x3e]);
        write_varint(&mut out, key_len - FIELD_BYTES as u64);
        out.extend_from_slice(&entry[key_at + FIELD_BYTES..]);
        new_offsets.push(out.len());
    }
    out.extend_from_slice(&bytes[offsets[offsets.len() - 1]..]);
    (out, new_offsets)
}
