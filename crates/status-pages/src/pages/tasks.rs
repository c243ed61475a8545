//! Tasks: work in progress, as HBase's TaskMonitor reports it. The shell's `processlist` fetches
//! `/rs-status?format=json`.

use evenkeel_info_server::Response;
use evenkeel_metrics::sink::json::quote;

use super::StatusPages;

/// One task (`MonitoredTask`).
pub(super) struct Task {
    /// Its description.
    pub description: String,
    /// Its progress.
    pub status: String,
    /// HBase's name of its state: `RUNNING`.
    pub state: &'static str,
    /// When it began, if known, in milliseconds since 1970.
    pub started_ms: i64,
}

/// Returns the running flushes and compactions.
pub(super) fn of(pages: &StatusPages) -> Vec<Task> {
    let (now_ms, mut tasks) = (pages.sources.now_ms(), Vec::new());
    let Some(server) = pages.sources.server() else { return tasks };
    let mut add = |description: String, status: String| {
        tasks.push(Task { description, status, state: "RUNNING", started_ms: now_ms });
    };
    for region in server.regions().all() {
        let (name, load) = (region.info().name_text(), region.load());
        if region.is_flushing() {
            add(format!("Flushing {name}"), format!("{} bytes are being written", region.snapshot_bytes()));
        }
        if load.compacting_cells > 0 {
            let status = format!("{} of {} cells are done", load.compacted_cells, load.compacting_cells);
            add(format!("Compacting {name}"), status);
        }
    }
    tasks
}

/// Returns the tasks as `MonitoredTaskImpl.toJSON` writes them. A filter that selects calls
/// (`handler`, `rpc`, `operation`) matches none: calls are not tasks here.
pub(super) fn respond(pages: &StatusPages, filter: &str) -> Response {
    let mut text = "[".to_owned();
    let tasks = if matches!(filter, "" | "all" | "general") { of(pages) } else { Vec::new() };
    for (at, task) in tasks.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        write_task(task, &mut text);
    }
    text.push(']');
    Response::ok("application/json;charset=utf-8", text)
}

fn write_task(task: &Task, to: &mut String) {
    for (name, value) in [("{\"description\":", &task.description), (",\"status\":", &task.status)] {
        to.push_str(name);
        quote(value, to);
    }
    let started_ms = task.started_ms;
    to.push_str(&format!(
        ",\"state\":\"{}\",\"starttimems\":{started_ms},\"statustimems\":{started_ms},\"statetimems\":{started_ms}}}",
        task.state
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_json() {
        let mut text = String::new();
        let task = Task {
            description: "Flushing t,\"<b>\u{0},1.e.".into(),
            status: "1 of 2".into(),
            state: "RUNNING",
            started_ms: 5,
        };
        write_task(&task, &mut text);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((json["state"].as_str(), json["starttimems"].as_i64()), (Some("RUNNING"), Some(5)));
        assert_eq!(json["description"], "Flushing t,\"<b>\u{0},1.e.");
    }
}
