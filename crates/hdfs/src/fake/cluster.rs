//! A NameNode with one file and some DataNodes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::block::output::FlushLevel;
use crate::fake::{Behavior, Call, FakeDataNode, FakeNameNode, ScriptedReply};
use crate::hadoop::hdfs::{
    AbandonBlockResponseProto, AddBlockRequestProto, AddBlockResponseProto, CompleteRequestProto,
    CompleteResponseProto, CreateResponseProto, DeleteResponseProto, ExtendedBlockProto,
    FsServerDefaultsProto, GetBlockLocationsResponseProto, GetFileInfoResponseProto,
    GetServerDefaultsResponseProto, HdfsFileStatusProto, LocatedBlockProto, LocatedBlocksProto,
    RecoverLeaseResponseProto, RenewLeaseResponseProto,
};
use crate::{HdfsClient, LogWriter, Settings};

/// The file of the cluster.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Blocks by id, with their final lengths if known.
    pub(crate) blocks: Vec<LocatedBlockProto>,
    pub(crate) is_closed: bool,
    /// How often `complete` answers false before it answers true.
    pub(crate) incomplete: usize,
    pub(crate) abandoned: usize,
    pub(crate) recoveries: usize,
    /// How often `recoverLease` answers false before it answers true.
    pub(crate) unrecovered: usize,
    /// How often `addBlock` answers that the previous block is not replicated yet.
    pub(crate) not_replicated: usize,
    /// How often the reply to `create` is lost.
    pub(crate) lost_creates: usize,
}

/// A NameNode and DataNodes in this process, and a client of them with short timeouts.
pub(crate) struct FakeCluster {
    pub(crate) namenode: FakeNameNode,
    pub(crate) datanodes: Arc<Vec<FakeDataNode>>,
    pub(crate) file: Arc<Mutex<FileState>>,
}

impl FakeCluster {
    pub(crate) fn start(behaviors: Vec<Behavior>) -> Self {
        let datanodes: Vec<FakeDataNode> = behaviors.into_iter().map(FakeDataNode::start).collect();
        let datanodes = Arc::new(datanodes);
        let file = Arc::new(Mutex::new(FileState::default()));
        let (nodes, state) = (Arc::clone(&datanodes), Arc::clone(&file));
        let namenode = FakeNameNode::start(move |call| answer(call, &nodes, &mut state.lock()));
        Self { namenode, datanodes, file }
    }

    /// Starts a cluster with this many well-behaved DataNodes.
    pub(crate) fn healthy(datanodes: usize) -> Self {
        Self::start((0..datanodes).map(|_| Behavior::default()).collect())
    }

    pub(crate) fn settings(&self) -> Settings {
        let ms = std::time::Duration::from_millis;
        Settings { recovery_delay: ms(50), ..self.namenode.settings() }
    }

    pub(crate) fn client(&self) -> HdfsClient {
        HdfsClient::new(self.settings()).expect("threads")
    }

    pub(crate) fn log(&self) -> LogWriter {
        self.log_by(self.client())
    }

    /// Creates a log with a short acknowledgement timeout.
    pub(crate) fn impatient_log(&self) -> LogWriter {
        let ack_timeout = std::time::Duration::from_secs(2);
        self.log_by(HdfsClient::new(Settings { ack_timeout, ..self.settings() }).expect("threads"))
    }

    fn log_by(&self, client: HdfsClient) -> LogWriter {
        client.create_log("/log", client.new_file()).expect("created")
    }

    /// Adds a block with the same bytes on every DataNode, and closes the file.
    pub(crate) fn store(&self, bytes: &[u8]) {
        let mut file = self.file.lock();
        let mut block = new_block(&file, &self.datanodes, &[]);
        block.b.num_bytes = Some(bytes.len() as u64);
        self.datanodes.iter().for_each(|node| node.store(block.b.block_id, bytes));
        file.blocks.push(block);
        file.is_closed = true;
    }
}

/// A log and a copy of all bytes appended to it.
pub(crate) struct Written {
    pub(crate) log: LogWriter,
    pub(crate) bytes: Vec<u8>,
}

impl Written {
    pub(crate) fn append(&mut self, len: usize) -> std::io::Result<()> {
        let start = self.bytes.len();
        self.bytes.extend((start..start + len).map(|i| (i * 31 % 251) as u8));
        self.log.append(&self.bytes[start..])
    }

