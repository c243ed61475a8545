//! The time from `kill -9` to the first row read: loads rows that stay in the log, kills the
//! server, starts it and reads.
//!
//! `cargo build --release && cargo run --release -p evenkeel-bench --bin restart --
//! target/release/evenkeel [MIB]`
//!
//! Prints, for an empty log and for one of MIB mebibytes, the milliseconds from the kill to the
//! first answered Get, and the replay's MB/s: bytes of log over the difference of the two times.

#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VALUE_BYTES: usize = 1000;
const BATCH: usize = 500;
/// The timeout for a server's first reply.
const TIMEOUT: Duration = Duration::from_secs(120);

struct Server {
    binary: PathBuf,
    root: PathBuf,
    ports: [u16; 3],
    process: Option<Child>,
}

impl Server {
    fn start(&mut self) -> Outcome<()> {
        let [zookeeper, master, regionserver] = self.ports;
        let mut command = Command::new(&self.binary);
        command.arg(format!("-Dhbase.rootdir={}", self.root.display()));
        command.arg(format!("-Dhbase.zookeeper.property.clientPort={zookeeper}"));
        command.arg(format!("-Dhbase.master.port={master}"));
        command.arg(format!("-Dhbase.regionserver.port={regionserver}"));
        command.args(["-Dhbase.hregion.memstore.flush.size=8589934592", "-Devenkeel.memory.size=12g"]);
        command.arg("-Dhbase.regionserver.maxlogs=1000");
        self.process = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        Ok(())
    }

    fn kill(&mut self) -> Outcome<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    async fn connect(&self) -> Outcome<Connection> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let config = ClientConfig::new([format!("127.0.0.1:{}", self.ports[1])]);
            match Connection::connect(config).await {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > until => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

fn free_ports() -> Outcome<[u16; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:010}").into_bytes()
}

async fn fill(table: &Table, rows: usize) -> Outcome<()> {
    for start in (0..rows).step_by(BATCH) {
        let put = |n: usize| Put::new(row(n)).column("f", "q", vec![n as u8; VALUE_BYTES]);
        table.put_all((start..(start + BATCH).min(rows)).map(put)).await?;
    }
    Ok(())
}

fn log_bytes(dir: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes +=
            if entry.file_type()?.is_dir() { log_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Kills the server, starts it, and returns the time until a row can be read.
async fn outage(server: &mut Server, table: &TableName) -> Outcome<Duration> {
    let killed = Instant::now();
    server.kill()?;
    server.start()?;
    let connection = server.connect().await?;
    let found = connection.table(table.clone()).get(Get::new(row(0))).await?;
    let outage = killed.elapsed();
    if found.is_empty() { Err("the first row is gone".into()) } else { Ok(outage) }
}

async fn measure(binary: PathBuf, mib: usize) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let mut server =
        Server { binary, root: folder.path().join("hbase"), ports: free_ports()?, process: None };
    server.start()?;
    let name: TableName = "restart".parse()?;
    let connection = server.connect().await?;
    let table = TableDescriptor::new(name.clone()).with_family(ColumnFamilyDescriptor::new(b"f")?);
    connection.admin().create_table(&table, &[]).await?;
    fill(&connection.table(name.clone()), 1).await?;
    let empty = outage(&mut server, &name).await?;
    fill(&server.connect().await?.table(name.clone()), mib * 1024).await?;
    let bytes = log_bytes(&server.root.join("WALs"))?;
    let loaded = outage(&mut server, &name).await?;
    let replay = loaded.saturating_sub(empty).as_secs_f64();
    println!("kill -9 to first row, nothing to replay: {} ms", empty.as_millis());
    println!("kill -9 to first row, {} MB of log: {} ms", bytes / 1_000_000, loaded.as_millis());
    println!("replay: {:.0} MB/s", bytes as f64 / 1e6 / replay);
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(binary), mib) = (args.next(), args.next().map_or(Ok(256), |mib| mib.parse())) else {
        eprintln!("usage: restart EVENKEEL_BINARY [MIB]");
        return ExitCode::FAILURE;
    };
    let Ok(mib) = mib else {
        eprintln!("restart: MIB is a number");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(Into::into).and_then(|r| r.block_on(measure(binary.into(), mib)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("restart: {error}");
            ExitCode::FAILURE
        }
    }
}
