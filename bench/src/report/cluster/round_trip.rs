//! Round trips to DataNodes, without a server: how long a log's entry takes to be acknowledged.

use std::time::Instant;

use evenkeel_hdfs::{FlushLevel, HdfsClient, HdfsError, LogWriter, NewFile, Settings};
use interop::HdfsCluster;

use super::super::machine::pin_this_process;
use super::super::servers::ReportContext;
use super::DATANODES;

/// About the bytes of a log entry of a Put of 200 bytes.
pub(super) const ENTRY_BYTES: usize = 330;
/// Measured round trips, and those before.
const ROUNDS: [usize; 2] = [2_000, 500];
/// The same in a short run.
const ROUNDS_SHORT: [usize; 2] = [200, 50];
/// The maximum number of logs of one replica that are created until each DataNode has one.
const LOGS_MAX: usize = 60;

/// Medians in microseconds.
pub(super) struct RoundTrips {
    /// The slowest DataNode, when only it is written to.
    pub(super) alone_us: f64,
    /// The last acknowledgement of all DataNodes, each written to by a log of one replica.
    pub(super) slowest_us: f64,
    /// A flush of a log on all DataNodes.
    pub(super) log_us: f64,
}

/// Measures flushes and syncs from the server's core, which must be idle.
///
/// # Errors
/// The first error of HDFS.
pub(super) fn measure(hdfs: &HdfsCluster, context: &ReportContext) -> Result<[RoundTrips; 2], String> {
    let (core, rounds) = (context.plan.server_core, if context.plan.short { ROUNDS_SHORT } else { ROUNDS });
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin_this_process(core)?;
            let client = HdfsClient::new(Settings::of_namenodes([hdfs.address()]));
            let client = client.map_err(|e| e.to_string())?;
            let of = |level| of_level(&client, level, rounds).map_err(|e| format!("round trips: {e}"));
            Ok([of(FlushLevel::Flushed)?, of(FlushLevel::Synced)?])
        });
        measured.join().unwrap_or_else(|_| Err("the measurement of round trips panicked".to_owned()))
    })
}

fn of_level(client: &HdfsClient, level: FlushLevel, rounds: [usize; 2]) -> Result<RoundTrips, HdfsError> {
    let mut each = one_for_each_datanode(client)?;
    let mut alone_us = 0.0_f64;
    for log in &mut each {
        alone_us = alone_us.max(median_us(rounds, || flush_all(std::slice::from_mut(log), level))?);
    }
    let slowest_us = median_us(rounds, || flush_all(&mut each, level))?;
    let mut log = client.create_log("/round-trips/log", file(client, DATANODES as u16))?;
    let log_us = median_us(rounds, || flush_all(std::slice::from_mut(&mut log), level))?;
    each.push(log);
    for log in each {
        log.close(level)?;
    }
    client.namenode().delete("/round-trips", true)?;
    Ok(RoundTrips { alone_us, slowest_us, log_us })
}

fn file(client: &HdfsClient, replication: u16) -> NewFile {
    NewFile { parents: true, overwrite: true, replication, ..client.new_log() }
}

/// Logs of one replica, one on each DataNode; the NameNode chooses it.
fn one_for_each_datanode(client: &HdfsClient) -> Result<Vec<LogWriter>, HdfsError> {
    let mut logs: Vec<LogWriter> = Vec::new();
    for number in 0..LOGS_MAX {
        let log = client.create_log(&format!("/round-trips/{number}"), file(client, 1))?;
        match logs.iter().any(|other| other.datanodes() == log.datanodes()) {
            true => drop(log.close(FlushLevel::Flushed)?),
            false => logs.push(log),
        }
        if logs.len() == DATANODES {
            return Ok(logs);
        }
    }
    Err(std::io::Error::other("not every DataNode got a log").into())
}

/// Sends an entry to each log, then waits for all.
fn flush_all(logs: &mut [LogWriter], level: FlushLevel) -> Result<(), HdfsError> {
    let mut sent = Vec::with_capacity(logs.len());
    for log in &mut *logs {
        log.append(&[b'e'; ENTRY_BYTES])?;
        sent.push(log.start_flush(level)?);
    }
    for (log, flush) in logs.iter_mut().zip(sent) {
        log.wait(flush)?;
    }
    Ok(())
}

fn median_us(
    [measured, before]: [usize; 2],
    mut run: impl FnMut() -> Result<(), HdfsError>,
) -> Result<f64, HdfsError> {
    for _ in 0..before {
        run()?;
    }
    let mut times_us = Vec::with_capacity(measured);
    for _ in 0..measured {
        let start = Instant::now();
        run()?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times_us.sort_by(f64::total_cmp);
    Ok(times_us.get(times_us.len() / 2).copied().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_measured_rounds_count() {
        let mut runs = 0;
        let median = median_us([5, 2], || {
            runs += 1;
            // The two rounds before are slow.
            std::thread::sleep(std::time::Duration::from_millis(if runs <= 2 { 200 } else { 1 }));
            Ok(())
        });
        assert!(median.is_ok_and(|us| (1_000.0..200_000.0).contains(&us)));
        assert_eq!(runs, 7);
        assert!(median_us([1, 0], || Err(std::io::Error::other("x").into())).is_err());
    }
}
