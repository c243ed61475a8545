//! Blocks: the data transfer protocol of DataNodes, version 28.
//!
//! | module | contents |
//! |---|---|
//! | `located` | addresses of a block's DataNodes, and block names |
//! | `output` | a block being written: to each of its DataNodes, or through a chain of them |
//! | `packet` | packets and their checksums |
//! | `peer` | the connection to one DataNode of a block being written |
//! | `reader` | ranges of a block, into the caller's memory |
//! | `short_circuit` | reads of a local replica through the DataNode's files |

pub(crate) mod located;
pub(crate) mod output;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod reader;
pub(crate) mod short_circuit;

use crate::hadoop::hdfs::{BaseHeaderProto, ClientOperationHeaderProto, ExtendedBlockProto};
use crate::wire::put_delimited;

/// The version of the protocol, before each operation.
const VERSION: [u8; 2] = [0, 28];

/// Codes of operations.
pub(crate) mod op {
    pub(crate) const WRITE_BLOCK: u8 = 80;
    pub(crate) const READ_BLOCK: u8 = 81;
    pub(crate) const REQUEST_SHORT_CIRCUIT_FDS: u8 = 87;
}

/// Encodes an operation: version, code and message.
pub(crate) fn operation(code: u8, message: &impl prost::Message) -> Vec<u8> {
    let mut out = VERSION.to_vec();
    out.push(code);
    put_delimited(&mut out, message);
    out
}

/// Returns the header that every client operation starts with.
pub(crate) fn client_header(
    block: &ExtendedBlockProto,
    token: &crate::hadoop::common::TokenProto,
    client_name: &str,
) -> ClientOperationHeaderProto {
    ClientOperationHeaderProto {
        base_header: BaseHeaderProto { block: block.clone(), token: Some(token.clone()) },
        client_name: client_name.to_owned(),
    }
}
