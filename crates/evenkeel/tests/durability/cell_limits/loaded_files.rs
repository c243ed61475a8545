//! Bulk loads of files with illegal cells. A load reads only the first and the last key, as HBase
//! does, so such cells get into a table. Clients then read and change their rows. The server stays
//! alive and answers, and keeps all other rows, its log and its flushes.
//! `crates/region/tests/regions/foreign_files.rs` loads many more such files into a region.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellType, ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{BloomType, ChecksumType, HFileContext, HFileWriter, StoreFileMeta};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;

use crate::cells::{Form, Parts, mutation};
use crate::common::{Server, TIMEOUT, block_on};
use crate::wire::{Codec, Found, Raw};
use crate::{TABLES, check_plain, compressed_log, put_plain};

/// The rows of a file. The second one has the illegal cell.
const FILE_ROWS: [&str; 3] = ["m1", "m2", "m3"];

/// For each file: its name, and bytes of the second cell with what replaces them.
const FILES: [(&str, &[u8], &[u8]); 16] = [
    ("legal", b"", b""),
    ("a tag that is cut", b"\0\x04\x40tag", b"\0\x09\x40tag"),
    ("a tag without type", b"\0\x04\x40tag", b"\0\0\x40tag"),
    ("bytes behind a tag", b"\0\x04\x40tag", b"\0\x02\x40tag"),
    ("a time to live of 3 bytes", b"\0\x04\x40tag", b"\0\x04\x08tag"),
    ("another family", b"m2\x01fq", b"m2\x01hq"),
    ("no family", b"m2\x01fq", b"m2\0qq"),
    ("no row", b"\0\x02m2\x01fq", b"\0\0\x01fqqq"),
    ("rows out of order", b"m2\x01fq", b"b0\x01fq"),
    ("a row of another region", b"m2\x01fq", b"zz\x01fq"),
    ("a row longer than its key", b"\0\x02m2\x01", b"\x80\x02m2\x01"),
    ("a family longer than its key", b"m2\x01fq", b"m2\xfffq"),
    ("a key longer than its block", b"\0\0\0\x10\0\0\0\x08\0\x02m2", b"\0\x7f\0\x10\0\0\0\x08\0\x02m2"),
    ("a time before all", b"m2\x01fq\0", b"m2\x01fq\xff"),
    ("a type that is none", b"\x07\x04second__", b"\x07\x05second__"),
    ("the type of a key to seek", b"\x07\x04second__", b"\x07\xffsecond__"),
];

/// Writes the file without checksums, and replaces a part of its second cell.
fn write(path: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let context = HFileContext {
        checksum: ChecksumType::Null,
        includes_tags: true,
        includes_mvcc: false,
        bloom: BloomType::None,
        ..HFileContext::default()
    };
    let mut writer = HFileWriter::create(&LocalFileSystem::new(), path, context).expect("a new file");
    for (row, value) in FILE_ROWS.into_iter().zip([b"first___", b"second__", b"third___"]) {
        let cell = KeyValueBuilder {
            row: row.as_bytes(),
            family: b"f",
            qualifier: b"q",
            timestamp: 7,
            kind: CellType::Put,
            value,
            tags: b"\0\x04\x40tag",
        };
        writer.append(&cell.build().as_cell()).expect("in order");
    }
    writer.finish(StoreFileMeta::default()).expect("written");
    let mut bytes = std::fs::read(path).expect("read");
    let second = bytes.windows(8).position(|part| part == b"second__").expect("there") - 40;
    let at = bytes[second..].windows(from.len().max(1)).position(|part| part == from);
    let at = second + if from.is_empty() { 0 } else { at.expect("there") };
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(path, bytes).expect("written");
}

fn table_name(at: usize) -> TableName {
    format!("loaded{at}").parse().expect("legal")
}

