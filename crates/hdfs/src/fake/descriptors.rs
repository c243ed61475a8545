//! The UNIX domain socket of a DataNode, which passes descriptors of its files.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crc_fast::crc32_iscsi;
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::block::op;
use crate::fake::FakeDataNode;
use crate::fake::status;
use crate::hadoop::hdfs::{BlockOpResponseProto, OpRequestShortCircuitAccessProto, Status};
use crate::wire::{put_delimited, read_delimited};

/// How a request for descriptors is answered.
#[derive(Clone, Debug)]
pub(crate) enum DescriptorAnswer {
    /// With the files.
    Files,
    /// With the files, and without a request for a receipt.
    FilesWithoutReceipt,
    /// With this many descriptors, of the data file first.
    Descriptors(usize),
    /// With the two ends of a pipe.
    Pipe,
    /// With this reply only.
    Reply(BlockOpResponseProto),
    /// With bytes that are not a reply.
    Garbage,
    /// With success, and then nothing.
    NoByte,
    /// Not at all: the connection is closed.
    Close,
    /// Not at all.
    Silence,
}

struct State {
    dir: PathBuf,
    answer: Mutex<DescriptorAnswer>,
    requests: AtomicUsize,
    receipts: AtomicUsize,
    is_stopped: AtomicBool,
    /// Connections that get no answer.
    silent: Mutex<Vec<UnixStream>>,
}

/// The domain socket of a [`FakeDataNode`], with its own copies of the blocks.
pub(crate) struct DescriptorServer {
    path: PathBuf,
    state: Arc<State>,
}

impl DescriptorServer {
    /// Listens on `dn.<port of the DataNode>` in `dir`. The files of the blocks are in its
    /// directory `blocks`.
    pub(crate) fn start(dir: &Path, datanode: &FakeDataNode, answer: DescriptorAnswer) -> Self {
        let path = dir.join(format!("dn.{}", datanode.port));
        let listener = UnixListener::bind(&path).expect("a socket");
        let blocks = dir.join("blocks");
        std::fs::create_dir(&blocks).expect("a directory");
        let state = Arc::new(State {
            dir: blocks,
            answer: Mutex::new(answer),
            requests: AtomicUsize::new(0),
            receipts: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            silent: Mutex::default(),
        });
        let own = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if own.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                own.requests.fetch_add(1, Ordering::SeqCst);
                let _ = answer_one(socket.expect("accepted"), &own);
            }
        });
        Self { path, state }
    }

    /// Stores the two files of a block.
    pub(crate) fn store(&self, block_id: u64, bytes: &[u8]) {
        let mut meta = vec![0, 1, 2, 0, 0, 2, 0];
        bytes.chunks(512).for_each(|chunk| meta.extend(crc32_iscsi(chunk).to_be_bytes()));
        std::fs::write(self.data_file(block_id), bytes).expect("written");
        std::fs::write(meta_file(&self.state.dir, block_id), meta).expect("written");
    }

    /// Returns the path of the data file of a block.
    pub(crate) fn data_file(&self, block_id: u64) -> PathBuf {
        data_file(&self.state.dir, block_id)
    }

    /// Returns the path of the checksums of a block.
    pub(crate) fn meta_file(&self, block_id: u64) -> PathBuf {
        meta_file(&self.state.dir, block_id)
    }

    /// Answers like this from the next request on.
    pub(crate) fn answer(&self, answer: DescriptorAnswer) {
        *self.state.answer.lock() = answer;
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Waits until this many receipts have arrived; returns false if they do not.
    pub(crate) fn has_receipts(&self, receipts: usize) -> bool {
        let arrived = || self.state.receipts.load(Ordering::SeqCst);
        for _ in 0..200 {
            if arrived() >= receipts {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        arrived() == receipts
    }
}

impl Drop for DescriptorServer {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
    }
}

fn data_file(dir: &Path, block_id: u64) -> PathBuf {
    dir.join(format!("blk_{block_id}"))
}

fn meta_file(dir: &Path, block_id: u64) -> PathBuf {
    dir.join(format!("blk_{block_id}_1.meta"))
}

fn answer_one(mut socket: UnixStream, state: &State) -> io::Result<()> {
    let mut start = [0; 3];
    socket.read_exact(&mut start)?;
    assert_eq!(start, [0, 28, op::REQUEST_SHORT_CIRCUIT_FDS]);
    let request: OpRequestShortCircuitAccessProto = read_delimited(&mut socket)?;
    assert_eq!((request.max_version, request.supports_receipt_verification()), (1, true));
    let block_id = request.header.block.block_id;
    let answer = state.answer.lock().clone();
    let success = BlockOpResponseProto { short_circuit_access_version: Some(1), ..status(Status::Success) };
    match answer {
        DescriptorAnswer::Reply(reply) => send(&mut socket, &reply),
        DescriptorAnswer::Garbage => socket.write_all(&[0xff; 64]),
        DescriptorAnswer::Close => Ok(()),
        DescriptorAnswer::NoByte => send(&mut socket, &success),
        DescriptorAnswer::Silence => {
            state.silent.lock().push(socket);
            Ok(())
        }
        DescriptorAnswer::Pipe => {
            send(&mut socket, &success)?;
            let (reader, writer) = io::pipe()?;
            pass(&socket, 0, &[reader.as_fd(), writer.as_fd()])
        }
        DescriptorAnswer::Files
        | DescriptorAnswer::FilesWithoutReceipt
        | DescriptorAnswer::Descriptors(_) => {
            send(&mut socket, &success)?;
            let data = File::open(data_file(&state.dir, block_id))?;
            let meta = File::open(meta_file(&state.dir, block_id))?;
            let all = [data.as_fd(), meta.as_fd(), data.as_fd()];
            let count = if let DescriptorAnswer::Descriptors(count) = answer { count } else { 2 };
            let receipt = u8::from(matches!(answer, DescriptorAnswer::Files));
            pass(&socket, receipt, &all[..count])?;
            if receipt == 1 {
                socket.read_exact(&mut [0])?;
                state.receipts.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    }
}

fn send(socket: &mut UnixStream, message: &impl prost::Message) -> io::Result<()> {
    let mut out = Vec::new();
    put_delimited(&mut out, message);
    socket.write_all(&out)
}

/// Sends one byte with descriptors.
fn pass(socket: &UnixStream, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(socket, &[IoSlice::new(&[byte])], &mut control, SendFlags::empty())?;
    Ok(())
}
