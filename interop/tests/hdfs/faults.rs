//! Servers that are killed, frozen and restarted.

use std::time::{Duration, Instant};

use evenkeel_hdfs::{FlushLevel, HdfsClient, LogWriter, Settings};

use crate::{Turn, bytes, log, read_all};

/// The index of the first DataNode of a log.
fn datanode_of(turn: &mut Turn, writer: &LogWriter) -> usize {
    let address = writer.datanodes().remove(0);
    let port = address.rsplit_once(':').expect("a port").1.parse().expect("a port");
    turn.cluster().datanode_at(port).expect("one of ours")
}

/// Writes entries to logs and rolls when a log breaks, as a server does. Returns the acknowledged
/// bytes per log, and the longest time from a failure to the next acknowledged entry.
struct Roller {
    client: HdfsClient,
    directory: &'static str,
    writer: LogWriter,
    /// Path, acknowledged length and written bytes of each log.
    logs: Vec<(String, u64, Vec<u8>)>,
    stall: Duration,
}

impl Roller {
    fn start(client: HdfsClient, directory: &'static str) -> Self {
        let path = format!("{directory}/log-0");
        let writer = log(&client, &path);
        Self { client, directory, writer, logs: vec![(path, 0, Vec::new())], stall: Duration::ZERO }
    }

    fn write(&mut self, entry: &[u8]) {
        let start = Instant::now();
        while let Err(e) = self.try_write(entry) {
            assert!(start.elapsed() < Duration::from_secs(60), "no log takes the entry: {e}");
            let path = format!("{}/log-{}", self.directory, self.logs.len());
            self.writer = log(&self.client, &path);
            self.logs.push((path, 0, Vec::new()));
        }
        self.stall = self.stall.max(start.elapsed());
    }

    fn try_write(&mut self, entry: &[u8]) -> std::io::Result<()> {
        let (_, acked, written) = self.logs.last_mut().expect("a log");
        self.writer.append(entry)?;
        written.extend_from_slice(entry);
        self.writer.flush(FlushLevel::Flushed)?;
        *acked = written.len() as u64;
        Ok(())
    }

    /// Closes the last log, waits for the recovery of the others, and compares all logs.
    fn finish(self) {
        self.writer.close(FlushLevel::Flushed).expect("closed");
        let deadline = Instant::now() + Duration::from_secs(150);
        for (path, acked, written) in &self.logs {
            self.client.recover(path, deadline, &|| true).expect("recovered");
            let there = read_all(&self.client, path);
            assert!(there.len() as u64 >= *acked, "{path}: {} of {acked} acknowledged bytes", there.len());
            assert!(written.starts_with(&there), "{path}: bytes that were not written");
        }
    }
}

#[test]
fn a_killed_datanode_costs_one_roll() {
    let mut turn = Turn::take();
    let mut roller = Roller::start(turn.client(), "/kill");
    (0..50).for_each(|i| roller.write(&bytes(i, 1000)));
    let calm = std::mem::take(&mut roller.stall);
    let victim = datanode_of(&mut turn, &roller.writer);
    turn.cluster().kill_datanode(victim);
    (0..50).for_each(|i| roller.write(&bytes(i, 1000)));
    println!("the slowest write took {calm:?} before the death of a DataNode, {:?} with it", roller.stall);
    assert_eq!(roller.logs.len(), 2, "one roll");
    assert_eq!(roller.writer.replicas(), 2, "the dead one is avoided though the NameNode offers it");
    assert!(roller.stall < Duration::from_secs(10), "{:?}", roller.stall);
    turn.cluster().start_datanode(victim).expect("started");
    roller.finish();
}

#[test]
fn a_frozen_datanode_breaks_the_log_at_its_deadline() {
    let mut turn = Turn::take();
    let settings = Settings { ack_timeout: Duration::from_secs(3), ..turn.settings() };
    let mut roller = Roller::start(HdfsClient::new(settings).expect("threads"), "/freeze");
    roller.write(b"before");
    let victim = datanode_of(&mut turn, &roller.writer);
    turn.cluster().freeze_datanode(victim, true);
    roller.write(b"while it is frozen");
    let stall = roller.stall;
    turn.cluster().freeze_datanode(victim, false);
    assert!(stall >= Duration::from_secs(3) && stall < Duration::from_secs(25), "{stall:?}");
    roller.write(b"after");
    roller.finish();
}

/// Long before the deadline, and no acknowledged byte is lost when it continues.
#[test]
fn a_log_leaves_a_frozen_datanode_that_all_others_are_ahead_of() {
    let mut turn = Turn::take();
    let settings = Settings { stall_timeout: Some(Duration::from_secs(1)), ..turn.settings() };
    let mut roller = Roller::start(HdfsClient::new(settings).expect("threads"), "/stall");
    roller.write(b"before");
    assert!(!roller.writer.has_few_replicas());
    let victim = datanode_of(&mut turn, &roller.writer);
    turn.cluster().freeze_datanode(victim, true);
    (0..50).for_each(|i| roller.write(&bytes(i, 1000)));
    println!("the slowest write took {:?} while a DataNode was frozen", roller.stall);
    assert!(roller.stall < Duration::from_secs(30), "{:?}", roller.stall);
    assert_eq!((roller.logs.len(), roller.writer.replicas()), (2, 2), "one roll");
    turn.cluster().freeze_datanode(victim, false);
    roller.write(b"after");
    roller.finish();
}

#[test]
fn readers_continue_when_a_datanode_dies() {
    let mut turn = Turn::take();
    let client = turn.client();
    let mut writer = log(&client, "/readers/f");
    let victim = datanode_of(&mut turn, &writer);
    let written = bytes(0, 300_000);
    writer.append(&written).expect("appended");
    writer.close(FlushLevel::Flushed).expect("closed");
    let reader = client.open("/readers/f").expect("opened");
    turn.cluster().kill_datanode(victim);
    let mut buf = vec![0; written.len()];
    for _ in 0..3 {
        buf.fill(0);
        assert_eq!(reader.read_at(0, &mut buf).expect("from another"), written.len());
        assert!(buf == written);
    }
}

#[test]
fn an_absent_namenode_does_not_block_flushes() {
    let mut turn = Turn::take();
    let settings = Settings { call_timeout: Duration::from_secs(5), ..turn.settings() };
    let client = HdfsClient::new(settings).expect("threads");
    let mut writer = log(&client, "/namenode/a");
    turn.cluster().kill_namenode(0);
    writer.append(b"while it is away").expect("appended");
    writer.flush(FlushLevel::Synced).expect("no call of the NameNode is needed");
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || writer.close(FlushLevel::Flushed));
        turn.cluster().start_namenode(0).expect("started");
        assert_eq!(closing.join().expect("no panic").expect("closed when it is back"), 16);
    });
    assert_eq!(read_all(&client, "/namenode/a"), b"while it is away");
}
