//! Stock's side of the commands: a JVM that reads them from its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use interop::toolchain;

use super::{Cost, Implementation, Outcome};

/// The JVM; it ends with its standard input.
pub(super) struct Stock {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// The default garbage collector, and the heap of a server of this size.
const HEAP: &str = "-Xmx3g";

impl Stock {
    pub fn start() -> Outcome<Self> {
        let class_path = toolchain::client_class_path()?;
        let mut command = Command::new(toolchain::java_command());
        command.args(toolchain::jvm_flags()).args([HEAP, "-XX:+UseG1GC", "-cp", &class_path]);
        command.arg("evenkeel.interop.files.FilesSpeed");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let answers = process.stdout.take().ok_or("no output")?;
        Ok(Self { commands: process.stdin.take(), answers: BufReader::new(answers), process })
    }
}

impl Implementation for Stock {
    fn name(&self) -> &'static str {
        "stock"
    }

    fn run(&mut self, command: &str) -> Outcome<Cost> {
        let commands = self.commands.as_mut().ok_or("the JVM has ended")?;
        writeln!(commands, "{command}")?;
        commands.flush()?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(format!("the JVM ended at {command}").into());
            }
            // The tools print other lines, too.
            if let Some(numbers) = line.strip_prefix("done ") {
                return cost(numbers);
            }
            if line.starts_with("failed ") {
                return Err(line.trim().to_owned().into());
            }
        }
    }
}

fn cost(text: &str) -> Outcome<Cost> {
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [items, bytes, wall_ns, cpu_ns, first, second] = numbers[..] else { return Err(text.into()) };
    let (wall_s, cpu_s) = (wall_ns as f64 / 1e9, cpu_ns as f64 / 1e9);
    Ok(Cost { items, bytes, wall_s, cpu_s, resident_kib: (first, second) })
}

impl Drop for Stock {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.process.wait();
    }
}
