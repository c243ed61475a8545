//! Raw requests in every cell codec, and the cells of their replies.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use prost::Message;

use crate::common::{Server, TIMEOUT, raw};

/// The cell codec of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    KeyValueWithTags,
    KeyValue,
    CellWithTags,
    Cell,
    Message,
    /// Cells are in the messages.
    None,
}

/// A cell of a reply: qualifier, value and tags.
pub type Found = (Vec<u8>, Vec<u8>, Vec<u8>);

impl Codec {
    pub const ALL: [Self; 6] =
        [Self::KeyValueWithTags, Self::KeyValue, Self::CellWithTags, Self::Cell, Self::Message, Self::None];

    fn class(self) -> Option<String> {
        let name = match self {
            Self::KeyValueWithTags => "KeyValueCodecWithTags",
            Self::KeyValue => "KeyValueCodec",
            Self::CellWithTags => "CellCodecWithTags",
            Self::Cell => "CellCodec",
            Self::Message => "MessageCodec",
            Self::None => return None,
        };
        Some(format!("org.apache.hadoop.hbase.codec.{name}"))
    }

    /// Returns true if a reply has the tags of its cells.
    pub fn has_tags(self) -> bool {
        matches!(self, Self::KeyValueWithTags | Self::CellWithTags)
    }

    /// Takes the next cell of a block.
    fn take(self, block: &mut Bytes) -> Found {
        let parts = |cell: &KeyValue| {
            let cell = cell.as_cell();
            (cell.qualifier().to_vec(), cell.value().to_vec(), cell.tags().to_vec())
        };
        match self {
            Self::KeyValueWithTags | Self::KeyValue => {
                parts(&KeyValue::parse(take_sized(block)).expect("one cell"))
            }
            Self::CellWithTags | Self::Cell => {
                let [_, _, qualifier] = [(); 3].map(|()| take_sized(block).to_vec());
                drop(block.split_to(9));
                let value = take_sized(block).to_vec();
                let tags = if self.has_tags() { take_sized(block).to_vec() } else { Vec::new() };
                drop(block.split_to(8));
                (qualifier, value, tags)
            }
            Self::Message | Self::None => {
                of_message(pb::Cell::decode_length_delimited(block).expect("a cell"))
            }
        }
    }
}

/// Takes bytes after their length.
fn take_sized(block: &mut Bytes) -> Bytes {
    let len = block.split_to(4);
    block.split_to(u32::from_be_bytes(*len.first_chunk().expect("4 bytes")) as usize)
}

fn of_message(cell: pb::Cell) -> Found {
    (cell.qualifier.unwrap_or_default().into(), cell.value.unwrap_or_default().into(), Vec::new())
}

/// A connection that sends raw requests.
pub struct Raw {
    stream: TcpStream,
    codec: Codec,
    last_id: u32,
}

pub struct RawReply {
    header: pb::ResponseHeader,
    rest: Bytes,
}

impl Raw {
    pub fn connect(server: &Server, codec: Codec) -> Self {
        let header = pb::ConnectionHeader {
            cell_block_codec_class: codec.class(),
            ..raw::connection_header("ClientService")
        };
        let port = server.port("hbase.regionserver.port");
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        stream.write_all(&raw::opening(&header)).expect("sent");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        Self { stream, codec, last_id: 0 }
    }

    /// Returns the cells that a Get of the row finds, or the error's text.
    pub fn get(&mut self, region: &pb::RegionSpecifier, row: &[u8]) -> Result<Vec<Found>, String> {
        let get = pb::Get { row: row.to_vec().into(), ..Default::default() };
        let request = pb::GetRequest { region: region.clone(), get };
        let reply = self.call("Get", &request, &[]).any_message::<pb::GetResponse>();
        let (reply, mut block) = reply?;
        let mut cells: Vec<_> = reply.result.unwrap_or_default().cell.into_iter().map(of_message).collect();
        while !block.is_empty() {
            cells.push(self.codec.take(&mut block));
        }
        Ok(cells)
    }

    pub fn call(&mut self, method: &str, request: &impl Message, block: &[u8]) -> RawReply {
        self.last_id += 1;
        let bytes = raw::call_with_cells(self.last_id, method, request, block);
        self.stream.write_all(&bytes).expect("sent");
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).expect("a reply");
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut frame).expect("a reply");
        let mut rest = Bytes::from(frame);
        let header = pb::ResponseHeader::decode_length_delimited(&mut rest).expect("a header");
        assert_eq!(header.call_id, Some(self.last_id));
        RawReply { header, rest }
    }
}

impl RawReply {
    /// The message, or the text of any error.
    pub fn any_message<M: Message + Default>(self) -> Result<(M, Bytes), String> {
        let error = self.header.exception.as_ref().map(|error| error.stack_trace().to_owned());
        error.map_or_else(|| self.message(), Err)
    }

    /// The message, or the error's text. The error must be one that clients do not retry.
    pub fn message<M: Message + Default>(mut self) -> Result<(M, Bytes), String> {
        if let Some(error) = self.header.exception {
            let text = error.stack_trace.unwrap_or_default();
            assert_eq!(error.do_not_retry, Some(true), "{text}");
            return Err(text);
        }
        let message = M::decode_length_delimited(&mut self.rest).expect("a message");
        Ok((message, self.rest))
    }
}
