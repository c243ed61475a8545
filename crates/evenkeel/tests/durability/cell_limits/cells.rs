//! The cells that are sent: legal ones, and every change that takes a cell to a limit or past it.

use evenkeel_common::CellType;
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{ColumnValue, DeleteType, MutationType};
use prost::Message;

use crate::wire::Codec;

/// `hbase.server.keyvalue.maxsize` of these servers.
pub const CELL_BYTES_MAX: usize = 1_000_000;
const TTL_MS: i64 = 1 << 40;

/// The parts of a cell; any of them may be illegal.
#[derive(Clone, Debug)]
pub struct Parts {
    pub row: Vec<u8>,
    pub family: Vec<u8>,
    pub qualifier: Vec<u8>,
    pub timestamp: i64,
    pub code: u8,
    pub value: Vec<u8>,
    pub tags: Vec<u8>,
    pub ttl_ms: Option<i64>,
    /// The row of the mutation, if it is another one.
    pub mutation_row: Option<Vec<u8>>,
}

/// The low bytes of a length, as a writer without checks stores it.
fn low_u16(len: usize) -> [u8; 2] {
    u16::try_from(len % 65_536).expect("below").to_be_bytes()
}

fn u32_bytes(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("short").to_be_bytes()
}

impl Parts {
    pub fn of(kind: MutationType, row: &str) -> Self {
        Self {
            row: row.into(),
            family: b"f".to_vec(),
            qualifier: b"q".to_vec(),
            timestamp: i64::MAX,
            code: if kind == MutationType::Delete { CellType::DeleteColumn } else { CellType::Put }.code(),
            value: match kind {
                MutationType::Delete => Vec::new(),
                MutationType::Increment => 7i64.to_be_bytes().to_vec(),
                _ => b"value".to_vec(),
            },
            tags: Vec::new(),
            ttl_ms: None,
            mutation_row: None,
        }
    }

    /// Encodes the cell as `KeyValueCodecWithTags` does. `KeyValueCodec` ignores the tags.
    fn key_value(&self) -> Vec<u8> {
        let family_len = u8::try_from(self.family.len()).expect("a byte");
        let mut key = [&low_u16(self.row.len())[..], &self.row, &[family_len], &self.family].concat();
        key.extend(&self.qualifier);
        key.extend(self.timestamp.to_be_bytes());
        key.push(self.code);
        let mut bytes = [u32_bytes(key.len()), u32_bytes(self.value.len())].concat();
        bytes.extend([key, self.value.clone()].concat());
        if !self.tags.is_empty() {
            bytes.extend(low_u16(self.tags.len()));
            bytes.extend(&self.tags);
        }
        [&u32_bytes(bytes.len())[..], &bytes].concat()
    }

    /// Encodes the cell as `CellCodec` does, or `CellCodecWithTags`.
    fn cell(&self, with_tags: bool) -> Vec<u8> {
        let sized = |part: &[u8]| [&u32_bytes(part.len())[..], part].concat();
        let mut bytes = [sized(&self.row), sized(&self.family), sized(&self.qualifier)].concat();
        bytes.extend(self.timestamp.to_be_bytes());
        bytes.push(self.code);
        bytes.extend(sized(&self.value));
        if with_tags {
            bytes.extend(sized(&self.tags));
        }
        bytes.extend([0; 8]);
        bytes
    }

    /// Encodes the cell as `MessageCodec` does.
    fn message(&self) -> Vec<u8> {
        let cell = pb::Cell {
            row: Some(self.row.clone().into()),
            family: Some(self.family.clone().into()),
            qualifier: Some(self.qualifier.clone().into()),
            timestamp: Some(self.timestamp.cast_unsigned()),
            cell_type: Some(self.code.into()),
            value: Some(self.value.clone().into()),
            tags: None,
        };
        cell.encode_length_delimited_to_vec()
    }

