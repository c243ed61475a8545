//! [`ClientConfig`]: addresses, timeouts and retries, with HBase's defaults.

use std::time::Duration;

/// How to reach a cluster and how long to try. The fields are those of `hbase-site.xml`, named beside each.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of masters or RegionServers that are asked for the rest (`hbase.masters`,
    /// `hbase.client.bootstrap.servers`).
    pub bootstrap: Vec<String>,
    /// The user that calls are made as.
    pub user: String,
    /// Time to connect a socket (`hbase.ipc.client.socket.timeout.connect`).
    pub connect_timeout: Duration,
    /// Time of one call (`hbase.rpc.timeout`).
    pub rpc_timeout: Duration,
    /// Time of one operation with all its retries (`hbase.client.operation.timeout`), and of a procedure to finish.
    pub operation_timeout: Duration,
    /// Time of one call of a scan (`hbase.client.scanner.timeout.period`).
    pub scanner_timeout: Duration,
    /// The first pause between tries (`hbase.client.pause`).
    pub pause: Duration,
    /// The first pause when a server says that it is overloaded (`hbase.client.pause.server.overloaded`).
    pub pause_overloaded: Duration,
    /// Tries after the first (`hbase.client.retries.number`).
    pub retries: u32,
    /// Bytes of results that a scan asks for in one call (`hbase.client.scanner.max.result.size`).
    pub scanner_bytes_max: u64,
    /// Regions learnt by one lookup in hbase:meta (`hbase.client.locate.prefetch.limit`).
    pub locate_prefetch: u32,
    /// Bytes of the largest response that is read; a larger one ends the connection.
    pub response_bytes_max: usize,
}

impl ClientConfig {
    /// HBase's defaults for a cluster that some of these `host:port` belong to.
    pub fn new<S: Into<String>>(bootstrap: impl IntoIterator<Item = S>) -> Self {
        Self {
            bootstrap: bootstrap.into_iter().map(Into::into).collect(),
            user: std::env::var("USER").unwrap_or_else(|_| "evenkeel".to_owned()),
            connect_timeout: Duration::from_secs(10),
            rpc_timeout: Duration::from_secs(60),
            operation_timeout: Duration::from_secs(1200),
            scanner_timeout: Duration::from_secs(60),
            pause: Duration::from_millis(100),
            pause_overloaded: Duration::from_millis(100),
            retries: 15,
            scanner_bytes_max: 2 << 20,
            locate_prefetch: 10,
            response_bytes_max: 512 << 20,
        }
    }
}
