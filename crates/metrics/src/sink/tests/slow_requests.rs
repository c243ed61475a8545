//! The ledger as JSON and as lines.

use std::time::Duration;

use crate::activity::ActivityKind;
use crate::conditions::Conditions;
use crate::ledger::{Ledger, LedgerConfig, OverlappingActivity, RequestDetail, ServerContext, SlowRequest};
use crate::sink::slow_requests::{causes_line, document, server_line};
use crate::waits::{Cause, Waits};

fn request() -> SlowRequest {
    let ms = Duration::from_millis;
    let mut waits = Waits::NONE;
    waits.note(Cause::RowLock, ms(2));
    waits.note(Cause::LogSync, ms(118));
    let flush = OverlappingActivity {
        kind: ActivityKind::Flush,
        subject: "t,,1.ab.".to_owned(),
        overlap: ms(80),
        took: ms(300),
        runs: false,
        error: "no space".to_owned(),
    };
    let conditions = Conditions { window: ms(900), stolen: ms(10), major_faults: 3, ..Conditions::default() };
    SlowRequest {
        method: "Mutate",
        received_ms: 1_700_000_000_000,
        queue_time: ms(0),
        processing_time: ms(120),
        request_bytes: 10,
        reply_bytes: 20,
        client: "127.0.0.1:5".to_owned(),
        user: "u\"".to_owned(),
        error: "",
        detail: RequestDetail { region: "t,,1.ab.".to_owned(), row: b"r\x00".to_vec(), ..Default::default() },
        waits,
        surroundings: ServerContext { activities: vec![flush], conditions, slowest_read: None },
    }
}

#[test]
fn a_request_is_json_with_its_causes_and_what_the_server_did() {
    let ledger = Ledger::new(LedgerConfig { slow: Duration::from_millis(100), kept: 4 });
    ledger.keep(request());
    let json: serde_json::Value = serde_json::from_str(&document(&ledger)).expect("JSON");
    assert_eq!((&json["thresholdMs"], &json["slowRequests"]), (&100.0.into(), &1.into()));
    let entry = &json["slow"][0];
    assert_eq!(entry, &json["slowest"][0]);
    assert_eq!((&entry["method"], &entry["row"]), (&"Mutate".into(), &"r\\x00".into()));
    assert_eq!(entry["causes"][0], serde_json::json!({"cause": "logSync", "ms": 118.0}));
    assert_eq!(entry["causes"][1], serde_json::json!({"cause": "rowLock", "ms": 2.0}));
    let flush = serde_json::json!({
        "activity": "flush", "of": "t,,1.ab.", "overlapMs": 80.0, "tookMs": 300.0, "runs": false,
        "error": "no space",
    });
    assert_eq!(entry["server"][0], flush);
    let conditions = serde_json::json!({"windowMs": 900.0, "stolenCpuMs": 10.0, "majorFaults": 3});
    assert_eq!(entry["conditions"], conditions);
    let of_sync = json["causes"].as_array().expect("an array").iter().find(|c| c["cause"] == "logSync");
    assert_eq!(of_sync.expect("a cause")["requests"], 1);
    assert_eq!(json["causes"].as_array().map(Vec::len), Some(Cause::ALL.len()));
}

#[test]
fn a_request_is_one_line() {
    assert_eq!(causes_line(&request().waits), "logSync 118.0ms, rowLock 2.0ms");
    let line = "flush of t,,1.ab. 80.0ms (failed: no space), stolen CPU 10.0ms, 3 major page faults";
    assert_eq!(server_line(&request()), line);
}
