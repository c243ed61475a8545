//! Traces: a collector that `OTEL_*` names gets the spans of calls, below the spans of clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;

use crate::common::{Server, TIMEOUT, block_on, raw};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The requests that a collector has received.
#[derive(Default)]
struct Collected {
    spans: Vec<Span>,
    services: Vec<String>,
}

/// A collector: HTTP, a request a connection.
struct Collector {
    address: String,
    collected: Arc<Mutex<Collected>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let collected = Arc::new(Mutex::new(Collected::default()));
        let to = Arc::clone(&collected);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let request = ExportTraceServiceRequest::decode(received(stream)).expect("a message");
                let mut to = to.lock().expect("not poisoned");
                for resource in request.resource_spans {
                    let attributes =
                        resource.resource.map(|resource| resource.attributes).unwrap_or_default();
                    let name = attributes.iter().find(|attribute| attribute.key == "service.name");
                    to.services
                        .extend(name.map(|name| text(name.value.as_ref().and_then(|v| v.value.as_ref()))));
                    to.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
                }
            }
        });
        Self { address, collected }
    }

    /// Waits until a trace has a span of this name, and returns its spans.
    fn trace_with(&self, trace: &str, name: &str) -> Vec<Span> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let collected = self.collected.lock().expect("not poisoned");
            let of_trace = collected.spans.iter().filter(|span| hex(&span.trace_id) == trace);
            let spans: Vec<Span> = of_trace.cloned().collect();
            if spans.iter().any(|span| span.name == name) {
                return spans;
            }
            drop(collected);
            assert!(Instant::now() < deadline, "no {name} in {spans:#?}");
            sleep(Duration::from_millis(20));
        }
    }
}

/// Answers a request and returns its body.
fn received(stream: TcpStream) -> Bytes {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
        lines.push(line);
    }
    assert_eq!(lines.first().map(String::as_str), Some("post /v1/traces http/1.1"), "{lines:?}");
    assert!(lines.contains(&"content-type: application/x-protobuf".to_owned()), "{lines:?}");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("answered");
    body.into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(value: Option<&any_value::Value>) -> String {
    match value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.iter().map(|value| text(value.value.as_ref())).collect::<Vec<_>>().join(",")
        }
        other => panic!("no text: {other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    text(found.and_then(|attribute| attribute.value.as_ref()).and_then(|value| value.value.as_ref()))
}

/// Sends a traced request.
fn traced(id: u32, method: &str, param: &impl Message, flags: &str, trace: &str) -> Vec<u8> {
    let headers = [("traceparent".to_owned(), format!("00-{trace}-{PARENT}-{flags}"))];
    let header = pb::RequestHeader {
        call_id: Some(id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        trace_info: Some(pb::RpctInfo { headers: headers.into(), ..Default::default() }),
        ..Default::default()
    };
    raw::frame(&[header.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec()].concat())
}

/// A server that sends to the collector, and the region of a table.
fn served(collector: &Collector) -> (Server, pb::RegionSpecifier) {
    let mut server = Server::new(&[]);
    let mut command = server.command(&[]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address));
    command.env("OTEL_BSP_SCHEDULE_DELAY", "50");
    server.spawn(command);
    server.wait_for_screen(0);
    let region = block_on(async {
        let connection = server.connect().await;
        let name: TableName = "t".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        connection.admin().create_table(&table, &[]).await.expect("created");
        let regions = connection.admin().regions(&name).await.expect("regions");
        pb::RegionSpecifier { r#type: 1, value: regions[0].region.name().clone() }
    });
    (server, region)
}

fn get(region: &pb::RegionSpecifier) -> pb::GetRequest {
    pb::GetRequest { region: region.clone(), get: pb::Get { row: Bytes::from("r"), ..Default::default() } }
}

fn put(region: &pb::RegionSpecifier) -> pb::MutateRequest {
    let value = pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some(Bytes::from("q")),
        value: Some(Bytes::from("v")),
        ..Default::default()
    };
    let column = pb::mutation_proto::ColumnValue { family: Bytes::from("f"), qualifier_value: vec![value] };
    let mutation = pb::MutationProto {
        row: Some(Bytes::from("r")),
        mutate_type: Some(pb::mutation_proto::MutationType::Put.into()),
        column_value: vec![column],
        ..Default::default()
    };
    pb::MutateRequest { region: region.clone(), mutation, ..Default::default() }
}

