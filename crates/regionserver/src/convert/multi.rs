//! MultiRequest and MultiResponse, decoded and encoded cheaply for many rows.
//!
//! In a batch of Gets, most Gets differ only in the row. Decoding each of their messages field by
//! field would take as long as reading the row from the cache. So actions are decoded from the raw
//! bytes: if the bytes after the row of a Get equal those of the Get before it, only the row is
//! decoded and the Get is of the same *kind*. Everything else is decoded as a message. Likewise,
//! [`ResultEncoder`] writes the result of a Get whose cells are in the cell block as a few bytes.

use bytes::{Buf, Bytes};
use evenkeel_common::varint::{read_varint, varint_len, write_varint};
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::{BoundedError, DecodeBudget, merge, pb};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field};

use super::bounded::take_filter;
use super::result;
use super::service::ServiceCall;

/// A decoded request.
#[derive(Debug, Default)]
pub struct MultiRequest {
    /// The actions on each region, in order.
    pub region_actions: Vec<RegionAction>,
    /// The kinds of its Gets. Their rows have no meaning.
    pub kinds: Vec<pb::Get>,
    /// See pb::MultiRequest.
    pub nonce_group: Option<u64>,
    /// See pb::MultiRequest.
    pub condition: Option<pb::Condition>,
}

/// The actions on one region.
#[derive(Debug, Default)]
pub struct RegionAction {
    /// The region.
    pub region: pb::RegionSpecifier,
    /// True if all mutations must succeed or none.
    pub atomic: bool,
    /// The condition that must hold first.
    pub condition: Option<pb::Condition>,
    /// The actions, in order.
    pub actions: Vec<Action>,
}

/// One action.
#[derive(Debug)]
pub struct Action {
    /// The client's index of the action.
    pub index: Option<u32>,
    /// The kind of action.
    pub kind: ActionKind,
}

/// The kinds of action.
#[derive(Debug)]
pub enum ActionKind {
    /// A Get of a kind.
    Get {
        /// The row.
        row: Bytes,
        /// Its index in [`MultiRequest::kinds`].
        kind: usize,
    },
    /// A write.
    Mutation(Box<pb::MutationProto>),
    /// A call of a coprocessor endpoint.
    Service(Box<ServiceCall>),
    /// None of these.
    Nothing,
}

impl Action {
    /// Returns the mutation, if it is one.
    pub fn mutation(&self) -> Option<&pb::MutationProto> {
        match &self.kind {
            ActionKind::Mutation(mutation) => Some(mutation),
            _ => None,
        }
    }
}

