//! The HBase shell, and `evenkeel shell`, through an ordinary day (`shell/day.rb`), compared with what the HBase shell
//! printed over stock HBase.
//!
//! `EVENKEEL_INTEROP_RECORD=1` with `EVENKEEL_INTEROP_TARGET=stock` writes `shell/day.expected` instead of comparing.

use std::fs;
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use interop::{Server, evenkeel_binary, home, java, target, toolchain, work};
use regex::Regex;

/// What differs from run to run, and what stands in its place; applied to each line, in this order.
const VOLATILE: &[(&str, &str)] = &[
    (r"^hbase:\d+:0> ?", "hbase> "),
    (r"timestamp=20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "timestamp=NOW"),
    (r"\(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [^)]+\)", "(NOW)"),
    (r" in table '.*", ""),
    (r",\d{13}\.[0-9a-f]{32}\.", ",ID.MD5."),
    (r"\b[0-9a-f]{32}\b", "MD5"),
    (r"0x[0-9a-f]{6,8}>", "0xADDRESS>"),
    (r"#<HRegionLocation: .*>", "#<Java::OrgApacheHadoopHbase::HRegionLocation:0xADDRESS>"),
    (r"localhost:\d+( \d{13})?", "SERVER"),
    (r"[0-9.]+ average load", "N average load"),
    (r"Aggregate load: \d+, regions: \d+", "Aggregate load: N, regions: N"),
];

fn normal(output: &str) -> String {
    let rules: Vec<(Regex, &str)> = VOLATILE
        .iter()
        .map(|&(pattern, text)| (Regex::new(pattern).expect("a constant pattern"), text))
        .collect();
    let counters = Regex::new(r"=[0-9.]+(,|$)").expect("a constant pattern");
    let mut lines = Vec::new();
    // The banner before the first prompt names the client's build.
    for line in output.lines().skip_while(|line| !line.starts_with("hbase:")) {
        if line.starts_with("Took ") || line.starts_with("\tat ") {
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

/// Both tests make tables of the same names on one server.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn ordinary_day() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = target();
    let conf = server.client_conf().expect("a client configuration");
    let class_path = toolchain::shell_class_path(&conf).unwrap_or_else(|why| panic!("{why}"));
    let run =
        java("org.jruby.JarBootstrapMain", &[]).class_path(class_path).stdin(&home().join("shell/day.rb"));
    let output = run.label("shell").deadline_secs(400).run().unwrap_or_else(|why| panic!("{why}"));
    let got = normal(&output.stdout);
    let file = home().join("shell/day.expected");
    if std::env::var_os("EVENKEEL_INTEROP_RECORD").is_some() {
        return fs::write(&file, got).expect("the recording is written");
    }
    assert!(output.success, "the shell {}\n{}", output.end, output.stderr);
    compare(server, "the shell", &got);
}

#[test]
fn ordinary_day_of_evenkeel_shell() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = target();
    let binary = evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let script = fs::File::open(home().join("shell/day.rb")).expect("shell/day.rb is checked in");
    let settings = server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}"));
    let mut command = Command::new(binary);
    command.arg("shell").args(settings).stdin(Stdio::from(script)).env("TZ", "UTC");
    let output = command.output().expect("evenkeel shell runs");
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    compare(server, "evenkeel shell", &normal(&String::from_utf8_lossy(&output.stdout)));
}

/// Compares what a shell printed with the recording.
fn compare(server: &Server, shell: &str, got: &str) {
    let file = home().join("shell/day.expected");
    let want = fs::read_to_string(&file).expect("shell/day.expected is checked in");
    if got != want {
        let seen = work().join(format!("day.{}.got", process::id()));
        fs::write(&seen, got).expect("what was seen is written");
        let diff = Command::new("diff").arg("-u").arg(&file).arg(&seen).output().expect("diff runs");
        panic!("{shell} over {} differs:\n{}", server.name(), String::from_utf8_lossy(&diff.stdout));
    }
}
