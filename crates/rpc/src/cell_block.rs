//! Cell blocks: the cells of a request or a response, beside its protobuf message.
//!
//! A connection names a codec (how one cell is laid out) and maybe a compressor (applied to the
//! whole block) in its ConnectionHeader; the server uses both for its own blocks on that
//! connection. With no codec, cells travel inside the messages and there are no blocks.

mod codec;
mod compress;
mod reader;
mod writer;

pub use codec::CellCodec;
pub use compress::{Compressor, DecompressError};
pub use reader::CellBlockReader;
pub use writer::CellBlockWriter;
