//! Cells at and past every limit, legal and not, sent as raw bytes by every kind of request, to
//! tables of every encoding. Acknowledged cells survive `kill -9`, a flush and a compaction byte
//! for byte, tags included, and what a Delete deleted stays deleted. All others are refused with
//! an error that no client retries, and no other cell, row or table is affected.

#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Server, TIMEOUT, block_on, raw};
use evenkeel_client::{Get, Put};
use evenkeel_common::{CellType, ColumnFamilyDescriptor, KeyValue, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{ColumnValue, DeleteType, MutationType};
use prost::Message;

const KEY_VALUE_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags";
const CELL_CODEC: &str = "org.apache.hadoop.hbase.codec.CellCodecWithTags";
const ENDPOINT: &str = "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|";
/// `hbase.server.keyvalue.maxsize` of these servers.
const CELL_BYTES_MAX: usize = 1_000_000;
const TTL_MS: i64 = 1 << 40;
const PLAIN_ROWS: usize = 100;
/// For each table: encoding, codec, and whether tags are compressed.
const TABLES: [(&str, &str, &str); 5] = [
    ("NONE", "NONE", "true"),
    ("PREFIX", "SNAPPY", "true"),
    ("DIFF", "GZ", "false"),
    ("FAST_DIFF", "LZ4", "true"),
    ("ROW_INDEX_V1", "ZSTD", "true"),
];

/// The parts of a cell; any of them may be illegal.
#[derive(Clone, Debug)]
struct Parts {
    row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    timestamp: i64,
    code: u8,
    value: Vec<u8>,
    tags: Vec<u8>,
    ttl_ms: Option<i64>,
}

/// The low bytes of a length, as a writer without checks stores it.
fn low_u16(len: usize) -> [u8; 2] {
    u16::try_from(len % 65_536).expect("below").to_be_bytes()
}

fn u32_bytes(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("short").to_be_bytes()
}

impl Parts {
    fn of(kind: MutationType, row: &str) -> Self {
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
        }
    }

    /// Encodes the cell as `KeyValueCodecWithTags` does.
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

    /// Encodes the cell as `CellCodecWithTags` does.
    fn cell(&self) -> Vec<u8> {
        let sized = |part: &[u8]| [&u32_bytes(part.len())[..], part].concat();
        let mut bytes = [sized(&self.row), sized(&self.family), sized(&self.qualifier)].concat();
        bytes.extend(self.timestamp.to_be_bytes());
        bytes.push(self.code);
        bytes.extend([sized(&self.value), sized(&self.tags), vec![0; 8]].concat());
        bytes
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
    fn deleting(code: CellType, row: &str) -> Self {
        let cell = Self { code: code.code(), ..Self::of(MutationType::Delete, row) };
        if is_of_family(code) { Self { qualifier: Vec::new(), timestamp: 0, ..cell } } else { cell }
    }

    /// The Put of the first moment that a Delete deletes; `None` for an illegal row.
    fn deleted(&self, code: CellType) -> Option<Self> {
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

    fn proto(&self, kind: MutationType) -> pb::MutationProto {
        pb::MutationProto {
            row: Some(self.row.clone().into()),
            mutate_type: Some(kind as i32),
            attribute: self.attributes(),
            ..Default::default()
        }
    }

    /// A mutation whose one cell is in the cell block.
    fn beside(&self, kind: MutationType) -> pb::MutationProto {
        pb::MutationProto { associated_cell_count: Some(1), ..self.proto(kind) }
    }

    /// A mutation whose cell is in the message.
    fn inside(&self, kind: MutationType) -> pb::MutationProto {
        let value = QualifierValue {
            qualifier: Some(self.qualifier.clone().into()),
            value: Some(self.value.clone().into()),
            timestamp: Some(self.timestamp.cast_unsigned()),
            delete_type: (kind == MutationType::Delete).then(|| self.delete_type() as i32),
            tags: (!self.tags.is_empty()).then(|| self.tags.clone().into()),
        };
        let column = ColumnValue { family: self.family.clone().into(), qualifier_value: vec![value] };
        pb::MutationProto { column_value: vec![column], ..self.proto(kind) }
    }
}

fn tag(kind: u8, value: &[u8]) -> Vec<u8> {
    [&low_u16(value.len() + 1)[..], &[kind], value].concat()
}

const DELETES: [CellType; 4] =
    [CellType::DeleteColumn, CellType::Delete, CellType::DeleteFamily, CellType::DeleteFamilyVersion];

fn is_of_family(code: CellType) -> bool {
    matches!(code, CellType::DeleteFamily | CellType::DeleteFamilyVersion)
}

/// The form in which a cell is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    KeyValue,
    Cell,
    Message,
}

/// The call that contains the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Mutate,
    /// Between two Puts to other rows.
    Multi,
    /// With a Put to the same row.
    Atomic,
    /// As [`Call::Atomic`], with a condition.
    Conditional,
    Check,
    Endpoint,
}

