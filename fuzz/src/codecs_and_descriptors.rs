//! Bodies of codecs, and the small files of a region and a table.

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, RegionInfo, TableDescriptor, TableName};
use evenkeel_compression::{Compression, Compressor, decompress, expansion_max};
use evenkeel_hfile::{Half, ReferenceRange};
use evenkeel_protocol::{PB_MAGIC, from_magic, pb, with_magic};
use evenkeel_region::store_file_tracker::{ListedFile, list_file};
use prost::Message;

/// A body with a larger declared length is rejected before it is decoded, like an HFile's block.
const BODY_BYTES_MAX: usize = 8 << 20;

/// `input` is u32 declared length | body.
fn body(kind: Compression, input: &[u8]) {
    let Some((wanted, body)) = input.split_first_chunk::<4>() else { return };
    let wanted = u32::from_be_bytes(*wanted) as usize;
    if wanted > BODY_BYTES_MAX || wanted / expansion_max(kind) > body.len() {
        return;
    }
    if let Some(raw) = decompress(kind, body, wanted) {
        assert_eq!(raw.len(), wanted);
    }
}

fn seeds(kind: Compression) -> Vec<Vec<u8>> {
    let raw = b"abcabcabcabc, and again abcabcabcabcabc; 0123456789 0123456789".repeat(4);
    let seed = |framed, raw: &[u8]| {
        let mut out = (raw.len() as u32).to_be_bytes().to_vec();
        let compressed = Compressor::new(kind, framed).and_then(|mut c| c.compress(raw, &mut out));
        compressed.unwrap_or_else(|e| panic!("{e}"));
        out
    };
    vec![seed(false, &raw), seed(true, &raw), seed(false, b""), seed(false, b"x")]
}

macro_rules! codecs {
    ($($kind:ident: $run:ident, $seeds:ident;)*) => {
        $(
            pub(crate) fn $run(input: &[u8]) {
                body(Compression::$kind, input);
            }

            pub(crate) fn $seeds() -> Vec<Vec<u8>> {
                seeds(Compression::$kind)
            }
        )*
    };
}

codecs! {
    Gz: gz, gz_seeds;
    Snappy: snappy, snappy_seeds;
    Lz4: lz4, lz4_seeds;
    Zstd: zstd, zstd_seeds;
    Bzip2: bzip2, bzip2_seeds;
}

/// `.regioninfo`: writing the parsed content and parsing it again must give the same.
pub(crate) fn region_info(input: &[u8]) {
    let Some((magic, message)) = input.split_first_chunk::<4>() else { return };
    if magic != PB_MAGIC {
        return;
    }
    let Ok(message) = pb::RegionInfo::decode_length_delimited(message) else {
        return;
    };
    if let Ok(region) = RegionInfo::try_from(&message) {
        assert!(!region.encoded_name().is_empty());
        assert_eq!(RegionInfo::try_from(&pb::RegionInfo::from(&region)).as_ref(), Ok(&region));
    }
}

pub(crate) fn region_info_seeds() -> Vec<Vec<u8>> {
    let table = TableName::new("ns", "table").unwrap_or_else(|e| panic!("{e}"));
    let region =
        RegionInfo::new(table, Bytes::from_static(b"a"), Bytes::from_static(b"m"), 1_700_000_000_000);
    let of = |region: &RegionInfo| {
        let mut bytes = PB_MAGIC.to_vec();
        bytes.extend(Message::encode_length_delimited_to_vec(&pb::RegionInfo::from(region)));
        bytes
    };
    vec![of(&region), of(&RegionInfo::meta())]
}

/// `.tabledesc`: writing the parsed content and parsing it again must give the same.
pub(crate) fn table_descriptor(input: &[u8]) {
    let Ok(schema) = from_magic::<pb::TableSchema>(input) else { return };
    if let Ok(table) = TableDescriptor::try_from(&schema) {
        let again = TableDescriptor::try_from(&pb::TableSchema::from(&table));
        assert_eq!(again.as_ref(), Ok(&table));
    }
}

pub(crate) fn table_descriptor_seeds() -> Vec<Vec<u8>> {
    let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).unwrap_or_else(|e| panic!("{e}"));
    let name: TableName = "ns:t".parse().unwrap_or_else(|e| panic!("{e:?}"));
    let table = TableDescriptor::new(name).with_family(family(b"f")).with_family(family(b"g"));
    vec![with_magic(&pb::TableSchema::from(&table))]
}

/// Reference files.
pub(crate) fn reference(input: &[u8]) {
    if let Ok(half) = Half::parse(input) {
        assert_eq!(Half::parse(&half.encode()).as_ref(), Ok(&half));
    }
}

pub(crate) fn reference_seeds() -> Vec<Vec<u8>> {
    vec![
        Half::at_row(b"row", ReferenceRange::Top).encode(),
        Half::at_row(b"", ReferenceRange::Bottom).encode(),
    ]
}

/// Lists of store files.
pub(crate) fn store_file_list(input: &[u8]) {
    if let Ok(Some(files)) = list_file::decode(input) {
        let bytes = list_file::encode(&files, 1).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(list_file::decode(&bytes), Ok(Some(files)));
    }
}

pub(crate) fn store_file_list_seeds() -> Vec<Vec<u8>> {
    let file = |name: &str, bytes| ListedFile { name: name.to_owned(), bytes };
    let lists = [vec![], vec![file("0af9", 300), file("0afa.0123ab", 0), file("t=0123ab-00ff", 0)]];
    lists.iter().map(|files| list_file::encode(files, 7).unwrap_or_else(|e| panic!("{e}"))).collect()
}
