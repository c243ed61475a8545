//! [`PlatformBeans`]: the beans of the Java platform that tools read from every Java server, as far
//! as they apply here: `java.lang:type=` Runtime, OperatingSystem, Memory and Threading.
//!
//! Numbers come from `/proc/self` (proc(5)). The heap is the resident memory of the process; its
//! maximum is the memory of the machine.

use std::fs;
use std::sync::Arc;

use evenkeel_common::clock::Clock;
use evenkeel_metrics::{Record, Source};

/// See the module's documentation.
#[derive(Debug)]
pub struct PlatformBeans {
    clock: Arc<dyn Clock>,
    hostname: String,
    start_ms: i64,
}

impl PlatformBeans {
    /// Creates the beans of a process that starts now.
    pub fn new(clock: Arc<dyn Clock>, hostname: impl Into<String>) -> Self {
        let start_ms = clock.now_ms();
        Self { clock, hostname: hostname.into(), start_ms }
    }

    fn runtime(&self) -> Record {
        let mut bean = Record::platform("java.lang", "type=Runtime", "sun.management.RuntimeImpl");
        bean.tag("Name", format!("{}@{}", std::process::id(), self.hostname));
        bean.tag("VmName", "Evenkeel");
        bean.gauge("Pid", "", u64::from(std::process::id()));
        bean.gauge("StartTime", "", u64::try_from(self.start_ms).unwrap_or(0));
        let uptime_ms = self.clock.now_ms().saturating_sub(self.start_ms);
        bean.gauge("Uptime", "", u64::try_from(uptime_ms).unwrap_or(0));
        bean
    }
}

impl Source for PlatformBeans {
    fn collect(&self, records: &mut Vec<Record>) {
        let status = KilobyteFields::read("/proc/self/status");
        let machine = KilobyteFields::read("/proc/meminfo");
        records.extend([
            self.runtime(),
            operating_system(&status, &machine),
            memory(&status, &machine),
            threading(&status),
        ]);
    }
}

fn operating_system(status: &KilobyteFields, machine: &KilobyteFields) -> Record {
    let class = "com.sun.management.internal.OperatingSystemImpl";
    let mut bean = Record::platform("java.lang", "type=OperatingSystem", class);
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    bean.gauge("OpenFileDescriptorCount", "", open);
    bean.gauge("CommittedVirtualMemorySize", "", status.bytes("VmSize"));
    bean.gauge("ProcessCpuTime", "", cpu_ns());
    bean.gauge("FreePhysicalMemorySize", "", machine.bytes("MemFree"));
    bean.gauge("TotalPhysicalMemorySize", "", machine.bytes("MemTotal"));
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    bean.gauge("AvailableProcessors", "", processors);
    bean.real("SystemLoadAverage", "", load_average());
    bean.tag("Name", "Linux").tag("Arch", std::env::consts::ARCH);
    bean
}

fn memory(status: &KilobyteFields, machine: &KilobyteFields) -> Record {
    let mut bean = Record::platform("java.lang", "type=Memory", "sun.management.MemoryImpl");
    let (resident, total) = (status.bytes("VmRSS"), machine.bytes("MemTotal"));
    let members = [("committed", resident), ("init", 0), ("max", total), ("used", resident)];
    for (member, bytes) in members {
        bean.gauge(format!("HeapMemoryUsage.{member}"), "", bytes);
    }
    for (member, _) in members {
        bean.gauge(format!("NonHeapMemoryUsage.{member}"), "", 0);
    }
    bean
}

fn threading(status: &KilobyteFields) -> Record {
    let class = "com.sun.management.internal.HotSpotThreadImpl";
    let mut bean = Record::platform("java.lang", "type=Threading", class);
    bean.gauge("ThreadCount", "", status.number("Threads"));
    bean
}

/// Returns the resident memory of the process, in bytes.
pub fn resident_bytes() -> u64 {
    KilobyteFields::read("/proc/self/status").bytes("VmRSS")
}

/// The memory of the process in RAM that no file backs, in bytes.
pub fn anonymous_bytes() -> u64 {
    KilobyteFields::read("/proc/self/status").bytes("RssAnon")
}

/// The memory of the machine, in bytes.
pub fn machine_bytes() -> u64 {
    KilobyteFields::read("/proc/meminfo").bytes("MemTotal")
}

/// Returns the CPU time of the process, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(-1.0)
}

/// A file with lines `Name: number kB`. A missing name counts as 0.
struct KilobyteFields(String);

impl KilobyteFields {
    fn read(path: &str) -> Self {
        Self(fs::read_to_string(path).unwrap_or_default())
    }

    fn number(&self, name: &str) -> u64 {
        let of_name =
            |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok();
        self.0.lines().find_map(of_name).unwrap_or(0)
    }

    fn bytes(&self, name: &str) -> u64 {
        self.number(name).saturating_mul(1 << 10)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock::ManualClock;
    use evenkeel_metrics::sink::JmxQuery;

    use super::*;

    #[test]
    fn beans_tell_of_this_process() {
        let clock = ManualClock::at(1_000);
        let beans = PlatformBeans::new(clock.clone(), "h");
        clock.advance_ms(5);
        let mut records = Vec::new();
        beans.collect(&mut records);
        let text = JmxQuery::default().answer(&records, "h");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let bean = |name: &str| {
            let beans = json["beans"].as_array().expect("beans");
            beans
                .iter()
                .find(|bean| bean["name"] == format!("java.lang:type={name}"))
                .expect("a bean")
                .clone()
        };
        assert_eq!(
            (bean("Runtime")["StartTime"].as_u64(), bean("Runtime")["Uptime"].as_u64()),
            (Some(1_000), Some(5))
        );
        assert_eq!(bean("Runtime")["Name"], format!("{}@h", std::process::id()));
        assert!(bean("Memory")["HeapMemoryUsage"]["used"].as_u64() > Some(1 << 20), "{text}");
        assert!(bean("Threading")["ThreadCount"].as_u64() >= Some(1), "{text}");
        assert!(bean("OperatingSystem")["ProcessCpuTime"].as_u64() > Some(0), "{text}");
        assert!(bean("OperatingSystem")["TotalPhysicalMemorySize"].as_u64() > Some(0), "{text}");
    }
}