const WAYS: [(Call, Form); 10] = [
    (Call::Mutate, Form::KeyValue),
    (Call::Mutate, Form::Cell),
    (Call::Mutate, Form::Message),
    (Call::Multi, Form::KeyValue),
    (Call::Multi, Form::Cell),
    (Call::Atomic, Form::KeyValue),
    (Call::Conditional, Form::KeyValue),
    (Call::Conditional, Form::Message),
    (Call::Check, Form::Cell),
    (Call::Endpoint, Form::Message),
];
const KINDS: [MutationType; 4] =
    [MutationType::Put, MutationType::Delete, MutationType::Append, MutationType::Increment];

/// Changes a good cell. Returns true if the result is still good. `None`: this form cannot express
/// the change.
type Change = fn(&mut Parts, MutationType, Form) -> Option<bool>;

fn has_value(kind: MutationType) -> bool {
    matches!(kind, MutationType::Put | MutationType::Append)
}

/// Returns true if tags are read. Tags in the message of a Delete are ignored.
fn has_tags(kind: MutationType, form: Form) -> bool {
    (kind, form) != (MutationType::Delete, Form::Message)
}

fn with_tags(cell: &mut Parts, kind: MutationType, form: Form, tags: Vec<u8>, good: bool) -> Option<bool> {
    cell.tags = tags;
    has_tags(kind, form).then_some(good)
}

const CHANGES: [(&str, Change); 29] = [
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
        (form != Form::Message).then_some(false)
    }),
    ("the type of a key to seek", |c, _, form| {
        c.code = 255;
        (form != Form::Message).then_some(false)
    }),
    ("the other type to seek", |c, _, form| {
        c.code = 0;
        (form != Form::Message).then_some(false)
    }),
    ("a cell too large", |c, kind, _| {
        c.value = vec![b'v'; CELL_BYTES_MAX];
        has_value(kind).then_some(false)
    }),
];

/// A connection that sends raw requests.
struct Raw {
    stream: TcpStream,
    last_id: u32,
}

struct RawReply {
    header: pb::ResponseHeader,
    rest: Bytes,
}

impl Raw {
    fn connect(server: &Server, codec: &str) -> Self {
        let stream = raw::connect_with(server.port("hbase.regionserver.port"), codec);
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        Self { stream, last_id: 0 }
    }

    fn call(&mut self, method: &str, request: &impl Message, block: &[u8]) -> RawReply {
        self.last_id += 1;
        let bytes = raw::call_with_cells(self.last_id, method, request, block);
        self.stream.write_all(&bytes).expect("sent");
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).expect("an answer");
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut frame).expect("an answer");
        let mut rest = Bytes::from(frame);
        let header = pb::ResponseHeader::decode_length_delimited(&mut rest).expect("a header");
        assert_eq!(header.call_id, Some(self.last_id));
        RawReply { header, rest }
    }
}