    /// Encodes the cell for a cell block; nothing if it is in the message.
    fn in_block(&self, form: Form) -> Vec<u8> {
        match form {
            Form::KeyValue | Form::PlainKeyValue => self.key_value(),
            Form::Cell => self.cell(true),
            Form::PlainCell => self.cell(false),
            Form::MessageCell => self.message(),
            Form::Message | Form::MessageWithoutCodec => Vec::new(),
        }
    }

    fn delete_type(&self) -> DeleteType {
        match CellType::from_code(self.code) {
            Some(CellType::Delete) => DeleteType::DeleteOneVersion,
            Some(CellType::DeleteFamily) => DeleteType::DeleteFamily,
            Some(CellType::DeleteFamilyVersion) => DeleteType::DeleteFamilyVersion,
            _ => DeleteType::DeleteMultipleVersions,
        }
    }

    /// A Delete of this type. A Delete of a family removes only cells with the first timestamp, so
    /// cells beside it stay.
    pub fn deleting(code: CellType, row: &str) -> Self {
        let cell = Self { code: code.code(), ..Self::of(MutationType::Delete, row) };
        if is_of_family(code) { Self { qualifier: Vec::new(), timestamp: 0, ..cell } } else { cell }
    }

    /// A good cell beside this one, for the same mutation. A Delete deletes a column.
    pub fn beside(&self, kind: MutationType, qualifier: &str) -> Self {
        Self { row: self.row.clone(), qualifier: qualifier.into(), ttl_ms: self.ttl_ms, ..Self::of(kind, "") }
    }

    /// The Put of the first moment that a Delete deletes; `None` for an illegal row.
    pub fn deleted(&self, code: CellType) -> Option<Self> {
        let qualifier = if is_of_family(code) { b"q".to_vec() } else { self.qualifier.clone() };
        let put = Self { row: self.row.clone(), qualifier, timestamp: 0, ..Self::of(MutationType::Put, "") };
        (1..=32_767).contains(&self.row.len()).then_some(put)
    }

    fn attributes(&self) -> Vec<pb::NameBytesPair> {
        let ttl = |ttl: i64| pb::NameBytesPair {
            name: "_ttl".to_owned(),
            value: Some(ttl.to_be_bytes().to_vec().into()),
        };
        self.ttl_ms.map(ttl).into_iter().collect()
    }

    /// A mutation without cells.
    fn proto(&self, kind: MutationType) -> pb::MutationProto {
        pb::MutationProto {
            row: Some(self.mutation_row.as_ref().unwrap_or(&self.row).clone().into()),
            mutate_type: Some(kind as i32),
            attribute: self.attributes(),
            ..Default::default()
        }
    }

    /// The column of a message.
    fn column(&self, kind: MutationType) -> ColumnValue {
        let value = QualifierValue {
            qualifier: Some(self.qualifier.clone().into()),
            value: Some(self.value.clone().into()),
            timestamp: Some(self.timestamp.cast_unsigned()),
            delete_type: (kind == MutationType::Delete).then(|| self.delete_type() as i32),
            tags: (!self.tags.is_empty()).then(|| self.tags.clone().into()),
        };
        ColumnValue { family: self.family.clone().into(), qualifier_value: vec![value] }
    }

    /// The cell as it is stored: with the tags that its form has, and its time to live.
    pub fn stored_tags(&self, form: Form) -> Vec<u8> {
        let ttl = self.ttl_ms.map(|ttl| tag(8, &ttl.to_be_bytes())).unwrap_or_default();
        let tags = if form == Form::PlainKeyValue { &[][..] } else { &self.tags };
        [tags, &ttl].concat()
    }
}

