//! Periodic sinks, with files and peers of the test.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::clock::{Clock, ManualClock};

use super::records;
use crate::record::Record;
use crate::registry::Registry;
use crate::sink::ganglia::GangliaSink;
use crate::sink::graphite::GraphiteSink;
use crate::sink::periodic::{PeriodicSinks, Round, Sink};
use crate::sink::properties::{SinkSettings, SinkType};

const NOW_MS: i64 = 1_700_000_000_600;
const WAIT_MAX: Duration = Duration::from_secs(20);

fn settings(sink_type: SinkType) -> SinkSettings {
    SinkSettings { name: "s".to_owned(), context: None, period: Duration::from_millis(10), sink_type }
}

fn start(settings: &[SinkSettings]) -> PeriodicSinks {
    let registry = Registry::new();
    registry.register(Arc::new(|to: &mut Vec<Record>| to.extend(records())));
    let clock: Arc<dyn Clock> = ManualClock::at(NOW_MS);
    PeriodicSinks::start(settings, &registry, "h", &clock).expect("threads")
}

fn wait_for_text(path: &Path) -> String {
    let deadline = std::time::Instant::now() + WAIT_MAX;
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(std::time::Instant::now() < deadline, "nothing in {}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_have_a_line_for_each_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("all.metrics");
    let sinks = start(&[
        settings(SinkType::File { filename: file.clone() }),
        settings(SinkType::RollingFile {
            basepath: dir.path().join("rolling"),
            source: "rs".to_owned(),
            roll_interval: Duration::from_secs(3_600),
        }),
    ]);
    let rolled = dir.path().join("rolling/202311142200/rs-h.log");
    for path in [file, rolled] {
        let text = wait_for_text(&path);
        let ipc = text.lines().nth(1).expect("a second record");
        let expected = "1700000000600 regionserver.RegionServer: Context=regionserver, Hostname=h, \
                        queueSize=0, exceptions.otherExceptions=2";
        assert_eq!(ipc, expected);
        assert!(!text.contains("HeapMemory"), "beans of the platform are not written");
    }
    drop(sinks);
}

#[test]
fn a_failing_sink_does_not_stop_and_recovers() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("later/all.metrics");
    let mut context = settings(SinkType::File { filename: file.clone() });
    context.context = Some("regionserver".to_owned());
    let nobody = settings(SinkType::Graphite { server: ("127.0.0.1".to_owned(), 1), prefix: String::new() });
    let sinks = start(&[context, nobody]);
    std::thread::sleep(Duration::from_millis(50));
    std::fs::create_dir(dir.path().join("later")).expect("a directory");
    assert!(wait_for_text(&file).contains("regionserver.Server: "));
    drop(sinks);
}

#[test]
fn graphite_gets_lines_and_a_second_connection_after_the_first_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = ("127.0.0.1".to_owned(), listener.local_addr().expect("bound").port());
    let sinks = start(&[settings(SinkType::Graphite { server, prefix: "prod x".to_owned() })]);
    for _ in 0..2 {
        let (connection, _) = listener.accept().expect("a connection");
        connection.set_read_timeout(Some(WAIT_MAX)).expect("set");
        let lines: Vec<String> =
            BufReader::new(connection).lines().take(5).map(|line| line.expect("a line")).collect();
        let path = "prod_x.regionserver.Server.zookeeperQuorum=a:2181.serverName=h,16020,1.Context=regionserver.Hostname=h";
        assert_eq!(lines[0], format!("{path}.regionCount 3 1700000001"));
        assert_eq!(lines[4], format!("{path}.GcCountG1.Young.Generation 1 1700000001"));
    }
    drop(sinks);
}

/// A peer that accepts and never reads costs only its sink time, and dropping the sinks does not
/// wait forever.
#[test]
fn a_peer_that_never_reads_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = ("127.0.0.1".to_owned(), listener.local_addr().expect("bound").port());
    let mut sink = GraphiteSink::new(server, String::new());
    let mut record = Record::new("Server", "c", "name=x");
    for number in 0..20_000 {
        record.counter(format!("a{number}"), "", number);
    }
    let round = Round { timestamp_ms: 0, hostname: "h", records: &[&record] };
    let error = (0..100).find_map(|_| sink.put(&round).err()).expect("the buffers are full");
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
}

#[test]
fn ganglia_gets_metadata_and_value() {
    let gmond = UdpSocket::bind("127.0.0.1:0").expect("a port");
    gmond.set_read_timeout(Some(WAIT_MAX)).expect("set");
    let server = ("127.0.0.1".to_owned(), gmond.local_addr().expect("bound").port());
    let mut record = Record::new("Server", "rs", "name=x");
    record.counter("n", "", 258);
    let round = Round { timestamp_ms: 0, hostname: "host", records: &[&record] };
    GangliaSink::new(vec![server]).put(&round).expect("sent");
    let mut packet = [0; 1500];
    let mut receive = || {
        let length = gmond.recv(&mut packet).expect("a packet");
        packet[..length].to_vec()
    };
    let name = b"\0\0\0\x0brs.Server.n\0";
    let mut metadata =
        [b"\0\0\0\x80\0\0\0\x04host".as_slice(), name, b"\0\0\0\0\0\0\0\x05float\0\0\0"].concat();
    metadata.extend(name);
    metadata.extend(
        b"\0\0\0\0\0\0\0\x01\0\0\0\x3c\0\0\0\0\0\0\0\x01\0\0\0\x05GROUP\0\0\0\0\0\0\x09rs.Server\0\0\0",
    );
    assert_eq!(receive(), metadata);
    let value = [b"\0\0\0\x85\0\0\0\x04host".as_slice(), name, b"\0\0\0\0\0\0\0\x02%s\0\0\0\0\0\x03258\0"];
    assert_eq!(receive(), value.concat());
}