impl RawReply {
    /// The message, or the error's text. The error must be one that clients do not retry.
    fn message<M: Message + Default>(mut self) -> Result<(M, Bytes), String> {
        if let Some(error) = self.header.exception {
            let text = error.stack_trace.unwrap_or_default();
            assert_eq!(error.do_not_retry, Some(true), "{text}");
            return Err(text);
        }
        let message = M::decode_length_delimited(&mut self.rest).expect("a message");
        Ok((message, self.rest))
    }
}

fn failure(pair: &pb::NameBytesPair) -> String {
    assert_ne!(pair.name, "java.io.IOException", "clients try that again");
    format!("{}: {}", pair.name, String::from_utf8_lossy(pair.value.as_deref().unwrap_or_default()))
}

/// The content of a column.
type ExpectedCells = BTreeMap<Column, (Vec<u8>, Vec<u8>)>;
/// A table, a row and a qualifier.
type Column = (usize, Vec<u8>, Vec<u8>);

struct Clients {
    key_values: Raw,
    cells: Raw,
    /// The region of each table.
    regions: Vec<pb::RegionSpecifier>,
    held: ExpectedCells,
    /// The columns that were deleted.
    gone: BTreeSet<Column>,
    made: usize,
}

impl Clients {
    fn new(server: &Server, regions: Vec<pb::RegionSpecifier>) -> Self {
        Self {
            key_values: Raw::connect(server, KEY_VALUE_CODEC),
            cells: Raw::connect(server, CELL_CODEC),
            regions,
            held: ExpectedCells::new(),
            gone: BTreeSet::new(),
            made: 0,
        }
    }

    /// Sends a cell, and returns the outcome.
    fn send(
        &mut self,
        at: usize,
        (call, form): (Call, Form),
        kind: MutationType,
        cell: &Parts,
    ) -> Result<(), String> {
        let region = self.regions[at].clone();
        let (mutation, block) = match form {
            Form::KeyValue => (cell.beside(kind), cell.key_value()),
            Form::Cell => (cell.beside(kind), cell.cell()),
            Form::Message => (cell.inside(kind), Vec::new()),
        };
        let connection = if form == Form::Cell { &mut self.cells } else { &mut self.key_values };
        match call {
            Call::Mutate | Call::Check => {
                let condition = (call == Call::Check).then(|| nothing_there(&cell.row));
                let request = pb::MutateRequest { region, mutation, condition, nonce_group: None };
                let (answer, _) =
                    connection.call("Mutate", &request, &block).message::<pb::MutateResponse>()?;
                assert!(answer.processed != Some(false), "the condition holds");
                Ok(())
            }
            Call::Endpoint => {
                let request =
                    pb::MutateRowsRequest { mutation_request: vec![mutation], ..Default::default() };
                let call = pb::CoprocessorServiceCall {
                    row: cell.row.clone().into(),
                    service_name: "MultiRowMutationService".to_owned(),
                    method_name: "MutateRows".to_owned(),
                    request: request.encode_to_vec().into(),
                };
                let request = pb::CoprocessorServiceRequest { region, call };
                let answer = connection.call("ExecService", &request, &[]);
                answer.message::<pb::CoprocessorServiceResponse>().map(drop)
            }
            Call::Atomic | Call::Conditional => {
                let condition = (call == Call::Conditional).then(|| nothing_there(&cell.row));
                let other = Parts { qualifier: b"beside".to_vec(), ..Parts::of(MutationType::Put, "") };
                let other = Parts { row: cell.row.clone(), ..other };
                let actions = vec![mutation, other.inside(MutationType::Put)];
                let results = multi(connection, region, (true, condition), actions, &block)?;
                if let Some(exception) = &results.exception {
                    return Err(failure(exception));
                }
                assert_ne!(results.processed, Some(false), "the condition holds");
                self.held.insert((at, cell.row.clone(), b"beside".to_vec()), (other.value, Vec::new()));
                Ok(())
            }
            Call::Multi => {
                let good = |name: &str| Parts::of(MutationType::Put, &format!("{name}{}", self.made));
                let (before, after) = (good("before"), good("after"));
                let actions =
                    vec![before.inside(MutationType::Put), mutation, after.inside(MutationType::Put)];
                let results = multi(connection, region, (false, None), actions, &block)?;
                let [one, two, three] = &results.result_or_exception[..] else { panic!("{results:?}") };
                for (good, result) in [(before, one), (after, three)] {
                    assert!(result.exception.is_none(), "others of the batch: {result:?}");
                    self.held.insert((at, good.row, good.qualifier), (good.value, Vec::new()));
                }
                two.exception.as_ref().map_or(Ok(()), |exception| Err(failure(exception)))
            }
        }
    }

