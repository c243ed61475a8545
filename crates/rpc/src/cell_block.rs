//! Cell blocks: the cells of a request or a response, next to its protobuf message.
//!
//! A connection names a codec (the encoding of one cell) and optionally a compressor (of the whole
//! block) in its ConnectionHeader; the server uses both for its own blocks on that connection.
//! Without a codec, cells are part of the messages and there are no blocks.

mod codec;
mod compress;
mod reader;
mod writer;

pub use codec::CellCodec;
pub use compress::{CellBlockCodec, DecompressError};
pub use reader::CellBlockReader;
pub use writer::CellBlockWriter;
