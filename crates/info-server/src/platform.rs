//! [`PlatformBeans`]: the beans of the Java platform that tools read from every Java server, as far
//! as they apply here: `java.lang:type=` Runtime, OperatingSystem, Memory and Threading.
//!
//! Numbers come from `/proc/self` (proc(5)). The heap is the resident memory of the process; its
//! maximum is the memory of the machine. CPU loads are of the time since the last reading, as the
//! JVM's are.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use evenkeel_common::clock::{self, Clock};
use evenkeel_metrics::{Record, Source};

/// See the module's documentation.
#[derive(Debug)]
pub struct PlatformBeans {
    clock: Arc<dyn Clock>,
    hostname: String,
    start_ms: i64,
    cpu: Mutex<CpuSample>,
}

impl PlatformBeans {
    /// Creates the beans of a process that starts now.
    pub fn new(clock: Arc<dyn Clock>, hostname: impl Into<String>) -> Self {
        let start_ms = clock.now_ms();
        let cpu = Mutex::new(CpuSample::now());
        Self { clock, hostname: hostname.into(), start_ms, cpu }
    }

    /// The CPU load of the process and of the machine since the last call.
    fn cpu_loads(&self) -> (f64, f64) {
        let now = CpuSample::now();
        let mut last = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let loads = now.loads_since(&last);
        *last = now;
        loads
    }

    fn runtime(&self) -> Record {
        let mut bean = Record::platform("java.lang", "type=Runtime", "sun.management.RuntimeImpl");
        bean.tag("Name", format!("{}@{}", std::process::id(), self.hostname));
        bean.tag("VmName", "Evenkeel").tag("VmVersion", env!("CARGO_PKG_VERSION"));
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
            operating_system(&status, &machine, self.cpu_loads()),
            memory(&status, &machine),
            threading(&status),
        ]);
    }
}

fn operating_system(
    status: &KilobyteFields,
    machine: &KilobyteFields,
    (process_load, machine_load): (f64, f64),
) -> Record {
    let class = "com.sun.management.internal.OperatingSystemImpl";
    let mut bean = Record::platform("java.lang", "type=OperatingSystem", class);
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    bean.gauge("OpenFileDescriptorCount", "", open);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    bean.gauge("MaxFileDescriptorCount", "", limit.unwrap_or(u64::MAX));
    bean.gauge("CommittedVirtualMemorySize", "", status.bytes("VmSize"));
    bean.gauge("ProcessCpuTime", "", cpu_ns());
    for (name, field) in [
        ("FreePhysicalMemorySize", "MemFree"),
        ("FreeMemorySize", "MemFree"),
        ("TotalPhysicalMemorySize", "MemTotal"),
        ("TotalMemorySize", "MemTotal"),
        ("FreeSwapSpaceSize", "SwapFree"),
        ("TotalSwapSpaceSize", "SwapTotal"),
    ] {
        bean.gauge(name, "", machine.bytes(field));
    }
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    bean.gauge("AvailableProcessors", "", processors);
    bean.real("SystemLoadAverage", "", load_average());
    bean.real("ProcessCpuLoad", "", process_load);
    bean.real("SystemCpuLoad", "", machine_load).real("CpuLoad", "", machine_load);
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    bean.tag("Name", "Linux").tag("Arch", std::env::consts::ARCH).tag("Version", version.trim());
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
#[allow(clippy::disallowed_methods, reason = "CPU time, which no test sets")]
pub fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What CPUs did up to a moment.
#[derive(Debug)]
struct CpuSample {
    at: Instant,
    process_ns: u64,
    /// Clock ticks of all CPUs in which one was busy, and all of them.
    busy: u64,
    all: u64,
}

impl CpuSample {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (busy, all) = text.lines().next().map_or((0, 0), ticks);
        Self { at: clock::monotonic(), process_ns: cpu_ns(), busy, all }
    }

    /// The parts of all CPUs' time that the process and the machine used since then, 0 to 1.
    fn loads_since(&self, before: &Self) -> (f64, f64) {
        let part = |used: u64, of: f64| if of > 0.0 { (used as f64 / of).min(1.0) } else { 0.0 };
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let elapsed_ns = (self.at - before.at).as_nanos() as f64 * processors as f64;
        let process = part(self.process_ns.saturating_sub(before.process_ns), elapsed_ns);
        let all = self.all.saturating_sub(before.all) as f64;
        (process, part(self.busy.saturating_sub(before.busy), all))
    }
}

/// Returns the busy ticks and all ticks of the line of all CPUs. The fourth and fifth number are
/// idle; the ninth and the tenth, of guests, are contained in the first two.
fn ticks(line: &str) -> (u64, u64) {
    let numbers = line.split_whitespace().skip(1).take(8).map(|number| number.parse().unwrap_or(0));
    let counted =
        numbers.enumerate().map(|(at, ticks)| (if (3..5).contains(&at) { 0 } else { ticks }, ticks));
    counted.fold((0, 0), |(busy, all): (u64, u64), (used, ticks)| (busy + used, all + ticks))
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
    fn platform_beans_describe_this_process() {
        let clock = ManualClock::at(1_000);
        let beans = PlatformBeans::new(clock.clone(), "h");
        clock.advance_ms(5);
        let mut records = Vec::new();
        beans.collect(&mut records);
        let text = JmxQuery::default().answer(records, "h").collect::<String>();
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
        assert!(bean("OperatingSystem")["MaxFileDescriptorCount"].as_u64() > Some(8), "{text}");
        let load = bean("OperatingSystem")["ProcessCpuLoad"].as_f64();
        assert!(load.is_some_and(|load| (0.0..=1.0).contains(&load)), "{text}");
    }

    #[test]
    fn cpu_loads_are_fractions_between_two_samples() {
        assert_eq!(ticks("cpu  10 1 9 70 10 0 0 0 5 5"), (20, 100));
        let before = CpuSample { at: clock::monotonic(), process_ns: 5, busy: 20, all: 100 };
        let later = CpuSample { at: before.at, process_ns: 5, busy: 70, all: 300 };
        assert_eq!(later.loads_since(&before), (0.0, 0.25));
    }
}
