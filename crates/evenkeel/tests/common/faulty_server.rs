//! A whole server in the process of the test, over a disk with scripted faults.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_client::{Connection, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_fs::{FaultyFileSystem, LocalFileSystem};
use evenkeel_standalone::Standalone;
use serde_json::Value;

use crate::common::{config, free_ports, in_process, runtime};

/// The server, with a table `t` of the family `f`. Dropping it stops it.
pub struct FaultyServer {
    folder: tempfile::TempDir,
    pub ports: [u16; 5],
    settings: Vec<(&'static str, &'static str)>,
    /// The disk. A restart has a new one, without faults.
    pub fs: FaultyFileSystem,
    running: Option<Standalone>,
    /// Where the test's clients run.
    pub runtime: tokio::runtime::Runtime,
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.fs.clear();
        self.running.take().map(Standalone::stop);
    }
}

/// The test's table.
pub fn table_name() -> TableName {
    "t".parse().expect("legal")
}

impl FaultyServer {
    /// Starts a server, and creates its table with these splits.
    pub fn started(settings: &[(&'static str, &'static str)], splits: &[&'static str]) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().expect("a temporary directory"),
            ports: free_ports(),
            settings: settings.to_vec(),
            fs: FaultyFileSystem::new(LocalFileSystem::new()),
            running: None,
            runtime: runtime(),
        };
        server.start();
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let descriptor = TableDescriptor::new(table_name()).with_family(family);
        let splits: Vec<_> = splits.iter().map(|row| bytes::Bytes::from_static(row.as_bytes())).collect();
        let create = async { server.connect().await.admin().create_table(&descriptor, &splits).await };
        server.runtime.block_on(create).expect("created");
        server
    }

    fn start(&mut self) {
        let conf = in_process(self.folder.path(), self.ports, &self.settings);
        self.fs = FaultyFileSystem::new(LocalFileSystem::new());
        let running = Standalone::start_on(Arc::new(self.fs.clone()), conf, Arc::new(|_: &str| {}));
        self.running = Some(running.expect("the server starts"));
    }

    pub fn restart(&mut self) {
        self.running.take().expect("it runs").stop().expect("stopped");
        self.start();
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("hbase")
    }

    /// The port of the pages.
    pub fn info_port(&self) -> u16 {
        self.ports[4]
    }

    pub async fn connect(&self) -> Connection {
        let bootstrap = format!("127.0.0.1:{}", self.ports[1]);
        Connection::connect(config(&bootstrap)).await.expect("the server answers")
    }

    pub fn table(&self) -> Table {
        self.runtime.block_on(self.connect()).table(table_name())
    }

    pub fn put(&self, table: &Table, row: String, value_bytes: usize) {
        let put = Put::new(row).column("f", "q", vec![7; value_bytes]);
        self.runtime.block_on(table.put(put)).expect("written");
    }

    pub fn flush(&self) {
        let flush = async { self.connect().await.admin().flush_table(&table_name()).await };
        self.runtime.block_on(flush).expect("flushed");
    }

    /// The body of a page.
    pub fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.info_port())).expect("the info port answers");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    /// `/slow.json`.
    pub fn ledger(&self) -> Value {
        let body = self.page("/slow.json");
        serde_json::from_str(&body).unwrap_or_else(|why| panic!("{why}: {body}"))
    }
}