impl MultiRequest {
    /// Decodes and validates a whole request. Takes from `budget` the memory of the decoded
    /// request and of its processing: an action of two bytes takes some hundred bytes until it is
    /// answered.
    ///
    /// # Errors
    /// [`BoundedError::Malformed`] if it is not a pb::MultiRequest; [`BoundedError::TooLarge`] if
    /// it exceeds the budget.
    pub fn decode(mut bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<Self, BoundedError> {
        let (mut request, mut kinds) = (Self::default(), Kinds::default());
        while bytes.has_remaining() {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            match tag {
                1 => {
                    let of_region = delimited(wire_type, &mut bytes)?;
                    request.region_actions.push(RegionAction::decode(of_region, &mut kinds, budget)?);
                }
                2 => request.nonce_group = Some(number(wire_type, &mut bytes)?),
                3 => {
                    let condition = request.condition.get_or_insert_default();
                    merge_condition(condition, delimited(wire_type, &mut bytes)?, budget)?;
                }
                _ => skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?,
            }
        }
        request.kinds = kinds.kinds;
        Ok(request)
    }
}

impl RegionAction {
    fn decode(
        mut bytes: Bytes,
        kinds: &mut Kinds,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<Self, BoundedError> {
        let mut of_region = Self::default();
        take(budget, REGION_BYTES)?;
        while bytes.has_remaining() {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            match tag {
                1 => merge(&mut of_region.region, delimited(wire_type, &mut bytes)?, budget)?,
                2 => of_region.atomic = number(wire_type, &mut bytes)? != 0,
                3 => {
                    take(budget, ACTION_BYTES)?;
                    let action = delimited(wire_type, &mut bytes)?;
                    of_region.actions.push(kinds.action(action, budget)?);
                }
                4 => {
                    let condition = of_region.condition.get_or_insert_default();
                    merge_condition(condition, delimited(wire_type, &mut bytes)?, budget)?;
                }
                _ => skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?,
            }
        }
        Ok(of_region)
    }
}

/// Memory of a region action from its decoding to its reply, apart from its actions.
const REGION_BYTES: u64 = 1024;
/// Memory of an action: its struct, twice because their list may just grow, and its outcome.
const ACTION_BYTES: u64 = 2 * size_of::<Action>() as u64 + 96;
/// The memory of longer actions is counted while they are decoded, that of others afterwards.
const PLAIN_BYTES_MAX: usize = 2048;

fn take(budget: &mut DecodeBudget<'_>, bytes: u64) -> Result<(), BoundedError> {
    if budget.acquire(bytes) { Ok(()) } else { Err(BoundedError::TooLarge) }
}

/// Merges a condition and takes the memory of its filter.
fn merge_condition(
    condition: &mut pb::Condition,
    bytes: Bytes,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), BoundedError> {
    merge(condition, bytes, budget)?;
    take_filter(condition.filter.as_ref(), budget)
}

/// Returns the bytes of a length-delimited field.
fn delimited(wire_type: WireType, bytes: &mut Bytes) -> Result<Bytes, BoundedError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let len = usize::try_from(decode_varint(bytes)?).ok().filter(|len| *len <= bytes.len());
    let len =
        len.ok_or_else(|| BoundedError::Malformed("a field extends past the end of its message".to_owned()))?;
    Ok(bytes.split_to(len))
}

fn number(wire_type: WireType, bytes: &mut Bytes) -> Result<u64, BoundedError> {
    check_wire_type(WireType::Varint, wire_type)?;
    Ok(decode_varint(bytes)?)
}

/// Returns the memory of a mutation, apart from its action.
fn held_bytes(mutation: &pb::MutationProto) -> u64 {
    let columns = mutation
        .column_value
        .iter()
        .map(|column| size_of_val(column) + column.qualifier_value.capacity() * size_of::<QualifierValue>());
    let attributes = mutation.attribute.iter().map(|pair| size_of_val(pair) + pair.name.capacity());
    (size_of_val(mutation) + columns.sum::<usize>() + attributes.sum::<usize>()) as u64
}

/// The kinds of Gets seen so far.
#[derive(Default)]
struct Kinds {
    kinds: Vec<pb::Get>,
    /// The bytes after the row that make a Get one of the last kind; `None` if the last kind cannot
    /// be recognized by its bytes.
    rest: Option<Bytes>,
}

impl Kinds {
    fn action(&mut self, mut bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<Action, BoundedError> {
        if let Some(get) = SingleGetSpan::find(&bytes)
            && self.is_of_last_kind(&bytes, &get, budget)?
        {
            // Only the row is kept; if the request's bytes are shared, it is copied so as not to
            // pin them.
            bytes.truncate(get.row_end);
            bytes.advance(get.row_start);
            let what = ActionKind::Get { row: bytes, kind: self.kinds.len() - 1 };
            return Ok(Action { index: Some(get.index), kind: what });
        }
        let action = decode_action(bytes, budget)?;
        let what = match (action.mutation, action.service_call, action.get) {
            (Some(mutation), ..) => ActionKind::Mutation(Box::new(mutation)),
            (None, Some(call), _) => ActionKind::Service(Box::new(ServiceCall::decode(call, budget)?)),
            (None, None, Some(mut get)) => {
                let row = std::mem::take(&mut get.row);
                self.rest = None;
                ActionKind::Get { row, kind: self.add(get) }
            }
            (None, None, None) => ActionKind::Nothing,
        };
        Ok(Action { index: action.index, kind: what })
    }

    /// Returns true if a Get that fills its whole action is of the last kind. It may begin a new
    /// kind. Returns false if its bytes must be decoded as a message.
    fn is_of_last_kind(
        &mut self,
        action: &Bytes,
        at: &SingleGetSpan,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<bool, BoundedError> {
        let SingleGetSpan { row_start, row_end, .. } = *at;
        if action.get(row_end..).is_some_and(|rest| self.rest.as_deref() == Some(rest)) {
            return Ok(true);
        }
        let get = decode_action(action.clone(), budget)?.get;
        // If a message contains the row twice, the last one counts.
        let row = action.get(row_start..row_end);
        let Some(get) = get.filter(|get| row == Some(&*get.row)) else { return Ok(false) };
        self.rest = Some(action.slice(row_end..));
        self.add(get);
        Ok(true)
    }

    fn add(&mut self, get: pb::Get) -> usize {
        self.kinds.push(get);
        self.kinds.len() - 1
    }
}

fn decode_action(bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<pb::Action, BoundedError> {
    if bytes.len() > PLAIN_BYTES_MAX {
        let action: pb::Action = evenkeel_protocol::decode(bytes, budget)?;
        take_filter(action.get.as_ref().and_then(|get| get.filter.as_ref()), budget)?;
        return Ok(action);
    }
    let wire_bytes = bytes.len() as u64;
    let action = pb::Action::decode(bytes)?;
    let held = match (&action.mutation, &action.get) {
        (Some(mutation), _) => held_bytes(mutation),
        // The smallest part of a Get is a qualifier of two wire bytes.
        (None, Some(_)) => size_of::<pb::Get>() as u64 + 16 * wire_bytes,
        (None, None) => wire_bytes,
    };
    take(budget, held)?;
    Ok(action)
}

/// Positions in an action that consists of an index and a Get whose first field is its row.
struct SingleGetSpan {
    index: u32,
    row_start: usize,
    row_end: usize,
}

/// Keys of protobuf fields: field number and wire type.
const INDEX: u8 = 1 << 3;
const GET: u8 = 3 << 3 | 2;
const GET_ROW: u8 = 1 << 3 | 2;

impl SingleGetSpan {
    fn find(action: &[u8]) -> Option<Self> {
        let mut at = 0;
        let index = read_field(action, &mut at, INDEX)?;
        let get_bytes = read_field(action, &mut at, GET)?;
        if usize::try_from(get_bytes).ok()? != action.len() - at {
            return None;
        }
        let row_bytes = usize::try_from(read_field(action, &mut at, GET_ROW)?).ok()?;
        let row_end = at.checked_add(row_bytes).filter(|end| *end <= action.len())?;
        Some(Self { index: u32::try_from(index).ok()?, row_start: at, row_end })
    }
}

/// Reads the number after a one-byte key: the value, or the length of the field.
fn read_field(bytes: &[u8], at: &mut usize, key: u8) -> Option<u64> {
    let rest = bytes.get(*at..)?;
    let (found, rest) = rest.split_first()?;
    let (number, len) = (*found == key).then(|| read_varint(rest))??;
    *at += 1 + len;
    Some(number)
}

/// A pb::MultiResponse with encoded results for each region.
#[derive(Clone, PartialEq, Message)]
pub struct MultiResponse {
    /// A pb::RegionActionResult for each region action, in order.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub region_action_result: Vec<Bytes>,
    /// See pb::MultiResponse.
    #[prost(bool, optional, tag = "2")]
    pub processed: Option<bool>,
    /// See pb::MultiResponse.
    #[prost(message, optional, tag = "3")]
    pub region_statistics: Option<pb::MultiRegionLoadStats>,
}

/// An encoded pb::RegionActionResult under construction, with one entry per action.
#[derive(Debug, Default)]
pub struct ResultEncoder {
    bytes: Vec<u8>,
    /// The last encoded result that only counts cells; `count` is its count, and whether it is of a
    /// secondary replica.
    counted: Vec<u8>,
    count: Option<(usize, bool)>,
}

/// Most entries take at most this many bytes.
const ENTRY_BYTES: usize = 16;
/// Keys of message fields.
const ENTRY: u8 = 1 << 3 | 2;
const ENTRY_INDEX: u8 = 1 << 3;
const ENTRY_RESULT: u8 = 2 << 3 | 2;

impl ResultEncoder {
    /// Creates a buffer with capacity for about this many entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self { bytes: Vec::with_capacity(entries * ENTRY_BYTES), ..Self::default() }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &pb::ResultOrException) {
        self.bytes.push(ENTRY);
        write_varint(&mut self.bytes, entry.encoded_len() as u64);
        entry.encode_raw(&mut self.bytes);
    }

    /// Adds the entry of a result with this many cells in the cell block. `is_stale`: they are of a
    /// secondary replica.
    pub fn push_counted(&mut self, index: u32, cells: usize, is_stale: bool) {
        if self.count != Some((cells, is_stale)) {
            self.counted.clear();
            result::counted(cells, is_stale).encode_raw(&mut self.counted);
            self.count = Some((cells, is_stale));
        }
        let (index, result_bytes) = (u64::from(index), self.counted.len() as u64);
        let entry_bytes = 2 + varint_len(index) + varint_len(result_bytes) + self.counted.len();
        self.bytes.push(ENTRY);
        write_varint(&mut self.bytes, entry_bytes as u64);
        self.bytes.push(ENTRY_INDEX);
        write_varint(&mut self.bytes, index);
        self.bytes.push(ENTRY_RESULT);
        write_varint(&mut self.bytes, result_bytes);
        self.bytes.extend_from_slice(&self.counted);
    }

    /// Returns the encoded message.
    pub fn finish(self) -> Bytes {
        self.bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(row: &'static [u8], family: &'static [u8]) -> pb::Get {
        let column = pb::Column { family: Bytes::from_static(family), ..Default::default() };
        pb::Get {
            row: Bytes::from_static(row),
            column: vec![column],
            max_versions: Some(3),
            ..Default::default()
        }
    }

    fn decode(bytes: impl Into<Bytes>) -> Result<MultiRequest, BoundedError> {
        MultiRequest::decode(bytes.into(), &mut DecodeBudget::new(1 << 40, &mut || None))
    }

    /// Returns the bytes that decoding takes from a budget.
    fn decoded_bytes(bytes: Vec<u8>) -> u64 {
        let mut none = || None;
        let mut budget = DecodeBudget::new(1 << 40, &mut none);
        MultiRequest::decode(bytes.into(), &mut budget).expect("read");
        (1 << 40) - budget.left()
    }

    #[test]
    fn decoded_requests_are_charged_to_the_allowance() {
        let gets = |count: u32| request((0..count).map(|at| of_get(at, get(b"row", b"f"))).collect());
        let (few, many) =
            (decoded_bytes(gets(1000).encode_to_vec()), decoded_bytes(gets(2000).encode_to_vec()));
        assert!((150 * 2000..1000 * 2000).contains(&(many - few)), "{}", many - few);
        let columns = pb::mutation_proto::ColumnValue {
            qualifier_value: vec![QualifierValue::default(); 10],
            ..Default::default()
        };
        let put = pb::MutationProto { column_value: vec![columns; 10], ..Default::default() };
        let action = pb::Action { mutation: Some(put), ..Default::default() };
        let bytes = decoded_bytes(request(vec![action]).encode_to_vec());
        assert!(bytes > 2 * 100 * size_of::<QualifierValue>() as u64, "{bytes}");
        // Empty region actions, and empty actions of a region.
        assert!(decoded_bytes([0x0a, 0].repeat(1000)) > 1000 * size_of::<RegionAction>() as u64);
        let mut bytes = vec![0x0a, 0xd0, 0x0f];
        bytes.extend([0x1a, 0].repeat(1000));
        assert!(decoded_bytes(bytes.clone()) > 1000 * size_of::<Action>() as u64);
        let mut none = || None;
        let mut little = DecodeBudget::new(100_000, &mut none);
        assert_eq!(MultiRequest::decode(bytes.into(), &mut little).err(), Some(BoundedError::TooLarge));
    }

    fn request(actions: Vec<pb::Action>) -> pb::MultiRequest {
        let region = pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"region") };
        let of_region = pb::RegionAction { region, action: actions, ..Default::default() };
        pb::MultiRequest {
            region_action: vec![of_region.clone(), of_region],
            nonce_group: Some(7),
            condition: None,
        }
    }

    fn of_get(index: u32, get: pb::Get) -> pb::Action {
        pb::Action { index: Some(index), get: Some(get), ..Default::default() }
    }

    /// Returns the row and the kind of each Get.
    fn gets(request: &MultiRequest) -> Vec<(&[u8], &pb::Get)> {
        let actions = request.region_actions.iter().flat_map(|of| &of.actions);
        let of = |action| match action {
            &Action { kind: ActionKind::Get { ref row, kind }, .. } => Some((&row[..], &request.kinds[kind])),
            _ => None,
        };
        actions.filter_map(of).collect()
    }

    #[test]
    fn gets_that_differ_only_in_rows_share_a_kind() {
        let actions =
            vec![of_get(0, get(b"a", b"f")), of_get(300, get(b"bb", b"f")), of_get(2, get(b"c", b"g"))];
        let read = decode(request(actions).encode_to_vec()).expect("read");
        assert_eq!((read.kinds.len(), read.nonce_group), (4, Some(7)));
        let rows: Vec<_> =
            gets(&read).into_iter().map(|(row, kind)| (row, &kind.column[0].family[..])).collect();
        let half: [(&[u8], &[u8]); 3] = [(b"a", b"f"), (b"bb", b"f"), (b"c", b"g")];
        assert_eq!(rows, [half, half].concat());
        let indices: Vec<_> = read.region_actions[0].actions.iter().map(|action| action.index).collect();
        assert_eq!(indices, [Some(0), Some(300), Some(2)]);
    }

    #[test]
    fn actions_other_than_indexed_gets_decode_as_messages() {
        let without_index = pb::Action { index: None, ..of_get(0, get(b"a", b"f")) };
        let put = pb::MutationProto { row: Some(Bytes::from_static(b"p")), ..Default::default() };
        let both = pb::Action { mutation: Some(put.clone()), ..of_get(1, get(b"b", b"f")) };
        let call = pb::CoprocessorServiceCall::default();
        let service = pb::Action { service_call: Some(call), ..of_get(2, get(b"b", b"f")) };
        let none = pb::Action { index: Some(3), ..Default::default() };
        let read = decode(request(vec![without_index, both, service, none]).encode_to_vec()).expect("read");
        let [one, two, three, four] = &read.region_actions[0].actions[..] else { panic!("four actions") };
        assert!(matches!((one.index, &one.kind), (None, ActionKind::Get { row, .. }) if &row[..] == b"a"));
        assert_eq!((two.index, two.mutation()), (Some(1), Some(&put)));
        assert!(matches!(three.kind, ActionKind::Service(_)) && matches!(four.kind, ActionKind::Nothing));
    }

    #[test]
    fn a_repeated_row_field_takes_the_last_value() {
        let mut bytes = get(b"first", b"f").encode_to_vec();
        bytes.extend([GET_ROW, 4]);
        bytes.extend(b"last");
        let mut action = vec![INDEX, 9, GET, bytes.len() as u8];
        action.extend(bytes);
        let mut kinds = Kinds::default();
        for _ in 0..2 {
            let mut none = || None;
            let mut budget = DecodeBudget::new(1 << 20, &mut none);
            let read = kinds.action(action.clone().into(), &mut budget).expect("read");
            assert!(matches!(&read.kind, ActionKind::Get { row, .. } if &row[..] == b"last"), "{read:?}");
        }
    }

    #[test]
    fn encoded_entries_equal_their_messages() {
        let (mut entries, mut expected) =
            (ResultEncoder::with_capacity(4), pb::RegionActionResult::default());
        let counts = [(0, 1), (127, 1), (128, 0), (u32::MAX, 300), (5, 300), (6, usize::MAX)];
        let both = [false, true].into_iter().flat_map(|is_stale| counts.map(|count| (count, is_stale)));
        for ((index, cells), is_stale) in both {
            let entry = pb::ResultOrException {
                index: Some(index),
                result: Some(result::counted(cells, is_stale)),
                ..Default::default()
            };
            entries.push_counted(index, cells, is_stale);
            entries.push(&entry);
            expected.result_or_exception.extend([entry.clone(), entry]);
        }
        assert_eq!(entries.finish(), expected.encode_to_vec());
    }

    /// For any bytes: decoding fails if protobuf decoding of the message fails, else the actions
    /// agree.
    #[test]
    fn damaged_requests_are_read_as_the_message_is() {
        let actions =
            vec![of_get(1, get(b"a", b"f")), of_get(2, get(b"b", b"f")), of_get(3, get(b"c", b"f"))];
        let good = request(actions).encode_to_vec();
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = byte;
                check_alike(bytes);
            }
            check_alike(good[..at].to_vec());
        }
    }

