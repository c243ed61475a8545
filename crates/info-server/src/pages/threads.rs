//! `/dump` and `/stacks`: the threads of this process, from `/proc/self/task` (proc(5)).
//!
//! Stacks are not shown, because a thread cannot read another's stack without a debugger. Name,
//! state, CPU time and the place in the kernel where it waits show which thread is busy and which
//! is stuck.

use std::fs;
use std::path::Path;

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Its thread id in the system.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// `RUNNING`, `SLEEPING` and others.
    pub state: &'static str,
    /// CPU time in user mode, in clock ticks.
    user: u64,
    /// CPU time in kernel mode, in clock ticks.
    system: u64,
    /// The kernel function in which it waits, if the kernel reports it.
    pub waits_in: String,
}

/// Returns the threads of this process by id, as text. Threads that end during the call are left
/// out.
pub fn thread_dump() -> String {
    let mut threads = threads();
    threads.sort_by_key(|thread| thread.id);
    let mut text = format!("Process Thread Dump:\n{} active threads\n", threads.len());
    threads.iter().for_each(|thread| text.push_str(&thread.text()));
    text
}

/// Returns the threads of this process, unordered. Threads that end during the call are left out.
pub fn threads() -> Vec<ThreadState> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries.flatten().filter_map(|entry| ThreadState::read(&entry.path())).collect()
}

impl ThreadState {
    /// Returns the CPU time since the start, in user and in kernel mode, in seconds.
    pub fn cpu_seconds(&self) -> (f64, f64) {
        (seconds(self.user), seconds(self.system))
    }

    fn read(task: &Path) -> Option<Self> {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        let waits_in = fs::read_to_string(task.join("wchan")).unwrap_or_default();
        Self::parse(&stat, waits_in.trim_matches(['0', '\n']))
    }

    /// Parses `id (name) state ...`. The name may contain any character; the last `)` ends it.
    fn parse(stat: &str, waits_in: &str) -> Option<Self> {
        let (start, rest) = stat.rsplit_once(") ")?;
        let (id, name) = start.split_once(" (")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts fields from 1; the state is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            id: id.parse().ok()?,
            name: name.to_owned(),
            state: state_text(field(3)?),
            user: field(14)?.parse().ok()?,
            system: field(15)?.parse().ok()?,
            waits_in: waits_in.to_owned(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("Thread {} ({}):\n  State: {}\n", self.id, self.name, self.state);
        let (user, system) = self.cpu_seconds();
        text.push_str(&format!("  CPU time: {:.2} s (user {user:.2}, system {system:.2})\n", user + system));
        if !self.waits_in.is_empty() {
            text.push_str(&format!("  Waits in: {}\n", self.waits_in));
        }
        text
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn state_text(letter: &str) -> &'static str {
    match letter {
        "R" => "RUNNING",
        "S" => "SLEEPING",
        "D" => "WAITING FOR A DISK",
        "T" | "t" => "STOPPED",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_names_may_contain_parentheses() {
        let stat = "17 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 250 30 0 0 20 0 1\n";
        let thread = ThreadState::parse(stat, "futex_wait").expect("parsed");
        assert_eq!((thread.id, thread.name.as_str(), thread.state), (17, "a) (b c", "SLEEPING"));
        assert_eq!((thread.user, thread.system), (250, 30));
        assert!(thread.text().ends_with("  Waits in: futex_wait\n"), "{}", thread.text());
        assert_eq!(ThreadState::parse("17 (a) S 1", ""), None);
        assert_eq!(ThreadState::parse("", ""), None);
    }

    #[test]
    fn threads_of_this_process_are_listed_by_name() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let builder = std::thread::Builder::new().name("seen-by-name".to_owned());
        let thread = builder.spawn(move || wait.recv().is_err()).expect("a thread");
        let text = loop {
            // The thread sets its name after it has started.
            let text = thread_dump();
            if text.contains("seen-by-name") {
                break text;
            }
        };
        assert!(text.contains("State: RUNNING"), "this thread runs: {text}");
        drop(done);
        thread.join().expect("ended");
    }
}
