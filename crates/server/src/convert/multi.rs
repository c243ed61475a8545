//! MultiRequest and MultiResponse, for many rows at little cost.
//!
//! A batch of Gets is one Get over and over with another row, and reading each of its messages field by field would take as
//! long as reading its row from the cache. So the actions are taken as they lie, and of a Get whose bytes after the row
//! are those of the Get before it, only the row is read: it is of the same *kind*. Everything else is read as a message.
//! Likewise what became of a Get whose cells lie beside the response is a few bytes, which [`Entries`] writes where they
//! belong.

use bytes::{Buf, Bytes};
use evenkeel_common::codec::{read_varint, varint_len, write_varint};
use evenkeel_protocol::pb;
use prost::{DecodeError, Message};

use super::result;

/// A request.
#[derive(Debug, Default)]
pub struct MultiRequest {
    /// What is asked of each region, in order.
    pub region_actions: Vec<RegionAction>,
    /// The kinds of its Gets; what their rows are does not matter.
    pub kinds: Vec<pb::Get>,
    /// See pb::MultiRequest.
    pub nonce_group: Option<u64>,
    /// See pb::MultiRequest.
    pub condition: Option<pb::Condition>,
}

/// What is asked of one region.
#[derive(Debug)]
pub struct RegionAction {
    /// The region.
    pub region: pb::RegionSpecifier,
    /// All or nothing.
    pub atomic: bool,
    /// What must hold first.
    pub condition: Option<pb::Condition>,
    /// In order.
    pub actions: Vec<Action>,
}

/// One action.
#[derive(Debug)]
pub struct Action {
    /// The client's number for it.
    pub index: Option<u32>,
    /// What it is.
    pub what: What,
}

/// What an action is.
#[derive(Debug)]
pub enum What {
    /// A Get of a kind.
    Get {
        /// The row.
        row: Bytes,
        /// Its place in [`MultiRequest::kinds`].
        kind: usize,
    },
    /// A write.
    Mutation(Box<pb::MutationProto>),
    /// A call of an endpoint.
    Service(Box<pb::CoprocessorServiceCall>),
    /// None of these.
    Nothing,
}

impl Action {
    /// The mutation, if it is one.
    pub fn mutation(&self) -> Option<&pb::MutationProto> {
        match &self.what {
            What::Mutation(mutation) => Some(mutation),
            _ => None,
        }
    }
}

/// pb::MultiRequest with the actions as they lie.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    region_action: Vec<OfRegion>,
    #[prost(uint64, optional, tag = "2")]
    nonce_group: Option<u64>,
    #[prost(message, optional, tag = "3")]
    condition: Option<pb::Condition>,
}

/// pb::RegionAction with the actions as they lie.
#[derive(Clone, PartialEq, Message)]
struct OfRegion {
    #[prost(message, required, tag = "1")]
    region: pb::RegionSpecifier,
    #[prost(bool, optional, tag = "2")]
    atomic: Option<bool>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    action: Vec<Bytes>,
    #[prost(message, optional, tag = "4")]
    condition: Option<pb::Condition>,
}

impl MultiRequest {
    /// Reads a request, whole: what it holds is known to be well-formed then.
    ///
    /// # Errors
    /// When it is not a pb::MultiRequest.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let request = Request::decode(bytes)?;
        let mut kinds = Kinds::default();
        let region_actions =
            request.region_action.into_iter().map(|of| of.read(&mut kinds)).collect::<Result<_, _>>()?;
        Ok(Self {
            region_actions,
            kinds: kinds.kinds,
            nonce_group: request.nonce_group,
            condition: request.condition,
        })
    }
}

impl OfRegion {
    fn read(self, kinds: &mut Kinds) -> Result<RegionAction, DecodeError> {
        let mut actions = Vec::with_capacity(self.action.len());
        for bytes in self.action {
            actions.push(kinds.action(bytes)?);
        }
        Ok(RegionAction {
            region: self.region,
            atomic: self.atomic.unwrap_or(false),
            condition: self.condition,
            actions,
        })
    }
}

