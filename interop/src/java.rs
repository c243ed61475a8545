//! One run of a Java program: class path, flags for a short-lived JVM, a deadline, and its output.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::server::shared_classes;
use crate::{toolchain, work};

/// A Java main to run; see [`java`].
pub struct JavaRun {
    class: String,
    args: Vec<String>,
    class_path: Option<String>,
    stdin: Option<PathBuf>,
    label: String,
    deadline: Duration,
    heap_mib: u32,
}

/// The result of a run.
pub struct Finished {
    /// True if it exited within its deadline with code 0.
    pub success: bool,
    /// Its exit code, if it exited within its deadline.
    pub code: Option<i32>,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
    /// A description of its end.
    pub end: String,
}

/// A run of `class` with our class path, to adjust and then start with [`JavaRun::run`].
pub fn java(class: &str, args: &[String]) -> JavaRun {
    JavaRun {
        class: class.to_owned(),
        args: args.to_vec(),
        class_path: None,
        stdin: None,
        label: class.rsplit('.').next().unwrap_or(class).to_owned(),
        deadline: Duration::from_secs(300),
        heap_mib: 512,
    }
}

impl JavaRun {
    /// Sets another class path than the client's.
    pub fn class_path(mut self, class_path: String) -> Self {
        self.class_path = Some(class_path);
        self
    }

    /// Sets a file as standard input, which is empty otherwise.
    pub fn stdin(mut self, file: &Path) -> Self {
        self.stdin = Some(file.to_owned());
        self
    }

    /// Sets the name of the folder under `work/out` for the output.
    pub fn label(mut self, label: &str) -> Self {
        self.label = label.to_owned();
        self
    }

    /// Sets the seconds after which the program is killed.
    pub fn deadline_secs(mut self, secs: u64) -> Self {
        self.deadline = Duration::from_secs(secs);
        self
    }

    /// Maximum heap.
    pub fn heap_mib(mut self, mib: u32) -> Self {
        self.heap_mib = mib;
        self
    }

    /// Runs it to its exit or its deadline.
    ///
    /// # Errors
    /// If it cannot be started. A program that fails is `Ok` with `success` false.
    pub fn run(self) -> Result<Finished, String> {
        let out = out_folder(&self.label).map_err(|e| format!("cannot make the output folder: {e}"))?;
        let (stdout, stderr) = (out.join("stdout"), out.join("stderr"));
        let mut child = self.spawn(&stdout, &stderr)?;
        let (code, end) = wait(&mut child, self.deadline);
        let read = |path: &Path| {
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        Ok(Finished { success: code == Some(0), code, stdout: read(&stdout), stderr: read(&stderr), end })
    }

    fn spawn(&self, stdout: &Path, stderr: &Path) -> Result<Child, String> {
        let (class_path, shared) = match &self.class_path {
            Some(class_path) => (class_path.clone(), Vec::new()),
            None => (toolchain::client_class_path()?, shared_classes::flags()),
        };
        let file =
            |path: &Path| File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()));
        let stdin = match &self.stdin {
            Some(path) => {
                Stdio::from(File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?)
            }
            None => Stdio::null(),
        };
        let mut command = Command::new(toolchain::java_command());
        command.args(toolchain::jvm_flags()).args(shared).arg(format!("-Xmx{}m", self.heap_mib));
        // A client whose class path has the configuration of a stock server logs as that.
        command.arg(format!("-Devenkeel.log.file={}", stdout.with_file_name("log").display()));
        command.args([
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-Dhbase.ruby.sources=",
            "-cp",
            &class_path,
        ]);
        command.arg(&self.class).args(&self.args).stdin(stdin).stdout(file(stdout)?).stderr(file(stderr)?);
        command
            .spawn()
            .map_err(|e| format!("a JDK 17 or later (java) is needed on the path, or in JAVA_HOME: {e}"))
    }
}

impl Finished {
    /// The lines about failures, for a message: failed checks and the lines after them, or else the
    /// end of standard error.
    pub fn failures(&self) -> String {
        let mut failing = false;
        let picked: Vec<&str> = self
            .stdout
            .lines()
            .filter(|line| {
                failing =
                    if line.starts_with("ok ") { false } else { failing || line.starts_with("FAILED ") };
                failing
            })
            .collect();
        if picked.is_empty() {
            return format!("{}\n{}\n{}", self.end, tail(&self.stdout, 30), tail(&self.stderr, 30));
        }
        format!("{}\n{}", picked.join("\n"), self.end)
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn out_folder(label: &str) -> std::io::Result<PathBuf> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = work().join("out").join(format!("{label}.{}.{run}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn wait(child: &mut Child, deadline: Duration) -> (Option<i32>, String) {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return (status.code(), format!("ended after {} s: {status}", start.elapsed().as_secs()));
            }
            Ok(None) if start.elapsed() < deadline => sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return (None, format!("killed after {} s", deadline.as_secs()));
            }
            Err(e) => return (None, format!("cannot be waited for: {e}")),
        }
    }
}