#[test]
fn a_collector_gets_the_spans_of_calls_below_those_of_clients() {
    let collector = Collector::start();
    let (server, region) = served(&collector);
    let mut stream = raw::connect(server.port("hbase.regionserver.port"));
    let mut make = |call: Vec<u8>| {
        stream.write_all(&call).expect("sent");
        raw::reply(&mut stream).expect("answered").0
    };
    let reply = make(traced(1, "Mutate", &put(&region), "01", TRACE));
    assert_eq!(reply.exception, None);
    let spans = collector.trace_with(TRACE, "RpcServer.process");
    let named = |name: &str| {
        let span = spans.iter().find(|span| span.name == name);
        span.unwrap_or_else(|| panic!("{name} in {spans:#?}"))
    };
    let process = named("RpcServer.process");
    assert_eq!((hex(&process.parent_span_id).as_str(), process.kind()), (PARENT, SpanKind::Server));
    let mut parent = process;
    for (name, kind) in [
        ("hbase.pb.ClientService/Mutate", SpanKind::Server),
        ("Region.put", SpanKind::Internal),
        ("WAL.sync", SpanKind::Internal),
    ] {
        let span = named(name);
        assert_eq!((&span.parent_span_id, span.kind()), (&parent.span_id, kind), "{name}");
        assert!(span.start_time_unix_nano >= process.start_time_unix_nano, "{name}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{name}");
        assert!(span.end_time_unix_nano <= process.end_time_unix_nano, "{name}");
        parent = span;
    }
    assert_eq!(named("WAL.append").parent_span_id, named("Region.put").span_id);
    assert_eq!(attribute(named("Region.put"), "db.hbase.regions"), String::from_utf8_lossy(&region.value));
    assert_eq!(attribute(named("WAL.sync"), "db.hbase.wal.impl"), "AsyncFSWAL");
    let rpc = named("hbase.pb.ClientService/Mutate");
    let expected = ["HBASE_RPC", "hbase.pb.ClientService", "Mutate"];
    assert_eq!(["rpc.system", "rpc.service", "rpc.method"].map(|key| attribute(rpc, key)), expected);
    assert_eq!(
        collector.collected.lock().expect("not poisoned").services.first().map(String::as_str),
        Some("HBase")
    );

    // A client that does not sample its trace, one that samples, and one whose region does not
    // exist.
    let (unsampled, read, failed) = ("1".repeat(32), "2".repeat(32), "3".repeat(32));
    make(traced(2, "Get", &get(&region), "00", &unsampled));
    make(traced(3, "Get", &get(&region), "01", &read));
    let nowhere =
        pb::RegionSpecifier { r#type: 1, value: Bytes::from("t,,1.0123456789abcdef0123456789abcdef.") };
    assert!(make(traced(4, "Get", &get(&nowhere), "01", &failed)).exception.is_some());
    collector.trace_with(&read, "Region.get");
    let failed = collector.trace_with(&failed, "RpcServer.process");
    let events = &failed[0].events;
    let class = events.first().and_then(|event| event.attributes.first()).expect("an exception");
    let class = text(class.value.as_ref().and_then(|value| value.value.as_ref()));
    assert!(class.ends_with("NotServingRegionException"), "{class}");
    let collected = collector.collected.lock().expect("not poisoned");
    assert!(collected.spans.iter().all(|span| hex(&span.trace_id) != unsampled), "nothing of it is sent");
}

#[test]
fn an_absent_collector_blocks_no_call() {
    let collector = Collector { address: "127.0.0.1:1".to_owned(), collected: Arc::default() };
    let (server, region) = served(&collector);
    let mut stream = raw::connect(server.port("hbase.regionserver.port"));
    stream.write_all(&traced(1, "Mutate", &put(&region), "01", TRACE)).expect("sent");
    assert_eq!(raw::reply(&mut stream).expect("answered").0.exception, None);
    server.log_with("spans cannot be sent");
    let mut other = Server::new(&[]);
    let mut command = other.command(&[]);
    command.env("OTEL_TRACES_EXPORTER", "otlp").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    other.spawn(command);
    assert!(!other.exit().success());
    assert!(other.log().contains("only http/protobuf is known"), "{}", other.log());
}
