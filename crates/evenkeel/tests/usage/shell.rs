//! `evenkeel shell` as a process: statements, scripts, pipes, exit statuses, and a session at a
//! pseudo-terminal.
//!
//! The terminal is that of `script` (util-linux); the test answers the query for the cursor
//! position.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::Server;

/// The time limit of one answer.
const TIMEOUT: Duration = Duration::from_secs(60);

fn shell(settings: &[String], args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("shell").args(settings).args(args).env_remove("HBASE_CONF_DIR");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the shell starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the shell reads");
    child.wait_with_output().expect("the shell ends")
}

fn settings(server: &Server) -> Vec<String> {
    vec![format!("-Dhbase.masters={}", server.bootstrap())]
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn statements_scripts_and_their_statuses() {
    let server = Server::started(&[]);
    let settings = settings(&server);
    let made =
        "create 't', 'f'; (1..3).each { |i| put 't', \"r#{i}\", 'f:q', i.to_s, i }; scan 't', LIMIT => 2";
    let output = shell(&settings, &["-e", made], "");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains(" r2 column=f:q, timestamp=1970-01-01T"), "{}", text(&output));
    assert!(text(&output).contains("2 row(s)") && !text(&output).contains("hbase:"), "{}", text(&output));

    let script = "get 'none', 'r'\nputs 'went on'\nexit 7\n";
    let output = shell(&settings, &[], script);
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output).contains("ERROR: Unknown table none!") && text(&output).contains("went on\n"));
    let output = shell(&settings, &["-n"], script);
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output).contains("went on\n"), "{}", text(&output));

    let file = server.folder().join("script.rb");
    std::fs::write(&file, "t = get_table 't'\nt.count\n").expect("a script");
    let output = shell(&settings, &["-n", &file.display().to_string()], "");
    assert!(output.status.success() && text(&output).contains("=> 3"), "{}", text(&output));
    let output = shell(&settings, &["-n", "/no/such/script"], "");
    assert_eq!(output.status.code(), Some(2));

    let output = shell(&settings, &[], "disable_all 't'\ny\nis_disabled 't'\ndrop_all 't'\nno\nexists 't'\n");
    assert!(text(&output).contains("1 tables successfully disabled"), "{}", text(&output));
    assert!(text(&output).contains("Table t does exist"), "{}", text(&output));
}

#[test]
fn a_missing_cluster_is_reported_within_the_timeout() {
    let nowhere = ["-Dhbase.masters=127.0.0.1:1".to_owned(), "-Dhbase.client.retries.number=2".to_owned()];
    let began = Instant::now();
    let output = shell(&nowhere, &["-e", "puts 'here'; list"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("here\n") && text(&output).contains("Cannot reach the cluster"),
        "{}",
        text(&output)
    );
    assert!(began.elapsed() < TIMEOUT);
}

/// A shell at a terminal.
struct Terminal {
    child: Child,
    input: ChildStdin,
    output: Receiver<u8>,
    seen: Vec<u8>,
}

impl Terminal {
    fn open(server: &Server) -> Self {
        let history = server.folder().join("history");
        let run = format!("exec {} shell {}", env!("CARGO_BIN_EXE_evenkeel"), settings(server).join(" "));
        let mut command = Command::new("script");
        command
            .args(["-qfec", &run, "/dev/null"])
            .env("TERM", "xterm")
            .env("EVENKEEL_SHELL_HISTORY", history);
        command.env_remove("HBASE_CONF_DIR").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("script (util-linux) starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut byte = [0];
            while stdout.read_exact(&mut byte).is_ok() && sender.send(byte[0]).is_ok() {}
        });
        let input = child.stdin.take().expect("a pipe");
        Self { child, input, output, seen: Vec::new() }
    }

    fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).and_then(|()| self.input.flush()).expect("the terminal reads");
    }

    /// Waits until the screen shows this text after the text that was found before.
    fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + TIMEOUT;
        while !self.seen.windows(text.len()).any(|window| window == text.as_bytes()) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(byte) = self.output.recv_timeout(left) else {
                panic!("no {text:?} in {:?}", String::from_utf8_lossy(&self.seen));
            };
            self.seen.push(byte);
            if self.seen.ends_with(b"\x1b[6n") {
                self.press("\x1b[1;1R");
            }
        }
        self.seen.clear();
    }
}

#[test]
fn a_session_at_a_terminal() {
    let server = Server::started(&[]);
    let mut terminal = Terminal::open(&server);
    terminal.wait_for("hbase:001:0> ");
    terminal.press("create 'trail', 'day'\r");
    terminal.wait_for("Created table trail");
    terminal.wait_for("hbase:002:0> ");
    // Continues in a second line.
    terminal.press("put 'trail', 'r',\r");
    terminal.wait_for("...");
    terminal.press("'day:q', 'v', 1\r");
    terminal.wait_for("Took");
    terminal.wait_for("hbase:004:0> ");
    // Tab completes an unambiguous prefix.
    terminal.press("list_liv\t\r");
    terminal.wait_for("1 row(s)");
    terminal.wait_for("hbase:005:0> ");
    // Ctrl-C ends the command and not the shell.
    terminal.press("puts 'z' * 30; sleep 1000\r");
    terminal.wait_for(&"z".repeat(30));
    terminal.press("\x03");
    terminal.wait_for("Interrupted");
    terminal.wait_for("hbase:006:0> ");
    terminal.press("scan 'none'\r");
    terminal.wait_for("ERROR: Unknown table none!");
    terminal.wait_for("hbase:007:0> ");
    terminal.press("exit 5\r");
    let status = terminal.child.wait().expect("the session ends");
    assert_eq!(status.code(), Some(5));
    let history = std::fs::read_to_string(server.folder().join("history")).expect("a history");
    assert!(history.contains("create 'trail', 'day'"), "{history}");
}
