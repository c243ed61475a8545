//! Addresses of DataNodes, and the names of blocks.

use crate::hadoop::hdfs::{DatanodeIdProto, ExtendedBlockProto};

/// `host:port` for data transfer.
pub(crate) fn transfer_address(id: &DatanodeIdProto, by_name: bool) -> String {
    let host = if by_name { &id.host_name } else { &id.ip_addr };
    format!("{host}:{}", id.xfer_port)
}

/// `host:port` for RPC.
pub(crate) fn rpc_address(id: &DatanodeIdProto, by_name: bool) -> String {
    let host = if by_name { &id.host_name } else { &id.ip_addr };
    format!("{host}:{}", id.ipc_port)
}

/// Returns the name of a block: in log lines, and as the user of an RPC to a DataNode about it.
pub(crate) fn block_name(block: &ExtendedBlockProto) -> String {
    format!("blk_{}_{}", block.block_id.cast_signed(), block.generation_stamp)
}
