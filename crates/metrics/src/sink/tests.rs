//! Sinks with hand-made records.

mod grammar;
mod jmx;
mod periodic;
mod prometheus;
mod slow_requests;

use crate::record::{Ranges, Record};
use crate::{Histogram, Interval};

/// Two records of metrics2 and one bean of the platform.
fn records() -> Vec<Record> {
    let mut server = Record::new("Server", "regionserver", "name=RegionServer,sub=Server");
    server.tag("zookeeperQuorum", "a:2181").tag("serverName", "h,16020,1");
    server.gauge("regionCount", "Number of regions", 3);
    server.counter("totalRequestCount", "Requests in all", 7);
    server.real("percentFilesLocal", "", 99.5).real("l1CacheHitRatio", "", f64::NAN);
    server.counter("GcCountG1 Young Generation", "", 1);
    let histogram = Histogram::default();
    histogram.record(crate::histogram::TIME_UNITS_PER_MS * 2);
    server.histogram("get", "Time of a Get", Ranges::Time, &interval(&histogram));
    let mut ipc = Record::new("RegionServer", "regionserver", "name=RegionServer,sub=IPC");
    ipc.gauge("queueSize", "Bytes", 0).counter("exceptions.otherExceptions", "", 2);
    let mut memory = Record::platform("java.lang", "type=Memory", "sun.management.MemoryImpl");
    memory.gauge("Verbose", "", 0);
    memory.gauge("HeapMemoryUsage.committed", "", 1).gauge("HeapMemoryUsage.used", "", 2);
    vec![server, ipc, memory]
}

fn interval(of: &Histogram) -> Interval {
    of.interval()
}