/// A mutation of these cells, which have one row, and its cell block.
pub fn mutation(cells: &[Parts], kind: MutationType, form: Form) -> (pb::MutationProto, Vec<u8>) {
    // The cell that was changed may name another row, or a time to live.
    let changed = cells.iter().find(|cell| cell.ttl_ms.is_some() || cell.mutation_row.is_some());
    let proto = changed.unwrap_or(&cells[0]).proto(kind);
    if matches!(form, Form::Message | Form::MessageWithoutCodec) {
        let column_value = cells.iter().map(|cell| cell.column(kind)).collect();
        return (pb::MutationProto { column_value, ..proto }, Vec::new());
    }
    let associated_cell_count = Some(i32::try_from(cells.len()).expect("few"));
    let block = cells.iter().flat_map(|cell| cell.in_block(form)).collect();
    (pb::MutationProto { associated_cell_count, ..proto }, block)
}

/// A Put whose one cell is in the message.
pub fn put_message(cell: &Parts) -> pb::MutationProto {
    mutation(std::slice::from_ref(cell), MutationType::Put, Form::Message).0
}

pub fn tag(kind: u8, value: &[u8]) -> Vec<u8> {
    [&low_u16(value.len() + 1)[..], &[kind], value].concat()
}

pub const DELETES: [CellType; 4] =
    [CellType::DeleteColumn, CellType::Delete, CellType::DeleteFamily, CellType::DeleteFamilyVersion];

pub fn is_of_family(code: CellType) -> bool {
    matches!(code, CellType::DeleteFamily | CellType::DeleteFamilyVersion)
}

/// The form in which a cell is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    KeyValue,
    PlainKeyValue,
    Cell,
    PlainCell,
    MessageCell,
    Message,
    MessageWithoutCodec,
}

impl Form {
    /// The codec of the connection.
    pub fn codec(self) -> Codec {
        match self {
            Self::KeyValue | Self::Message => Codec::KeyValueWithTags,
            Self::PlainKeyValue => Codec::KeyValue,
            Self::Cell => Codec::CellWithTags,
            Self::PlainCell => Codec::Cell,
            Self::MessageCell => Codec::Message,
            Self::MessageWithoutCodec => Codec::None,
        }
    }

    fn is_in_message(self) -> bool {
        matches!(self, Self::Message | Self::MessageWithoutCodec)
    }
}

/// The call that contains the mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Mutate,
    /// Between two Puts to other rows.
    Multi,
    /// As [`Call::Multi`], with the cells of those Puts in the cell block.
    Batch,
    /// With a Put to the same row.
    Atomic,
    /// As [`Call::Atomic`], with a condition.
    Conditional,
    Check,
    Endpoint,
}

pub const WAYS: [(Call, Form); 16] = [
    (Call::Mutate, Form::KeyValue),
    (Call::Mutate, Form::Cell),
    (Call::Mutate, Form::Message),
    (Call::Mutate, Form::PlainKeyValue),
    (Call::Mutate, Form::MessageCell),
    (Call::Multi, Form::KeyValue),
    (Call::Multi, Form::Cell),
    (Call::Batch, Form::KeyValue),
    (Call::Batch, Form::PlainCell),
    (Call::Atomic, Form::KeyValue),
    (Call::Atomic, Form::PlainCell),
    (Call::Conditional, Form::KeyValue),
    (Call::Conditional, Form::Message),
    (Call::Check, Form::Cell),
    (Call::Check, Form::MessageWithoutCodec),
    (Call::Endpoint, Form::Message),
];
pub const KINDS: [MutationType; 4] =
    [MutationType::Put, MutationType::Delete, MutationType::Append, MutationType::Increment];

/// Changes a good cell. Returns true if the result is still good. `None`: this form cannot express
/// the change.
pub type Change = fn(&mut Parts, MutationType, Form) -> Option<bool>;

fn has_value(kind: MutationType) -> bool {
    matches!(kind, MutationType::Put | MutationType::Append)
}

/// Sets tags that are legal if `good`. Tags in the message of a Delete are ignored, and so are
/// those of `KeyValueCodec`.
fn with_tags(cell: &mut Parts, kind: MutationType, form: Form, tags: Vec<u8>, good: bool) -> Option<bool> {
    cell.tags = tags;
    match form {
        Form::PlainKeyValue => Some(true),
        Form::PlainCell | Form::MessageCell => None,
        _ if kind == MutationType::Delete && form.is_in_message() => None,
        _ => Some(good),
    }
}

