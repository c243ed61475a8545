//! A NameNode whose replies come from a closure.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prost::Message;

use crate::Settings;
use crate::hadoop::common::{
    IpcConnectionContextProto, RequestHeaderProto, RpcRequestHeaderProto, RpcResponseHeaderProto,
    rpc_response_header_proto::RpcStatusProto,
};
use crate::wire::{put_delimited, take_delimited};

/// A call as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) client_id: Vec<u8>,
    pub(crate) call_id: i32,
    pub(crate) retry: i32,
    /// The connection's number, from 0.
    pub(crate) connection: usize,
    /// The parameters, without their length.
    pub(crate) parameters: Vec<u8>,
}

impl Call {
    pub(crate) fn decode<M: Message + Default>(&self) -> M {
        M::decode(&self.parameters[..]).expect("parameters")
    }
}

/// What the server does with a call.
pub(crate) enum ScriptedReply {
    /// Answers with this message.
    Ok(Vec<u8>),
    /// Answers with an exception; the connection stays open.
    Exception(&'static str, &'static str),
    /// Answers with an exception and closes the connection.
    Fatal(&'static str),
    /// Closes the connection without a reply.
    Close,
    /// Sends half of the reply and closes the connection.
    Half(Vec<u8>),
    /// Sends these bytes as they are and closes the connection.
    Raw(Vec<u8>),
    /// Never answers.
    Silence,
}

impl ScriptedReply {
    pub(crate) fn of(message: &impl Message) -> Self {
        Self::Ok(message.encode_to_vec())
    }

    pub(crate) fn standby() -> Self {
        Self::Exception("org.apache.hadoop.ipc.StandbyException", "Operation category WRITE is not supported")
    }
}

type Script = dyn Fn(&Call) -> ScriptedReply + Send + Sync;

/// A server on a free port of this machine, which ends with the test.
pub(crate) struct FakeNameNode {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
    stopped: Arc<AtomicBool>,
}

impl FakeNameNode {
    pub(crate) fn start(script: impl Fn(&Call) -> ScriptedReply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (calls, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (all_calls, is_stopped) = (Arc::clone(&calls), Arc::clone(&stopped));
        let script: Arc<Script> = Arc::new(script);
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (script, calls) = (Arc::clone(&script), Arc::clone(&all_calls));
                let socket = socket.expect("accepted");
                std::thread::spawn(move || drop(serve(socket, number, &*script, &calls)));
            }
        });
        Self { address, calls, stopped }
    }

    /// The calls so far, in the order of their arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// The names of the calls so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.method).collect()
    }

    /// Returns settings with short timeouts for this server.
    pub(crate) fn settings(&self) -> Settings {
        quick(Settings::of_namenodes([self.address.clone()]))
    }
}

/// Shortens the timeouts of settings.
pub(crate) fn quick(settings: Settings) -> Settings {
    use std::time::Duration;
    Settings {
        user: "tester".into(),
        attempts_max: 5,
        retry_pause: Duration::from_millis(5),
        retry_pause_max: Duration::from_millis(20),
        call_timeout: Duration::from_millis(500),
        ..settings
    }
}

impl Drop for FakeNameNode {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(&self.address));
    }
}

fn serve(mut socket: TcpStream, number: usize, script: &Script, calls: &Mutex<Vec<Call>>) -> io::Result<()> {
    let mut preamble = [0; 7];
    socket.read_exact(&mut preamble)?;
    assert_eq!(&preamble, b"hrpc\x09\x00\x00");
    let frame = read_frame(&mut socket)?;
    let mut rest = &frame[..];
    let header: RpcRequestHeaderProto = take_delimited(&mut rest)?;
    let context: IpcConnectionContextProto = take_delimited(&mut rest)?;
    assert_eq!(header.call_id, -3);
    assert!(context.user_info.is_some() && rest.is_empty());
    loop {
        let call = read_call(&mut socket, number)?;
        calls.lock().push(call.clone());
        match script(&call) {
            ScriptedReply::Ok(message) => socket.write_all(&success(&call, &message))?,
            ScriptedReply::Exception(class, text) => {
                socket.write_all(&failure(&call, RpcStatusProto::Error, class, text))?
            }
            ScriptedReply::Fatal(class) => {
                return socket.write_all(&failure(&call, RpcStatusProto::Fatal, class, "fatal"));
            }
            ScriptedReply::Close => return Ok(()),
            ScriptedReply::Half(message) => {
                let bytes = success(&call, &message);
                return socket.write_all(&bytes[..bytes.len() / 2]);
            }
            ScriptedReply::Raw(bytes) => return socket.write_all(&bytes),
            ScriptedReply::Silence => {
                let _ = socket.read(&mut [0; 1]);
                return Ok(());
            }
        }
    }
}

fn read_frame(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut frame)?;
    Ok(frame)
}

fn read_call(socket: &mut TcpStream, connection: usize) -> io::Result<Call> {
    let frame = read_frame(socket)?;
    let mut rest = &frame[..];
    let header: RpcRequestHeaderProto = take_delimited(&mut rest)?;
    let request: RequestHeaderProto = take_delimited(&mut rest)?;
    let (_, length_bytes) = evenkeel_common::varint::read_varint(rest).expect("a length");
    Ok(Call {
        method: request.method_name,
        client_id: header.client_id.to_vec(),
        call_id: header.call_id,
        retry: header.retry_count.unwrap_or(-1),
        connection,
        parameters: rest[length_bytes..].to_vec(),
    })
}

fn frame(header: &RpcResponseHeaderProto, message: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    put_delimited(&mut body, header);
    if let Some(message) = message {
        evenkeel_common::varint::write_varint(&mut body, message.len() as u64);
        body.extend_from_slice(message);
    }
    let mut out = (body.len() as u32).to_be_bytes().to_vec();
    out.append(&mut body);
    out
}

fn response_header(call: &Call, status: RpcStatusProto) -> RpcResponseHeaderProto {
    RpcResponseHeaderProto { call_id: call.call_id as u32, status: status.into(), ..Default::default() }
}

fn success(call: &Call, message: &[u8]) -> Vec<u8> {
    frame(&response_header(call, RpcStatusProto::Success), Some(message))
}

fn failure(call: &Call, status: RpcStatusProto, class: &str, text: &str) -> Vec<u8> {
    let header = RpcResponseHeaderProto {
        exception_class_name: Some(class.into()),
        error_msg: Some(format!("{text}\n\tat java.lang.Thread.run(Thread.java:1)")),
        ..response_header(call, status)
    };
    frame(&header, None)
}