    /// Sends a cell of every kind, with every change, by every kind of request.
    fn send_all(&mut self) {
        for (call, form) in WAYS {
            for kind in KINDS {
                if call == Call::Endpoint && matches!(kind, MutationType::Append | MutationType::Increment) {
                    continue;
                }
                for (name, change) in CHANGES {
                    self.made += 1;
                    let at = self.made % TABLES.len();
                    let (row, code) = (format!("r{}", self.made), DELETES[self.made % DELETES.len()]);
                    let is_delete = kind == MutationType::Delete;
                    let mut cell =
                        if is_delete { Parts::deleting(code, &row) } else { Parts::of(kind, &row) };
                    let Some(good) = change(&mut cell, kind, form) else { continue };
                    if is_delete && is_of_family(code) && !cell.qualifier.is_empty() {
                        continue;
                    }
                    let deleted = is_delete.then(|| cell.deleted(code)).flatten();
                    if let Some(put) = &deleted {
                        self.put(at, put.clone());
                    }
                    let what = format!("{kind:?} of {name}, {call:?} as {form:?}");
                    match self.send(at, (call, form), kind, &cell) {
                        Ok(()) => assert!(good, "{what}: taken"),
                        Err(error) => assert!(!good, "{what}: {error}"),
                    }
                    match deleted {
                        Some(put) if good => self.is_gone(at, put),
                        None if good => self.hold(at, cell),
                        _ => {}
                    }
                }
            }
        }
    }

    fn hold(&mut self, at: usize, cell: Parts) {
        let ttl = cell.ttl_ms.map(|ttl| tag(8, &ttl.to_be_bytes())).unwrap_or_default();
        let tags = [cell.tags, ttl].concat();
        self.held.insert((at, cell.row, cell.qualifier), (cell.value, tags));
    }

    fn put(&mut self, at: usize, cell: Parts) {
        self.send(at, (Call::Mutate, Form::Message), MutationType::Put, &cell).expect("it is legal");
        self.hold(at, cell);
    }

    fn is_gone(&mut self, at: usize, cell: Parts) {
        let column = (at, cell.row, cell.qualifier);
        self.held.remove(&column);
        self.gone.insert(column);
    }

    /// Mutations of a region with a condition that does not hold.
    fn send_in_vain(&mut self) {
        for at in 0..TABLES.len() {
            let put = |qualifier: &str| Parts {
                qualifier: qualifier.into(),
                ..Parts::of(MutationType::Put, "a condition that does not hold")
            };
            let compare_type = Some(pb::CompareType::NotEqual as i32);
            let condition = pb::Condition { compare_type, ..nothing_there(&put("a").row) };
            let actions = ["a", "b"].map(|qualifier| put(qualifier).inside(MutationType::Put));
            let region = self.regions[at].clone();
            let way = (true, Some(condition));
            let results = multi(&mut self.key_values, region, way, actions.into(), &[]).expect("legal");
            assert_eq!((results.exception, results.processed), (None, Some(false)));
            ["a", "b"].into_iter().for_each(|qualifier| self.is_gone(at, put(qualifier)));
        }
    }