pub const CHANGES: [(&str, Change); 30] = [
    ("as it is", |_, _, _| Some(true)),
    ("one tag", |c, k, f| with_tags(c, k, f, tag(64, b"tag"), true)),
    ("many tags", |c, k, f| with_tags(c, k, f, (0..200u8).flat_map(|i| tag(65, &[i])).collect(), true)),
    ("a tag as long as can be", |c, k, f| with_tags(c, k, f, tag(64, &[1; 65_532]), true)),
    ("no qualifier", |c, _, _| {
        c.qualifier.clear();
        Some(true)
    }),
    ("a long qualifier", |c, _, _| {
        c.qualifier = vec![b'q'; 70_000];
        Some(true)
    }),
    ("a long value", |c, kind, _| {
        c.value = vec![b'v'; 70_000];
        has_value(kind).then_some(true)
    }),
    ("no value", |c, kind, _| {
        c.value.clear();
        has_value(kind).then_some(true)
    }),
    ("a value that is no number", |c, kind, _| {
        c.value = vec![0; 7];
        (kind == MutationType::Increment).then_some(false)
    }),
    ("the first moment", |c, _, _| {
        c.timestamp = 0;
        Some(true)
    }),
    ("the longest row", |c, _, _| {
        c.row.resize(32_767, b'r');
        Some(true)
    }),
    ("a time to live", |c, _, _| {
        c.ttl_ms = Some(TTL_MS);
        Some(true)
    }),
    ("a time to live that does not fit", |c, kind, form| {
        c.ttl_ms = Some(TTL_MS);
        with_tags(c, kind, form, tag(64, &[1; 65_532]), kind == MutationType::Delete)
    }),
    ("tags of one byte", |c, k, f| with_tags(c, k, f, vec![1], false)),
    ("a tag without type", |c, k, f| with_tags(c, k, f, vec![0, 0], false)),
    ("a tag that is cut", |c, k, f| with_tags(c, k, f, vec![0, 9, 64, 1], false)),
    ("a byte behind the tags", |c, k, f| with_tags(c, k, f, [tag(64, b"x"), vec![0]].concat(), false)),
    ("a time to live of 7 bytes", |c, k, f| with_tags(c, k, f, tag(8, &[0; 7]), false)),
    ("too many tags", |c, kind, form| {
        let tags = [tag(64, &[1; 65_000]), tag(64, &[1; 600])].concat();
        with_tags(c, kind, form, tags, false).filter(|_| form != Form::KeyValue)
    }),
    ("a row too long", |c, _, _| {
        c.row.resize(32_768, b'r');
        Some(false)
    }),
    ("no row", |c, _, _| {
        c.row.clear();
        Some(false)
    }),
    ("another row", |c, _, form| {
        c.mutation_row = Some([&c.row[..], b"-mutation"].concat());
        (!form.is_in_message()).then_some(false)
    }),
    ("no family", |c, _, _| {
        c.family.clear();
        Some(false)
    }),
    ("a family too long", |c, _, _| {
        c.family = vec![b'f'; 128];
        Some(false)
    }),
    ("another family", |c, _, _| {
        c.family = b"g".to_vec();
        Some(false)
    }),
    ("before all time", |c, _, _| {
        c.timestamp = -1;
        Some(false)
    }),
    ("a type that is none", |c, _, form| {
        c.code = 5;
        (!form.is_in_message()).then_some(false)
    }),
    ("the type of a key to seek", |c, _, form| {
        c.code = 255;
        (!form.is_in_message()).then_some(false)
    }),
    ("the other type to seek", |c, _, form| {
        c.code = 0;
        (!form.is_in_message()).then_some(false)
    }),
    ("a cell too large", |c, kind, _| {
        c.value = vec![b'v'; CELL_BYTES_MAX];
        has_value(kind).then_some(false)
    }),
];
