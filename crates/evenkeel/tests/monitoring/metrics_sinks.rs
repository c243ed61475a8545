//! The sinks of `hadoop-metrics2.properties` in a configuration directory: a server started
//! with it sends its metrics to Carbon and to gmond, and writes files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::Configuration;
use evenkeel_standalone::Standalone;

use crate::common::{PORT_KEYS, free_ports};

/// The time limit of a sink's write: its period is a second.
const TIMEOUT: Duration = Duration::from_secs(60);

fn properties(dir: &Path, carbon: u16, gmond: u16) -> String {
    let sink = "org.apache.hadoop.metrics2.sink.";
    format!(
        "*.period=1\n\
         hbase.sink.carbon.class={sink}GraphiteSink\n\
         hbase.sink.carbon.server_host=127.0.0.1\n\
         hbase.sink.carbon.server_port={carbon}\n\
         hbase.sink.carbon.metrics_prefix=prod\n\
         hbase.sink.gmond.class={sink}ganglia.GangliaSink31\n\
         hbase.sink.gmond.servers=127.0.0.1:{gmond}\n\
         hbase.sink.gmond.context=jvm\n\
         hbase.sink.file.class={sink}FileSink\n\
         hbase.sink.file.filename={dir}/all.metrics\n\
         hbase.sink.rolling.class={sink}RollingFileSystemSink\n\
         hbase.sink.rolling.basepath={dir}/rolling\n\
         hbase.sink.rolling.source=evenkeel\n\
         hbase.sink.unknown.class=com.example.Sink\n",
        dir = dir.display()
    )
}

fn start(dir: &Path) -> Standalone {
    fs::write(dir.join("hbase-site.xml"), "<configuration/>").expect("written");
    let mut defines = vec![
        ("hbase.rootdir".to_owned(), format!("file://{}/hbase", dir.display())),
        ("hbase.tmp.dir".to_owned(), dir.join("tmp").display().to_string()),
    ];
    defines
        .extend(PORT_KEYS.iter().zip(free_ports()).map(|(key, port)| ((*key).to_owned(), port.to_string())));
    let conf = Configuration::load(Some(dir), &defines).expect("loaded");
    Standalone::start(conf, Arc::new(|_: &str| {})).expect("a sink that is unknown is left out")
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_there() {
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The lines of the first connection until one has `last`.
fn lines_until(carbon: &TcpListener, last: &str) -> Vec<String> {
    let (connection, _) = carbon.accept().expect("a connection");
    connection.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut lines = Vec::new();
    for line in BufReader::new(connection).lines() {
        lines.push(line.expect("a line"));
        if lines.last().is_some_and(|line| line.contains(last)) {
            break;
        }
    }
    lines
}

/// A packet of gmond's metadata or value, whose bytes have this text.
fn packet_with(gmond: &UdpSocket, text: &str) -> Vec<u8> {
    gmond.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut packet = [0; 1500];
    loop {
        let length = gmond.recv(&mut packet).expect("a packet");
        if packet[..length].windows(text.len()).any(|part| part == text.as_bytes()) {
            return packet[..length].to_vec();
        }
    }
}

#[test]
fn metrics_reach_the_configured_sinks() {
    let dir = tempfile::tempdir().expect("a directory");
    let carbon = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gmond = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port();
    let text = properties(dir.path(), port(carbon.local_addr()), port(gmond.local_addr()));
    fs::write(dir.path().join("hadoop-metrics2.properties"), text).expect("written");
    let server = start(dir.path());

    let lines = lines_until(&carbon, "regionCount");
    let count = lines.last().expect("a line");
    assert!(count.starts_with("prod.regionserver.Server.zookeeperQuorum=127.0.0.1:"), "{count}");
    let words: Vec<&str> = count.split(' ').collect();
    assert!(words.len() == 3 && words[1] == "2", "hbase:meta and hbase:namespace: {count}");

    // Only the context that the sink selects.
    let packet = packet_with(&gmond, "jvm.JvmMetrics.MemHeapUsedM");
    assert!(packet.starts_with(&[0, 0, 0, 128]) || packet.starts_with(&[0, 0, 0, 133]), "{packet:?}");

    let has = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|lines| lines.contains(text));
    wait_for("file", || has(&dir.path().join("all.metrics"), " regionserver.Server: "));
    let rolled = dir.path().join("rolling");
    wait_for("rolling file", || {
        let intervals = fs::read_dir(&rolled).into_iter().flatten().flatten();
        let files =
            intervals.flat_map(|interval| fs::read_dir(interval.path()).into_iter().flatten().flatten());
        files.map(|file| file.path()).any(|file| {
            file.display().to_string().contains("/evenkeel-") && has(&file, " regionserver.RegionServer: ")
        })
    });
    server.stop().expect("stopped");
}