    /// Increments and Appends whose result exceeds the limit.
    fn outgrow(&mut self) {
        let way = (Call::Mutate, Form::KeyValue);
        for at in 0..TABLES.len() {
            let tagged =
                |kind| Parts { tags: tag(64, &[1; 40_000]), ..Parts::of(kind, &format!("tags {kind:?}")) };
            for kind in [MutationType::Append, MutationType::Increment] {
                self.send(at, way, kind, &tagged(kind)).expect("the first fits");
                self.hold(at, tagged(kind));
                let error = self.send(at, way, kind, &tagged(kind)).expect_err("the tags do not fit");
                assert!(error.contains("80006 > 65535"), "{error}");
            }
            let append = Parts { value: vec![b'v'; 600_000], ..Parts::of(MutationType::Append, "values") };
            self.send(at, way, MutationType::Append, &append).expect("the first fits");
            let error =
                self.send(at, way, MutationType::Append, &append).expect_err("the value does not fit");
            assert!(error.contains("exceeds limit of 1000000 bytes"), "{error}");
            self.hold(at, append);
        }
    }

    fn check(&mut self, when: &str) {
        let name = |(at, row, qualifier): &Column| {
            let (start, end) = (row[..row.len().min(20)].escape_ascii(), row.len());
            format!("{when}, {:?}: {start} of {end} bytes, qualifier of {}", TABLES[*at], qualifier.len())
        };
        let (held, gone) = (std::mem::take(&mut self.held), std::mem::take(&mut self.gone));
        for (column, (value, tags)) in &held {
            let cell = self.get(column).unwrap_or_else(|| panic!("{} is lost", name(column)));
            assert!(cell.as_cell().value() == value, "{}: another value", name(column));
            assert!(cell.as_cell().tags() == tags, "{}: other tags", name(column));
        }
        for column in &gone {
            assert!(self.get(column).is_none(), "{} is back", name(column));
        }
        (self.held, self.gone) = (held, gone);
    }

    fn get(&mut self, (at, row, qualifier): &Column) -> Option<KeyValue> {
        let column =
            pb::Column { family: Bytes::from_static(b"f"), qualifier: vec![qualifier.clone().into()] };
        let get = pb::Get { row: row.clone().into(), column: vec![column], ..Default::default() };
        let request = pb::GetRequest { region: self.regions[*at].clone(), get };
        let answer = self.key_values.call("Get", &request, &[]).message::<pb::GetResponse>();
        let (_, mut cells) = answer.unwrap_or_else(|error| panic!("a Get of table {at}: {error}"));
        (cells.len() > 4).then(|| KeyValue::parse(cells.split_off(4)).expect("one cell"))
    }
}

fn multi(
    connection: &mut Raw,
    region: pb::RegionSpecifier,
    (atomic, condition): (bool, Option<pb::Condition>),
    mutations: Vec<pb::MutationProto>,
    block: &[u8],
) -> Result<pb::RegionActionResult, String> {
    let action =
        |(index, mutation)| pb::Action { index: Some(index), mutation: Some(mutation), ..Default::default() };
    let action = (0..).zip(mutations).map(action).collect();
    let of_region = pb::RegionAction { region, atomic: Some(atomic), action, condition };
    let request = pb::MultiRequest { region_action: vec![of_region], ..Default::default() };
    let (answer, _) = connection.call("Multi", &request, block).message::<pb::MultiResponse>()?;
    Ok(answer.region_action_result.into_iter().next().expect("a result"))
}

/// The condition that an unused column is absent.
fn nothing_there(row: &[u8]) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::new()) };
    let comparator = pb::BinaryComparator { comparable }.encode_to_vec();
    pb::Condition {
        row: row.to_vec().into(),
        family: Some(Bytes::from_static(b"f")),
        qualifier: Some(Bytes::from_static(b"never")),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
            serialized_comparator: Some(comparator.into()),
        }),
        ..Default::default()
    }
}

