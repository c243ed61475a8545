//! Four-letter words: a connection that starts with one gets a text and is closed. HBase's shell
//! sends `stat` for `zk_dump`, scripts send `ruok`, monitors `mntr` and `srvr`.

use std::fmt::Write;

/// The figures that the words report.
#[derive(Debug, Default)]
pub(super) struct ServerStats {
    pub(super) clients: Vec<String>,
    pub(super) packets_received: u64,
    pub(super) packets_sent: u64,
    pub(super) zxid: i64,
    pub(super) nodes: usize,
    pub(super) watches: usize,
    pub(super) data_bytes: usize,
    pub(super) sessions: usize,
    pub(super) uptime_ms: u128,
    pub(super) client_port: u16,
    pub(super) tick_ms: u64,
    pub(super) session_timeout_min_ms: u64,
    pub(super) session_timeout_max_ms: u64,
    pub(super) connections_per_address_max: usize,
}

/// The version line, from which tools parse the protocol version.
const VERSION: &str = concat!("3.8.4-evenkeel-", env!("CARGO_PKG_VERSION"));

/// Returns true if these bytes are a supported word.
pub(super) fn is_word(word: [u8; 4]) -> bool {
    matches!(&word, b"ruok" | b"stat" | b"srvr" | b"mntr" | b"conf" | b"envi" | b"isro")
}

/// Returns the reply to a word.
pub(super) fn reply(word: [u8; 4], stats: &ServerStats) -> String {
    match &word {
        b"ruok" => "imok".to_owned(),
        b"isro" => "rw".to_owned(),
        b"stat" => server(stats, true),
        b"srvr" => server(stats, false),
        b"mntr" => monitor(stats),
        b"conf" => configuration(stats),
        b"envi" => format!("Environment:\nzookeeper.version={VERSION}\nos.name={}\n", std::env::consts::OS),
        _ => String::new(),
    }
}

fn server(stats: &ServerStats, with_clients: bool) -> String {
    let mut text = format!("Zookeeper version: {VERSION}\n");
    if with_clients {
        text.push_str("Clients:\n");
        stats
            .clients
            .iter()
            .for_each(|client| line(&mut text, format_args!(" /{client}[1](queued=0,recved=0,sent=0)")));
        text.push('\n');
    }
    line(&mut text, format_args!("Latency min/avg/max: 0/0.0/0"));
    line(&mut text, format_args!("Received: {}", stats.packets_received));
    line(&mut text, format_args!("Sent: {}", stats.packets_sent));
    line(&mut text, format_args!("Connections: {}", stats.clients.len()));
    line(&mut text, format_args!("Outstanding: 0"));
    line(&mut text, format_args!("Zxid: {:#x}", stats.zxid));
    line(&mut text, format_args!("Mode: standalone"));
    line(&mut text, format_args!("Node count: {}", stats.nodes));
    text
}

fn monitor(stats: &ServerStats) -> String {
    let mut text = format!("zk_version\t{VERSION}\nzk_server_state\tstandalone\n");
    let numbers: [(&str, u128); 9] = [
        ("zk_uptime", stats.uptime_ms),
        ("zk_packets_received", stats.packets_received.into()),
        ("zk_packets_sent", stats.packets_sent.into()),
        ("zk_num_alive_connections", stats.clients.len() as u128),
        ("zk_outstanding_requests", 0),
        ("zk_znode_count", stats.nodes as u128),
        ("zk_watch_count", stats.watches as u128),
        ("zk_ephemerals_count", 0),
        ("zk_approximate_data_size", stats.data_bytes as u128),
    ];
    numbers.iter().for_each(|(name, value)| line(&mut text, format_args!("{name}\t{value}")));
    line(&mut text, format_args!("zk_global_sessions\t{}", stats.sessions));
    text
}

fn configuration(stats: &ServerStats) -> String {
    format!(
        "clientPort={}\ntickTime={}\nmaxClientCnxns={}\nminSessionTimeout={}\nmaxSessionTimeout={}\nserverId=0\n",
        stats.client_port,
        stats.tick_ms,
        stats.connections_per_address_max,
        stats.session_timeout_min_ms,
        stats.session_timeout_max_ms
    )
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(arguments);
    text.push('\n');
}
