//! `/dump`: everything in one text, in the sections of HBase's RSDumpServlet.

use std::fmt::Write;

use evenkeel_info_server::pages::{properties, thread_dump};
use evenkeel_info_server::{Request, Response};
use evenkeel_rpc::CallClass;

use super::{StatusPages, tasks};
use crate::format;

pub(super) const PATH: &str = "/dump";

const LINE: &str = "===========================================================";

pub(super) fn respond(pages: &StatusPages, _: &Request) -> Response {
    let mut text = String::new();
    let part = |text: &mut String, name: &str, content: String| {
        text.push_str(&format!("\n{name}:\n{LINE}\n{content}\n"));
    };
    let (sources, now_ms) = (&pages.sources, pages.sources.now_ms());
    text.push_str(&format!(
        "RegionServer status for {} as of {} UTC\n",
        sources.server_name,
        format::moment(now_ms)
    ));
    let version =
        format!("Evenkeel {}, as HBase {}", env!("CARGO_PKG_VERSION"), evenkeel_regionserver::HBASE_VERSION);
    part(&mut text, "Version Info", version);
    part(&mut text, "Tasks", tasks_text(pages, now_ms));
    part(&mut text, "Executors", executors(pages));
    part(&mut text, "Stacks", thread_dump());
    part(&mut text, "RS Configuration", configuration(pages));
    part(&mut text, "RS Queue", queues(pages));
    Response::text(text)
}

fn tasks_text(pages: &StatusPages, now_ms: i64) -> String {
    let mut text = String::new();
    for task in tasks::of(pages) {
        let age = format::age(now_ms - task.started_ms).text();
        let _ =
            writeln!(text, "Task: {}\nStatus: RUNNING:{}\nRunning for {age}", task.description, task.status);
    }
    text
}

fn executors(pages: &StatusPages) -> String {
    let classes = [
        CallClass::General,
        CallClass::Priority,
        CallClass::Admin,
        CallClass::Scan,
        CallClass::Decode,
        CallClass::Write,
        CallClass::LongWrite,
    ];
    let executor = &pages.sources.executor;
    let mut text = String::new();
    for class in classes {
        let _ = writeln!(text, "{class:?}: {} run, {} wait", executor.active(class), executor.queued(class));
    }
    text
}

fn configuration(pages: &StatusPages) -> String {
    let mut text = String::new();
    for property in properties(&pages.sources.configuration.get()) {
        let _ = writeln!(text, "{}={} ({})", property.key, property.value, property.source);
    }
    text
}

fn queues(pages: &StatusPages) -> String {
    let Some(server) = pages.sources.server() else { return String::new() };
    let (flushes, compactions) = server.background().waiting();
    let mut text = format!("Compaction Queue: {} wait\n", compactions.len());
    for (region, is_major) in &compactions {
        let _ = writeln!(text, "  {}{}", region.info().name_text(), if *is_major { " major" } else { "" });
    }
    let _ = writeln!(text, "Flush Queue: {} wait", flushes.len());
    for region in &flushes {
        let _ = writeln!(text, "  {}", region.info().name_text());
    }
    text
}