/// Creates a table for each file, and returns their regions.
async fn make_tables(server: &Server) -> Vec<pb::RegionSpecifier> {
    let connection = server.connect().await;
    let (admin, mut regions) = (connection.admin(), Vec::new());
    for at in 0..FILES.len() {
        let (encoding, codec, compress_tags) = TABLES[at % TABLES.len()];
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal");
        let loading = family(b"f").with("DATA_BLOCK_ENCODING", encoding).with("COMPRESSION", codec);
        let loading = loading.with("COMPRESS_TAGS", compress_tags);
        let table = TableDescriptor::new(table_name(at)).with_family(loading).with_family(family(b"g"));
        admin.create_table(&table, &[]).await.expect("created");
        let found = admin.regions(&table_name(at)).await.expect("regions");
        regions.push(pb::RegionSpecifier { r#type: 1, value: found[0].region.name().clone() });
    }
    let plain = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let plain = TableDescriptor::new("plain".parse().expect("legal")).with_family(plain);
    admin.create_table(&plain, &[]).await.expect("created");
    regions
}

struct Tables {
    raw: Raw,
    regions: Vec<pb::RegionSpecifier>,
    /// Rows that clients wrote, in both families of each table.
    rows: Vec<String>,
}

/// The qualifiers and values of a row; `None` if it cannot be read.
type Content = Option<Vec<(Vec<u8>, Vec<u8>)>>;

impl Tables {
    fn again(self, server: &mut Server) -> Self {
        server.kill();
        server.start();
        Self { raw: Raw::connect(server, Codec::KeyValueWithTags), ..self }
    }

    fn mutate(&mut self, at: usize, kind: MutationType, cell: &Parts) -> Result<(), String> {
        let (mutation, block) = mutation(std::slice::from_ref(cell), kind, Form::KeyValue);
        let region = self.regions[at].clone();
        let request = pb::MutateRequest { region, mutation, condition: None, nonce_group: None };
        self.raw.call("Mutate", &request, &block).any_message::<pb::MutateResponse>().map(drop)
    }

    /// Puts a row into both families of every table.
    fn put(&mut self, row: &str) {
        for (at, (name, ..)) in FILES.iter().enumerate() {
            for family in [b"f", b"g"] {
                let cell = Parts { family: family.to_vec(), ..Parts::of(MutationType::Put, row) };
                self.mutate(at, MutationType::Put, &cell).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
        self.rows.push(row.to_owned());
    }

    fn get(&mut self, at: usize, row: &str) -> Result<Vec<Found>, String> {
        let region = self.regions[at].clone();
        self.raw.get(&region, row.as_bytes())
    }

    /// Checks the rows that clients wrote, and returns those of the files.
    fn check(&mut self, server: &Server, when: &str) -> Vec<Content> {
        let mut of_files = Vec::new();
        for (at, (name, ..)) in FILES.iter().enumerate() {
            for row in self.rows.clone() {
                let found = self.get(at, &row);
                let count =
                    found.as_ref().map_or(0, |cells| cells.iter().filter(|cell| cell.1 == b"value").count());
                assert_eq!(count, 2, "{when}, {name}: row {row}: {found:?}");
            }
            let contents = FILE_ROWS.map(|row| {
                let found = self.get(at, row).ok()?;
                Some(found.into_iter().map(|(qualifier, value, _)| (qualifier, value)).collect())
            });
            of_files.extend(contents);
        }
        block_on(check_plain(server));
        of_files
    }

    /// Scans every table to its end, or to an error.
    fn scan(&mut self) {
        for region in self.regions.clone() {
            let request = pb::ScanRequest {
                region: Some(region),
                scan: Some(pb::Scan::default()),
                number_of_rows: Some(1000),
                close_scanner: Some(true),
                ..Default::default()
            };
            let _ = self.raw.call("Scan", &request, &[]).any_message::<pb::ScanResponse>();
        }
    }

    fn load(&mut self, at: usize, path: &Path) -> bool {
        let request = pb::BulkLoadHFileRequest {
            region: self.regions[at].clone(),
            family_path: vec![pb::bulk_load_h_file_request::FamilyPath {
                family: Bytes::from_static(b"f"),
                path: format!("file:{}", path.display()),
            }],
            assign_seq_num: Some(true),
            ..Default::default()
        };
        let reply = self.raw.call("BulkLoadHFile", &request, &[]).any_message::<pb::BulkLoadHFileResponse>();
        reply.is_ok_and(|(reply, _)| reply.loaded)
    }

    /// Changes the rows of the files in every way. Each change may be refused.
    fn change(&mut self) {
        for at in 0..FILES.len() {
            for row in FILE_ROWS {
                for kind in [MutationType::Increment, MutationType::Append] {
                    let _ = self.mutate(at, kind, &Parts::of(kind, row));
                }
                let put = Parts { qualifier: b"r".to_vec(), ..Parts::of(MutationType::Put, row) };
                let _ = self.mutate(at, MutationType::Put, &put);
            }
            let _ = self.mutate(at, MutationType::Delete, &Parts::of(MutationType::Delete, FILE_ROWS[0]));
        }
    }
}

async fn flush(server: &Server) {
    let connection = server.connect().await;
    for at in 0..FILES.len() {
        connection.admin().flush_table(&table_name(at)).await.expect("flushed");
    }
}

/// Requests a compaction of every table, and waits until each has ended or failed.
async fn compact(server: &Server) {
    let connection = server.connect().await;
    let admin = connection.admin();
    for at in 0..FILES.len() {
        admin.compact_table(&table_name(at), None, true).await.expect("asked");
    }
    let deadline = Instant::now() + TIMEOUT;
    for (at, (name, ..)) in FILES.iter().enumerate() {
        while admin.compaction_state(&table_name(at)).await.expect("told") != Default::default() {
            assert!(Instant::now() < deadline, "the compaction of {name} does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[test]
fn a_loaded_file_of_illegal_cells_harms_nothing_else() {
    let mut server = Server::started(&[&compressed_log()[..], &[("evenkeel.memory.size", "512m")]].concat());
    let regions = block_on(make_tables(&server));
    let raw = Raw::connect(&server, Codec::KeyValueWithTags);
    let mut tables = Tables { raw, regions, rows: Vec::new() };
    tables.put("a");
    tables.put("z");
    block_on(put_plain(&server));
    block_on(flush(&server));
    for (at, (name, from, to)) in FILES.into_iter().enumerate() {
        let path: PathBuf = server.folder().join(format!("file{at}"));
        write(&path, from, to);
        assert!(tables.load(at, &path), "{name}");
    }
    tables.put("c");
    tables.check(&server, "loaded");
    tables.scan();
    tables.change();
    tables.put("d");
    let before = tables.check(&server, "changed");
    let mut tables = tables.again(&mut server);
    assert_eq!(tables.check(&server, "after a kill"), before);
    block_on(flush(&server));
    assert_eq!(tables.check(&server, "flushed"), before);
    tables.scan();
    block_on(compact(&server));
    assert_eq!(tables.check(&server, "after a compaction"), before);
    tables.put("e");
    let mut tables = tables.again(&mut server);
    assert_eq!(tables.check(&server, "after another kill"), before);
    tables.scan();
    assert!(!server.log().contains("panicked"), "a thread of the server panicked");
}