fn table_name(at: usize) -> TableName {
    format!("t{at}").parse().expect("legal")
}

/// The region of each table.
async fn make_tables(server: &Server) -> Vec<pb::RegionSpecifier> {
    let connection = server.connect().await;
    let (admin, mut regions) = (connection.admin(), Vec::new());
    for (at, (encoding, codec, compress_tags)) in TABLES.into_iter().enumerate() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let family = family.with("DATA_BLOCK_ENCODING", encoding).with("COMPRESSION", codec);
        let family = family.with("COMPRESS_TAGS", compress_tags);
        let table = TableDescriptor::new(table_name(at)).with_family(family).with("coprocessor$1", ENDPOINT);
        admin.create_table(&table, &[]).await.expect("created");
        let found = admin.regions(&table_name(at)).await.expect("regions");
        regions.push(pb::RegionSpecifier { r#type: 1, value: found[0].region.name().clone() });
    }
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let plain = TableDescriptor::new("plain".parse().expect("legal")).with_family(family);
    admin.create_table(&plain, &[]).await.expect("created");
    regions
}

async fn put_plain(server: &Server) {
    let table = server.connect().await.table("plain".parse().expect("legal"));
    for row in 0..PLAIN_ROWS {
        table.put(Put::new(format!("p{row}")).column("f", "q", "v")).await.expect("put");
    }
}

async fn check_plain(server: &Server) {
    let table = server.connect().await.table("plain".parse().expect("legal"));
    for row in 0..PLAIN_ROWS {
        let result = table.get(Get::new(format!("p{row}"))).await.expect("read");
        assert_eq!(result.value("f", "q"), Some(&b"v"[..]), "row {row} of the other table");
    }
}

async fn flush(server: &Server) {
    let connection = server.connect().await;
    for at in 0..TABLES.len() {
        connection.admin().flush_table(&table_name(at)).await.expect("flushed");
    }
}

async fn compact(server: &Server) {
    let connection = server.connect().await;
    for at in 0..TABLES.len() {
        connection.admin().compact_table(&table_name(at), None, true).await.expect("asked");
    }
    let deadline = Instant::now() + TIMEOUT;
    for at in 0..TABLES.len() {
        while connection.admin().last_major_compaction(&table_name(at)).await.expect("told") == 0 {
            assert!(Instant::now() < deadline, "table {at} is not compacted in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn live(settings: &[(&str, &str)]) {
    let size = CELL_BYTES_MAX.to_string();
    let settings =
        [settings, &[("hbase.server.keyvalue.maxsize", &size), ("evenkeel.memory.size", "512m")]].concat();
    let mut server = Server::started(&settings);
    let regions = block_on(make_tables(&server));
    let mut clients = Clients::new(&server, regions.clone());
    clients.send_all();
    clients.outgrow();
    clients.send_in_vain();
    block_on(put_plain(&server));
    clients.check("before the kill");
    let (held, gone) = (clients.held, clients.gone);
    let restart = |server: &mut Server| {
        server.kill();
        server.start();
        Clients { held: held.clone(), gone: gone.clone(), ..Clients::new(server, regions.clone()) }
    };
    let mut clients = restart(&mut server);
    clients.check("after the kill");
    block_on(check_plain(&server));
    block_on(flush(&server));
    clients.check("after a flush");
    block_on(compact(&server));
    let mut clients = restart(&mut server);
    clients.check("after a compaction and another kill");
    block_on(check_plain(&server));
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_with_a_plain_log() {
    live(&[]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_with_a_compressed_log() {
    live(&[
        ("hbase.regionserver.wal.enablecompression", "true"),
        ("hbase.regionserver.wal.tags.enablecompression", "true"),
        ("hbase.regionserver.wal.value.enablecompression", "true"),
        ("hbase.regionserver.wal.value.compression.type", "snappy"),
    ]);
}
