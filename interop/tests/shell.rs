//! The HBase shell and `evenkeel shell` run the same scripts (`shell/NAME.rb`) over one server. The
//! output of each is compared with that of the HBase shell over stock HBase
//! (`shell/NAME.expected`).
//!
//! | script | content |
//! |---|---|
//! | `day` | typical daily commands |
//! | `everything` | every command that works on one server, and the errors of wrong calls |
//! | `quotas` | the commands of quotas, on a server that has them |
//! | `failing` | with `-n`: the first error ends the shell, with its exit status |
//!
//! `EVENKEEL_INTEROP_RECORD=1` with `EVENKEEL_INTEROP_TARGET=stock` writes the recordings instead
//! of comparing.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use interop::{Server, evenkeel_binary, home, java, target, target_with, toolchain, work};
use regex::Regex;

/// Volatile parts of the output and their replacements, applied to each line in this order.
const VOLATILE: &[(&str, &str)] = &[
    (r"^hbase:\d+:0> ?", "hbase> "),
    (r"timestamp=20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "timestamp=NOW"),
    (r"\(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [^)]+\)", "(NOW)"),
    // `list_snapshots` of 2.6 prints this, but the Ruby of the published shell does not
    // (README.md).
    (r"^SNAPSHOT  TABLE \+ CREATION TIME \+ TTL\(Sec\)$", "SNAPSHOT  TABLE + CREATION TIME"),
    (r"\(NOW\) (FOREVER|86400)$", "(NOW)"),
    (r" in table '.*", ""),
    (r",\d{13}\.[0-9a-f]{32}\.", ",ID.MD5."),
    (r"\b[0-9a-f]{32}\b", "MD5"),
    (r"0x[0-9a-f]+>", "0xADDRESS>"),
    (r"#<HRegionLocation: .*>", "#<Java::OrgApacheHadoopHbase::HRegionLocation:0xADDRESS>"),
    (r"localhost[:,]\d+([ ,]\d{13})?", "SERVER"),
    (r"#<HBaseReceiver:0xADDRESS>", "HBaseReceiver"),
    (r"#<Class:(0xADDRESS|[\w:]+)>", "#<Class>"),
    (r"maxCacheSize=\d+", "maxCacheSize=N"),
    (r"[0-9.]+ average load", "N average load"),
    (r"Aggregate load: \d+, regions: \d+", "Aggregate load: N, regions: N"),
];

fn normal(output: &str) -> String {
    let compiled = |pattern: &str| Regex::new(pattern).expect("a constant pattern");
    let rules: Vec<(Regex, &str)> =
        VOLATILE.iter().map(|&(pattern, text)| (compiled(pattern), text)).collect();
    let (counters, took) = (compiled(r"=[0-9.]+(,|$)"), compiled(r"^Took [0-9.]+ seconds"));
    let mut lines = Vec::new();
    // The banner before the first prompt names the client's build.
    for line in output.lines().skip_while(|line| !line.starts_with("hbase:")) {
        // The stock shell ends this line only after commands that are not called on a reference to
        // a table.
        let line = match took.find(line) {
            Some(time) if time.end() == line.trim_end().len() => continue,
            Some(time) => &line[time.end()..],
            None => line,
        };
        if line.starts_with("\tat ") {
            continue;
        }
        let mut line = rules
            .iter()
            .fold(line.to_owned(), |line, (rule, text)| rule.replace_all(&line, *text).into_owned());
        if line.trim_start().starts_with("requestsPerSecond=") {
            line = counters.replace_all(&line, "=N$1").into_owned();
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n") + "\n"
}

/// All tests use the tables of one server and list all of them, so they run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The mode in which a shell is started.
#[derive(Clone, Copy)]
enum Mode {
    /// Lines from a pipe; an error is printed and the next line runs.
    Pipe,
    /// The script's name after `-n`; the first error ends the shell.
    NonInteractive,
}

/// The result of a shell run: its filtered output, and, with `-n`, its exit status.
struct ShellRun {
    text: String,
    stderr: String,
}

/// Runs `shell/NAME.rb` through the HBase shell.
fn stock_shell(server: &Server, name: &str, mode: Mode) -> ShellRun {
    let conf = server.client_conf().expect("a client configuration");
    let class_path = toolchain::shell_class_path(&conf).unwrap_or_else(|why| panic!("{why}"));
    let main = "org.jruby.JarBootstrapMain";
    let run = match mode {
        Mode::Pipe => java(main, &[]).stdin(&script(name)),
        Mode::NonInteractive => java(main, &["-n".to_owned(), script(name).display().to_string()]),
    };
    let output = run.class_path(class_path).label(&format!("shell-{name}")).deadline_secs(400).run();
    let output = output.unwrap_or_else(|why| panic!("{why}"));
    ran(mode, &output.stdout, output.stderr, output.code)
}

/// Runs `shell/NAME.rb` through `evenkeel shell`.
fn evenkeel_shell(server: &Server, name: &str, mode: Mode) -> ShellRun {
    let binary = evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let settings = server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}"));
    let mut command = Command::new(binary);
    command.arg("shell").args(settings).env("TZ", "UTC");
    match mode {
        Mode::Pipe => {
            command.stdin(Stdio::from(fs::File::open(script(name)).expect("the script is checked in")))
        }
        Mode::NonInteractive => command.arg("-n").arg(script(name)).stdin(Stdio::null()),
    };
    let output = command.output().expect("evenkeel shell runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ran(mode, &String::from_utf8_lossy(&output.stdout), stderr, output.status.code())
}

fn ran(mode: Mode, stdout: &str, stderr: String, status: Option<i32>) -> ShellRun {
    match mode {
        Mode::Pipe => {
            assert_eq!(status, Some(0), "the exit status; standard error:\n{stderr}");
            ShellRun { text: normal(stdout), stderr }
        }
        Mode::NonInteractive => {
            let status = status.map_or("none".to_owned(), |status| status.to_string());
            ShellRun { text: format!("{}exit status {status}\n", normal(stdout)), stderr }
        }
    }
}

fn script(name: &str) -> PathBuf {
    home().join("shell").join(format!("{name}.rb"))
}

/// Runs a script through both shells. Compares each output with the recording of the HBase shell
/// over stock HBase, or records it.
fn both_shells(name: &str, mode: Mode) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    both_shells_on(target(), name, mode);
}

/// As [`both_shells`], over a given server.
fn both_shells_on(server: &Server, name: &str, mode: Mode) {
    let stock = stock_shell(server, name, mode);
    if std::env::var_os("EVENKEEL_INTEROP_RECORD").is_some() {
        return fs::write(expected(name), stock.text).expect("the recording is written");
    }
    compare(server, "the HBase shell", name, &stock);
    compare(server, "evenkeel shell", name, &evenkeel_shell(server, name, mode));
}

#[test]
fn ordinary_day() {
    both_shells("day", Mode::Pipe);
}

#[test]
fn every_command() {
    both_shells("everything", Mode::Pipe);
}

#[test]
fn commands_of_quotas() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    both_shells_on(&target_with(&[("hbase.quota.enabled", "true")]), "quotas", Mode::Pipe);
}

#[test]
fn an_error_ends_a_noninteractive_shell() {
    both_shells("failing", Mode::NonInteractive);
}

fn expected(name: &str) -> PathBuf {
    home().join("shell").join(format!("{name}.expected"))
}

/// Compares the output of a shell with the recording.
fn compare(server: &Server, shell: &str, name: &str, got: &ShellRun) {
    let file = expected(name);
    let want = fs::read_to_string(&file).expect("the recording is checked in");
    if got.text != want {
        let seen = work().join(format!("{name}.{}.got", process::id()));
        fs::write(&seen, &got.text).expect("what was seen is written");
        let diff = Command::new("diff").arg("-u").arg(&file).arg(&seen).output().expect("diff runs");
        let diff = String::from_utf8_lossy(&diff.stdout).into_owned();
        panic!("{shell} over {} differs:\n{diff}\nstandard error:\n{}", server.name(), got.stderr);
    }
}
