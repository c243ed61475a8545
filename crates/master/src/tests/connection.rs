//! Requests of the RegionServer of the same process to the master.

use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_regionserver::MasterConnection;

use super::*;
use crate::connection::EmbeddedConnection;

fn connected(cluster: &Cluster) -> Arc<EmbeddedConnection> {
    let connection = EmbeddedConnection::new(ClusterView::default());
    connection.connect(cluster.master());
    connection
}

/// Returns the error message of the response to one transition.
fn report(connection: &EmbeddedConnection, code: TransitionCode, regions: &[RegionInfo]) -> Option<String> {
    let transition = pb::RegionStateTransition {
        transition_code: code.into(),
        region_info: regions.iter().map(Into::into).collect(),
        ..Default::default()
    };
    let server = (&ServerName::new("h", 1, 1)).into();
    let request = pb::ReportRegionStateTransitionRequest { server, transition: vec![transition] };
    connection.report_region_state_transition(request).expect("the master runs").error_message
}

#[test]
fn startup_without_a_master_is_answered_as_not_running() {
    let connection = EmbeddedConnection::new(ClusterView::default());
    let error = connection.region_server_startup(Default::default()).expect_err("no master");
    assert_eq!(error.kind(), ErrorKind::ServerNotRunningYet);
}

#[test]
fn a_split_requested_by_a_regionserver_is_performed() {
    let cluster = Cluster::with_table();
    let connection = connected(&cluster);
    let parent = cluster.region_of("a").info().clone();
    let daughter = |start: &'static str, end: &'static str| {
        RegionInfo::new(table_name(), Bytes::from(start), Bytes::from(end), 1)
    };
    let regions = [parent.clone(), daughter("", "b"), daughter("b", "m")];
    assert_eq!(report(&connection, TransitionCode::ReadyToSplit, &regions), None);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let starts_at_b = |region: &Arc<Region>| region.info().start_key() == &b"b"[..];
    while !cluster.regions_of(&table_name()).iter().any(starts_at_b) {
        assert!(std::time::Instant::now() < until, "not split");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn unrequested_transition_reports_are_refused() {
    let cluster = Cluster::with_table();
    let connection = connected(&cluster);
    let region = cluster.region_of("a").info().clone();
    for code in [TransitionCode::Opened, TransitionCode::Closed, TransitionCode::ReadyToSplit] {
        assert!(report(&connection, code, std::slice::from_ref(&region)).is_some(), "{code:?}");
    }
    assert!(connection.report_procedure_done(Default::default()).is_err());
}
