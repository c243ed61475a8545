//! The calls from a RegionServer to its master.

use std::time::Duration;

use crate::testing::*;

#[test]
fn a_server_registers_before_it_makes_its_znode() {
    let server = TestServer::new(Default::default());
    server.server.report_for_duty().expect("registered");
    let told = server.master.calls.lock().clone();
    let about = format!("16020,{START_MS}");
    assert_eq!(told, [("RegionServerStartup", about), ("announce", server.server.name().to_string())]);
}

#[test]
fn a_hostname_mismatch_creates_no_znode() {
    let server = TestServer::new(Default::default());
    *server.master.seen_hostname.lock() = "other".to_owned();
    let error = server.server.report_for_duty().expect_err("another name");
    assert!(error.message().contains("other"), "{error}");
    assert!(server.master.calls.lock().iter().all(|(what, _)| *what != "announce"));
}

#[test]
fn heartbeats_follow_the_interval_and_list_each_region() {
    let (server, region) = TestServer::with_region();
    server.server.run_chore();
    assert!(server.master.reports.lock().is_empty(), "this master reads the load itself");
    *server.master.report_interval.lock() = Some(Duration::from_secs(3));
    for _ in 0..4 {
        server.clock.advance_ms(1500);
        server.server.run_chore();
    }
    let reports = server.master.reports.lock();
    assert_eq!(reports.len(), 2);
    for report in reports.iter() {
        assert_eq!(report.region_loads.len(), 1);
        assert_eq!(report.region_loads[0].region_specifier, specifier(&region));
    }
    assert_eq!(reports[1].report_start_time(), reports[0].report_end_time());
}

#[test]
fn a_fatal_error_is_reported_with_its_reason() {
    let server = TestServer::new(Default::default());
    server.server.report_fatal_error("the disk is gone");
    assert_eq!(*server.master.calls.lock(), [("ReportRSFatalError", "the disk is gone".to_owned())]);
}