    pub(crate) fn flush(&mut self, len: usize) -> std::io::Result<()> {
        self.append(len)?;
        self.log.flush(FlushLevel::Flushed)
    }
}

fn new_block(file: &FileState, nodes: &[FakeDataNode], excluded: &[String]) -> LocatedBlockProto {
    let locs: Vec<_> = nodes
        .iter()
        .map(FakeDataNode::info)
        .filter(|node| !excluded.contains(&node.id.datanode_uuid))
        .collect();
    let done: u64 = file.blocks.iter().map(|block| block.b.num_bytes.unwrap_or(0)).sum();
    LocatedBlockProto {
        b: ExtendedBlockProto {
            pool_id: "BP-1".into(),
            block_id: 1000 + (file.blocks.len() + file.abandoned) as u64,
            generation_stamp: 1,
            num_bytes: Some(0),
        },
        offset: done,
        storage_types: vec![1; locs.len()],
        locs,
        ..Default::default()
    }
}

fn add_block(call: &Call, nodes: &[FakeDataNode], file: &mut FileState) -> ScriptedReply {
    let request: AddBlockRequestProto = call.decode();
    if let (Some(previous), Some(last)) = (request.previous, file.blocks.last_mut()) {
        assert_eq!(previous.block_id, last.b.block_id);
        last.b.num_bytes = previous.num_bytes;
    }
    if file.not_replicated > 0 {
        file.not_replicated -= 1;
        let class = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException";
        return ScriptedReply::Exception(class, "Not replicated yet: /log");
    }
    let excluded: Vec<String> =
        request.exclude_nodes.iter().map(|node| node.id.datanode_uuid.clone()).collect();
    let block = new_block(file, nodes, &excluded);
    if block.locs.is_empty() {
        let text = "File /log could only be written to 0 of the 1 minReplication nodes.";
        return ScriptedReply::Exception("java.io.IOException", text);
    }
    file.blocks.push(block.clone());
    ScriptedReply::of(&AddBlockResponseProto { block })
}

fn complete(call: &Call, file: &mut FileState) -> ScriptedReply {
    let request: CompleteRequestProto = call.decode();
    if let (Some(request), Some(last)) = (request.last, file.blocks.last_mut()) {
        last.b.num_bytes = request.num_bytes;
    }
    let result = file.incomplete == 0;
    file.incomplete = file.incomplete.saturating_sub(1);
    file.is_closed = result;
    ScriptedReply::of(&CompleteResponseProto { result })
}

fn status() -> HdfsFileStatusProto {
    HdfsFileStatusProto { file_id: Some(77), file_type: 2, ..Default::default() }
}

fn answer(call: &Call, nodes: &[FakeDataNode], file: &mut FileState) -> ScriptedReply {
    match call.method.as_str() {
        "getServerDefaults" => {
            let server_defaults = FsServerDefaultsProto::default();
            ScriptedReply::of(&GetServerDefaultsResponseProto { server_defaults })
        }
        "create" if file.lost_creates > 0 => {
            file.lost_creates -= 1;
            ScriptedReply::Close
        }
        "delete" => ScriptedReply::of(&DeleteResponseProto { result: true }),
        "create" => ScriptedReply::of(&CreateResponseProto { fs: Some(status()) }),
        "addBlock" => add_block(call, nodes, file),
        "abandonBlock" => {
            file.blocks.pop();
            file.abandoned += 1;
            ScriptedReply::of(&AbandonBlockResponseProto {})
        }
        "complete" => complete(call, file),
        "renewLease" => ScriptedReply::of(&RenewLeaseResponseProto {}),
        "recoverLease" => {
            file.recoveries += 1;
            file.is_closed = file.recoveries > file.unrecovered;
            ScriptedReply::of(&RecoverLeaseResponseProto { result: file.is_closed })
        }
        "getFileInfo" => ScriptedReply::of(&GetFileInfoResponseProto { fs: Some(status()) }),
        "getBlockLocations" => {
            let file_length = file.blocks.iter().map(|block| block.b.num_bytes.unwrap_or(0)).sum();
            let locations = LocatedBlocksProto {
                file_length,
                blocks: file.blocks.clone(),
                is_last_block_complete: true,
                ..Default::default()
            };
            ScriptedReply::of(&GetBlockLocationsResponseProto { locations: Some(locations) })
        }
        other => panic!("call of {other}"),
    }
}