/// The kinds of Gets seen so far.
#[derive(Default)]
struct Kinds {
    kinds: Vec<pb::Get>,
    /// The bytes after the row that make a Get one of the last kind; `None` when that cannot be told by bytes.
    rest: Option<Bytes>,
}

impl Kinds {
    fn action(&mut self, mut bytes: Bytes) -> Result<Action, DecodeError> {
        if let Some(get) = LoneGet::find(&bytes)
            && self.is_of_last_kind(&bytes, &get)?
        {
            // Of a share of the request's bytes its part is cut out, which shares no more.
            bytes.truncate(get.row_end);
            bytes.advance(get.row_start);
            let what = What::Get { row: bytes, kind: self.kinds.len() - 1 };
            return Ok(Action { index: Some(get.index), what });
        }
        let action = pb::Action::decode(bytes)?;
        let what = match (action.mutation, action.service_call, action.get) {
            (Some(mutation), ..) => What::Mutation(Box::new(mutation)),
            (None, Some(call), _) => What::Service(Box::new(call)),
            (None, None, Some(mut get)) => {
                let row = std::mem::take(&mut get.row);
                self.rest = None;
                What::Get { row, kind: self.add(get) }
            }
            (None, None, None) => What::Nothing,
        };
        Ok(Action { index: action.index, what })
    }

    /// Whether a Get that is all of its action is of the last kind, which it may be the first of; `false` when its bytes mean
    /// something else.
    fn is_of_last_kind(&mut self, action: &Bytes, at: &LoneGet) -> Result<bool, DecodeError> {
        let LoneGet { row_start, row_end, .. } = *at;
        if self.rest.as_deref() == Some(&action[row_end..]) {
            return Ok(true);
        }
        let get = pb::Action::decode(action.clone())?.get;
        // A row that is there twice is the one that comes last.
        let Some(get) = get.filter(|get| get.row == action[row_start..row_end]) else { return Ok(false) };
        self.rest = Some(action.slice(row_end..));
        self.add(get);
        Ok(true)
    }

    fn add(&mut self, get: pb::Get) -> usize {
        self.kinds.push(get);
        self.kinds.len() - 1
    }
}

/// Where things are in an action that is an index and a Get that begins with its row, to the end.
struct LoneGet {
    index: u32,
    row_start: usize,
    row_end: usize,
}

/// Keys of the fields: their numbers and how they lie.
const INDEX: u8 = 1 << 3;
const GET: u8 = 3 << 3 | 2;
const GET_ROW: u8 = 1 << 3 | 2;

impl LoneGet {
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

/// The number after a key of one byte: a value, or how many bytes follow.
fn read_field(bytes: &[u8], at: &mut usize, key: u8) -> Option<u64> {
    let rest = bytes.get(*at..)?;
    let (found, rest) = rest.split_first()?;
    let (number, len) = (*found == key).then(|| read_varint(rest))??;
    *at += 1 + len;
    Some(number)
}

/// pb::MultiResponse with the results of each region as they will lie.
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

/// A pb::RegionActionResult of one entry an action, as it is written.
#[derive(Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// The last result that only counts cells, and how many.
    counted: Vec<u8>,
    count: Option<usize>,
}

/// What most entries take at most.
const ENTRY_BYTES: usize = 16;
/// Keys of fields of messages.
const ENTRY: u8 = 1 << 3 | 2;
const ENTRY_INDEX: u8 = 1 << 3;
const ENTRY_RESULT: u8 = 2 << 3 | 2;

