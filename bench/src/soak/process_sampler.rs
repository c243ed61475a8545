//! Memory, descriptors and threads of the server, sampled each second, as a table and plots.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_pe::report::plot::{Plot, Scale, Series};

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    at_s: f64,
    /// Resident mebibytes.
    pub resident_mib: f64,
    /// Open descriptors.
    pub descriptors: f64,
    threads: f64,
}

/// A thread that samples a process, whose id changes as it is killed and started.
pub struct ProcessSampler {
    pid: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessSampler {
    /// Starts the thread, without a process.
    pub fn start() -> Self {
        let (pid, over, samples) =
            (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default(), Arc::default());
        let (seen, ended, kept) = (pid.clone(), over.clone(), Arc::<Mutex<Vec<Sample>>>::clone(&samples));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                let sample = of_process(seen.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
                if let (Some(sample), Ok(mut kept)) = (sample, kept.lock()) {
                    kept.push(sample);
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self { pid, over, samples, thread: Some(thread) }
    }

    /// Samples this process from this call on.
    pub fn follow(&self, pid: Option<u32>) {
        self.pid.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// The largest figures so far.
    pub fn most(&self) -> Option<Sample> {
        let samples = self.samples.lock().ok()?;
        samples.iter().copied().reduce(|a, b| Sample {
            at_s: a.at_s.max(b.at_s),
            resident_mib: a.resident_mib.max(b.resident_mib),
            descriptors: a.descriptors.max(b.descriptors),
            threads: a.threads.max(b.threads),
        })
    }

    /// Writes `process.csv`, `memory.svg` and `descriptors.svg`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, out: &Path) -> std::io::Result<()> {
        let samples = self.samples.lock().map(|samples| samples.clone()).unwrap_or_default();
        let mut csv = String::from("at_s,resident_mib,descriptors,threads\n");
        for s in &samples {
            let _ = writeln!(csv, "{:.0},{:.1},{},{}", s.at_s, s.resident_mib, s.descriptors, s.threads);
        }
        fs::write(out.join("process.csv"), csv)?;
        let line = |name: &str, value: fn(&Sample) -> f64| Series {
            name: name.to_owned(),
            points: samples.iter().map(|s| (s.at_s / 60.0, value(s))).collect(),
        };
        let plot = |title: &str, y: &str, series| Plot {
            title: title.to_owned(),
            x: ("minutes".to_owned(), Scale::Linear),
            y: (y.to_owned(), Scale::Linear),
            series,
        };
        let memory = plot("Resident memory of the server", "MiB", vec![line("resident", |s| s.resident_mib)]);
        let handles = vec![line("descriptors", |s| s.descriptors), line("threads", |s| s.threads)];
        let handles = plot("Descriptors and threads of the server", "count", handles);
        fs::write(out.join("memory.svg"), memory.svg())?;
        fs::write(out.join("descriptors.svg"), handles.svg())
    }
}

impl Drop for ProcessSampler {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn of_process(pid: u32, at_s: f64) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64;
    Some(Sample { at_s, resident_mib: number("VmRSS:")? / 1024.0, descriptors, threads: number("Threads:")? })
}