    fn check_alike(bytes: Vec<u8>) {
        let message = pb::MultiRequest::decode(&bytes[..]);
        let read = decode(bytes.clone());
        assert_eq!(read.is_ok(), message.is_ok(), "{bytes:?}: {read:?}");
        let (Ok(read), Ok(message)) = (read, message) else { return };
        let theirs = message.region_action.iter().flat_map(|of| &of.action);
        let ours = read.region_actions.iter().flat_map(|of| &of.actions);
        assert_eq!(theirs.clone().count(), ours.clone().count(), "{bytes:?}");
        for (theirs, ours) in theirs.zip(ours) {
            assert_eq!(theirs.index, ours.index, "{bytes:?}");
            match (&ours.kind, &theirs.get) {
                (ActionKind::Get { row, kind }, Some(get)) => {
                    let get = pb::Get { row: Bytes::new(), ..get.clone() };
                    let kind = pb::Get { row: Bytes::new(), ..read.kinds[*kind].clone() };
                    assert_eq!((row, kind), (&theirs.get.as_ref().expect("a Get").row, get), "{bytes:?}");
                }
                (ActionKind::Get { .. }, None) => panic!("no Get: {bytes:?}"),
                _ => assert!(
                    theirs.get.is_none() || theirs.mutation.is_some() || theirs.service_call.is_some()
                ),
            }
        }
    }
}
