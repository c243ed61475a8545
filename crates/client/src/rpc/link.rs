//! [`Link`]: one socket, many calls at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Call, Service, frame};
use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// Requests that wait for the socket; more make their callers wait.
const QUEUE_LEN: usize = 256;
/// Bytes that are gathered from the queue before they are written.
const WRITE_BYTES: usize = 64 * 1024;
/// Bytes by which the room for a frame grows, so that a lying length costs little.
const READ_STEP_BYTES: usize = 1 << 20;

type Waiting = HashMap<u32, oneshot::Sender<Result<frame::Response>>>;

/// The calls that wait for an answer; `Err` once the socket is gone, with the reason.
#[derive(Debug)]
struct Calls(Mutex<Result<Waiting>>);

impl Calls {
    fn add(&self, id: u32) -> Result<oneshot::Receiver<Result<frame::Response>>> {
        let (sender, receiver) = oneshot::channel();
        match &mut *self.0.lock() {
            Ok(waiting) => drop(waiting.insert(id, sender)),
            Err(error) => return Err(error.clone()),
        }
        Ok(receiver)
    }

    fn take(&self, id: u32) -> Option<oneshot::Sender<Result<frame::Response>>> {
        self.0.lock().as_mut().ok()?.remove(&id)
    }

    /// Fails all that wait and all that will come; the first reason stays.
    fn close(&self, error: Error) {
        let mut calls = self.0.lock();
        if let Ok(waiting) = &mut *calls {
            let waiting = std::mem::take(waiting);
            *calls = Err(error.clone());
            drop(calls);
            waiting.into_values().for_each(|sender| drop(sender.send(Err(error.clone()))));
        }
    }
}

/// Takes a call out of the waiting ones when its future is dropped.
struct Forget<'a>(&'a Calls, u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.take(self.1);
    }
}

/// One socket to one service of one server. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Link {
    address: String,
    calls: Arc<Calls>,
    requests: mpsc::Sender<Bytes>,
    next_id: AtomicU32,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Link {
    pub(crate) async fn connect(address: &str, service: Service, config: &ClientConfig) -> Result<Self> {
        let lost = |e: std::io::Error| Error::Connection(format!("{address}: {e}"));
        let connect = timeout(config.connect_timeout, TcpStream::connect(address));
        let socket = connect.await.map_err(|_| Error::Connection(format!("{address}: connect timed out")))?;
        let socket = socket.map_err(lost)?;
        socket.set_nodelay(true).map_err(lost)?;
        let (reader, mut writer) = socket.into_split();
        writer.write_all(&frame::greeting(service, &config.user)).await.map_err(lost)?;
        let calls = Arc::new(Calls(Mutex::new(Ok(Waiting::new()))));
        let (requests, queue) = mpsc::channel(QUEUE_LEN);
        let tasks = [
            tokio::spawn(write_all(writer, queue, calls.clone(), address.to_owned())),
            tokio::spawn(read_all(reader, calls.clone(), address.to_owned(), config.response_bytes_max)),
        ];
        Ok(Self { address: address.to_owned(), calls, requests, next_id: AtomicU32::new(0), tasks })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.calls.0.lock().is_ok()
    }

    pub(crate) async fn call<M: Message>(&self, call: &Call<'_, M>) -> Result<frame::Response> {
        let deadline = Instant::now() + call.timeout;
        // Ids stay below 2^31: the largest are taken by answers to no call.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let request = frame::request(id, call)?;
        let answer = self.calls.add(id)?;
        let _forget = Forget(&self.calls, id);
        let exchange = async {
            self.requests.send(request).await.map_err(|_| self.lost())?;
            answer.await.unwrap_or_else(|_| Err(self.lost()))
        };
        let late =
            |_| Err(Error::Timeout(format!("{} at {} after {:?}", call.method, self.address, call.timeout)));
        timeout_at(deadline, exchange).await.unwrap_or_else(late)
    }

    fn lost(&self) -> Error {
        match &*self.calls.0.lock() {
            Err(error) => error.clone(),
            Ok(_) => Error::Connection(format!("{}: closed", self.address)),
        }
    }
}

async fn write_all(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Bytes>,
    calls: Arc<Calls>,
    address: String,
) {
    let mut gathered = Vec::new();
    while let Some(request) = queue.recv().await {
        gathered.clear();
        gathered.extend_from_slice(&request);
        while gathered.len() < WRITE_BYTES {
            let Ok(request) = queue.try_recv() else { break };
            gathered.extend_from_slice(&request);
        }
        if let Err(error) = writer.write_all(&gathered).await {
            return calls.close(Error::Connection(format!("{address}: {error}")));
        }
        gathered.shrink_to(WRITE_BYTES);
    }
}

async fn read_all(mut reader: OwnedReadHalf, calls: Arc<Calls>, address: String, bytes_max: usize) {
    loop {
        let answer = match read_frame(&mut reader, bytes_max).await {
            Ok(frame) => frame::response(frame),
            Err(error) => Err(Error::Connection(format!("{address}: {error}"))),
        };
        match answer {
            // An answer to a call that nobody waits for any longer is dropped.
            Ok((id, result)) => drop(calls.take(id).map(|sender| sender.send(result))),
            Err(error) => return calls.close(error),
        }
    }
}

async fn read_frame(reader: &mut OwnedReadHalf, bytes_max: usize) -> std::io::Result<Bytes> {
    let len = reader.read_u32().await? as usize;
    if len > bytes_max {
        return Err(std::io::Error::other(format!("a response of {len} bytes, more than {bytes_max}")));
    }
    let mut frame = BytesMut::new();
    while frame.len() < len {
        let step = (len - frame.len()).min(READ_STEP_BYTES);
        frame.reserve(step);
        let mut part = (&mut *reader).take(step as u64);
        if part.read_buf(&mut frame).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(frame.freeze())
}