impl Entries {
    /// Of about so many entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self { bytes: Vec::with_capacity(entries * ENTRY_BYTES), ..Self::default() }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &pb::ResultOrException) {
        self.bytes.push(ENTRY);
        write_varint(&mut self.bytes, entry.encoded_len() as u64);
        entry.encode_raw(&mut self.bytes);
    }

    /// Adds the entry of a result whose cells, so many, lie beside the response.
    pub fn push_counted(&mut self, index: u32, cells: usize) {
        if self.count != Some(cells) {
            self.counted.clear();
            result::counted(cells, false).encode_raw(&mut self.counted);
            self.count = Some(cells);
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

    /// The message.
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

    fn decode(bytes: impl Into<Bytes>) -> Result<MultiRequest, DecodeError> {
        MultiRequest::decode(bytes.into())
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

    /// Row and kind of each Get.
    fn gets(request: &MultiRequest) -> Vec<(&[u8], &pb::Get)> {
        let actions = request.region_actions.iter().flat_map(|of| &of.actions);
        let of = |action| match action {
            &Action { what: What::Get { ref row, kind }, .. } => Some((&row[..], &request.kinds[kind])),
            _ => None,
        };
        actions.filter_map(of).collect()
    }

    #[test]
    fn gets_that_differ_in_their_rows_are_of_one_kind() {
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
    fn what_is_not_an_index_and_a_get_is_read_as_a_message() {
        let without_index = pb::Action { index: None, ..of_get(0, get(b"a", b"f")) };
        let put = pb::MutationProto { row: Some(Bytes::from_static(b"p")), ..Default::default() };
        let both = pb::Action { mutation: Some(put.clone()), ..of_get(1, get(b"b", b"f")) };
        let call = pb::CoprocessorServiceCall::default();
        let service = pb::Action { service_call: Some(call), ..of_get(2, get(b"b", b"f")) };
        let none = pb::Action { index: Some(3), ..Default::default() };
        let read = decode(request(vec![without_index, both, service, none]).encode_to_vec()).expect("read");
        let [one, two, three, four] = &read.region_actions[0].actions[..] else { panic!("four actions") };
        assert!(matches!((one.index, &one.what), (None, What::Get { row, .. }) if &row[..] == b"a"));
        assert_eq!((two.index, two.mutation()), (Some(1), Some(&put)));
        assert!(matches!(three.what, What::Service(_)) && matches!(four.what, What::Nothing));
    }

    #[test]
    fn a_row_that_comes_twice_is_the_last_one() {
        let mut bytes = get(b"first", b"f").encode_to_vec();
        bytes.extend([GET_ROW, 4]);
        bytes.extend(b"last");
        let mut action = vec![INDEX, 9, GET, bytes.len() as u8];
        action.extend(bytes);
        let mut kinds = Kinds::default();
        for _ in 0..2 {
            let read = kinds.action(action.clone().into()).expect("read");
            assert!(matches!(&read.what, What::Get { row, .. } if &row[..] == b"last"), "{read:?}");
        }
    }

    #[test]
    fn entries_are_the_messages_they_stand_for() {
        let (mut entries, mut expected) = (Entries::with_capacity(4), pb::RegionActionResult::default());
        let counts = [(0, 1), (127, 1), (128, 0), (u32::MAX, 300), (5, 300), (6, usize::MAX)];
        for (index, cells) in counts {
            let entry = pb::ResultOrException {
                index: Some(index),
                result: Some(result::counted(cells, false)),
                ..Default::default()
            };
            entries.push_counted(index, cells);
            entries.push(&entry);
            expected.result_or_exception.extend([entry.clone(), entry]);
        }
        assert_eq!(entries.finish(), expected.encode_to_vec());
    }

    /// Whatever the bytes are: an error where the message is one, else the same actions.
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
            match (&ours.what, &theirs.get) {
                (What::Get { row, kind }, Some(get)) => {
                    let get = pb::Get { row: Bytes::new(), ..get.clone() };
                    let kind = pb::Get { row: Bytes::new(), ..read.kinds[*kind].clone() };
                    assert_eq!((row, kind), (&theirs.get.as_ref().expect("a Get").row, get), "{bytes:?}");
                }
                (What::Get { .. }, None) => panic!("no Get: {bytes:?}"),
                _ => assert!(
                    theirs.get.is_none() || theirs.mutation.is_some() || theirs.service_call.is_some()
                ),
            }
        }
    }
}
