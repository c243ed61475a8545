//! Tasks: background work and calls in progress, as HBase's TaskMonitor reports them. The shell's
//! `processlist` fetches `/rs-status?format=json`.

use evenkeel_common::clock;
use evenkeel_info_server::Response;
use evenkeel_metrics::sink::json::quote;
use evenkeel_regionserver::tasks::{self, Task, ms_between};
use evenkeel_rpc::RunningCall;

use super::StatusPages;

/// Returns the running background work, the oldest first.
pub(super) fn of(pages: &StatusPages) -> Vec<Task> {
    let regions = pages.sources.server().map(|server| server.regions().all()).unwrap_or_default();
    tasks::running(&regions, pages.sources.now_ms())
}

/// Returns the tasks as `MonitoredTaskImpl.toJSON` writes them, and the running calls as
/// `MonitoredRPCHandlerImpl.toJSON` does, by HBase's filters. A call of another table than
/// hbase:meta is an operation in HBase; here every call of a client is.
pub(super) fn respond(pages: &StatusPages, filter: &str) -> Response {
    let (tasks, calls) = match filter {
        "general" => (of(pages), Vec::new()),
        "handler" | "rpc" | "operation" => (Vec::new(), pages.sources.rpc.running_calls()),
        _ => (of(pages), pages.sources.rpc.running_calls()),
    };
    let (now, now_ms) = (clock::monotonic(), pages.sources.now_ms());
    let tasks = tasks.iter().map(text_of_task);
    let calls = calls.iter().map(|call| text_of_call(call, now_ms - ms_between(call.received_at, now)));
    let text = format!("[{}]", tasks.chain(calls).collect::<Vec<_>>().join(","));
    Response::ok("application/json;charset=utf-8", text)
}

/// Returns a call, which arrived at `started_ms`. Its parameters are not kept.
fn text_of_call(call: &RunningCall, started_ms: i64) -> String {
    let task = Task {
        description: format!("{} of {}", call.method, call.service),
        status: format!("Servicing call from {}: {}", call.peer, call.method),
        started_ms,
    };
    let mut text = text_of_task(&task);
    text.pop();
    let (address, port, bytes) = (call.peer.ip().to_string(), call.peer.port(), call.request_bytes);
    text.push_str(&format!(
        ",\"rpcCall\":{{\"queuetimems\":0,\"starttimems\":{started_ms},\"remoteport\":{port},\"packetlength\":{bytes},\"params\":[]"
    ));
    for (name, value) in [(",\"clientaddress\":", &*address), (",\"method\":", call.method)] {
        text.push_str(name);
        quote(value, &mut text);
    }
    text.push_str("}}");
    text
}

fn text_of_task(task: &Task) -> String {
    let mut to = String::new();
    for (name, value) in [("{\"description\":", &task.description), (",\"status\":", &task.status)] {
        to.push_str(name);
        quote(value, &mut to);
    }
    let started_ms = task.started_ms;
    to.push_str(&format!(
        ",\"state\":\"RUNNING\",\"starttimems\":{started_ms},\"statustimems\":{started_ms},\"statetimems\":{started_ms}}}"
    ));
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_json() {
        let task =
            Task { description: "Flushing t,\"<b>\u{0},1.e.".into(), status: "1 of 2".into(), started_ms: 5 };
        let text = text_of_task(&task);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((json["state"].as_str(), json["starttimems"].as_i64()), (Some("RUNNING"), Some(5)));
        assert_eq!(json["description"], "Flushing t,\"<b>\u{0},1.e.");
    }

    #[test]
    fn a_running_call_has_hbase_s_members() {
        let call = RunningCall {
            peer: ([127, 0, 0, 1], 7).into(),
            user: "me".into(),
            service: "ClientService",
            method: "Scan",
            request_bytes: 99,
            received_at: clock::monotonic(),
            ran_for: std::time::Duration::ZERO,
        };
        let json: serde_json::Value = serde_json::from_str(&text_of_call(&call, 5)).expect("JSON");
        assert_eq!((json["state"].as_str(), json["starttimems"].as_i64()), (Some("RUNNING"), Some(5)));
        let call = &json["rpcCall"];
        assert_eq!(
            (call["method"].as_str(), call["clientaddress"].as_str()),
            (Some("Scan"), Some("127.0.0.1"))
        );
        assert_eq!((call["remoteport"].as_i64(), call["packetlength"].as_i64()), (Some(7), Some(99)));
    }
}
