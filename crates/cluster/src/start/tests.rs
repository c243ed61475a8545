//! The order of a start, with a master that records and refuses.

use std::path::Path;

use evenkeel_common::ErrorKind;
use evenkeel_regionserver::ClusterView;
use parking_lot::Mutex;

use super::*;

/// A master in front of a root directory.
#[derive(Default)]
struct RecordingMaster {
    root: String,
    /// The calls, and the entries of the root directory at each.
    calls: Mutex<Vec<(&'static str, Vec<String>)>>,
    /// The answers to registrations before the one that succeeds, the last one first.
    refusals: Mutex<Vec<HBaseError>>,
    refuses_znode: bool,
}

impl RecordingMaster {
    fn record(&self, call: &'static str) {
        self.calls.lock().push((call, entries(Path::new(&self.root))));
    }

    fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().iter().map(|(call, _)| *call).collect()
    }
}

impl MasterConnection for RecordingMaster {
    fn region_server_startup(
        &self,
        _request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse> {
        self.record("register");
        if let Some(refusal) = self.refusals.lock().pop() {
            return Err(refusal);
        }
        let root = pb::NameStringPair { name: "hbase.rootdir".into(), value: self.root.clone() };
        Ok(pb::RegionServerStartupResponse { map_entries: vec![root] })
    }

    fn announce(&self, _server: &ServerName, info: pb::RegionServerInfo) -> Result<()> {
        assert_eq!(info.info_port, Some(16030));
        self.record("announce");
        if self.refuses_znode { Err(HBaseError::io("ZooKeeper: no reply in time")) } else { Ok(()) }
    }

    fn report_interval(&self) -> Option<Duration> {
        None
    }

    fn region_server_report(&self, _request: pb::RegionServerReportRequest) {}

    fn report_region_state_transition(
        &self,
        _request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse> {
        Ok(pb::ReportRegionStateTransitionResponse::default())
    }

    fn report_procedure_done(&self, _request: pb::ReportProcedureDoneRequest) -> Result<()> {
        Ok(())
    }

    fn last_flushed_sequence_id(&self, _region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse> {
        Ok(pb::GetLastFlushedSequenceIdResponse::default())
    }

    fn report_fatal_error(&self, _request: pb::ReportRsFatalErrorRequest) {}

    fn cluster_view(&self) -> Arc<ClusterView> {
        Arc::default()
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let found = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    found.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect()
}

/// A server that has not entered the cluster yet.
struct Joining {
    root: tempfile::TempDir,
    process: Process,
    lease: Arc<Lease>,
    name: ServerName,
}

impl Joining {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let mut conf = Configuration::new();
        // The master's setting replaces this one.
        conf.set("hbase.rootdir", "file:///nonexistent");
        conf.set("evenkeel.memory.size", "256m");
        let fs = storage::root_file_system(&conf).expect("local");
        let process = Process::new(fs, conf, Arc::new(|_: &str| {})).expect("legal settings");
        let lease = Arc::new(Lease::new(clock::monotonic(), Duration::from_secs(600)));
        Self { root, process, lease, name: ServerName::new("host", 16020, 7) }
    }

    fn master(&self) -> RecordingMaster {
        RecordingMaster { root: self.root.path().to_str().expect("UTF-8").to_owned(), ..Default::default() }
    }

    fn enter(&mut self, master: &RecordingMaster) -> Result<Storage> {
        let shared = PortBudgets::new(&self.process.settings, &self.process.conf).expect("legal settings");
        let nonces = self.process.nonces();
        enter(&mut self.process, master, (&self.name, 16030), &self.lease, (&nonces, &shared.limits))
    }

    fn logs(&self) -> std::path::PathBuf {
        self.root.path().join(layout::WALS_DIR).join(self.name.to_string())
    }
}

#[test]
fn the_znode_exists_before_the_log_directory() {
    let mut joining = Joining::new();
    let master = joining.master();
    let _storage = joining.enter(&master).expect("entered");
    assert_eq!(*master.calls.lock(), [("register", vec![]), ("announce", vec![])]);
    assert!(joining.logs().is_dir());
}

#[test]
fn a_server_without_a_znode_leaves_no_log_directory() {
    let mut joining = Joining::new();
    let master = RecordingMaster { refuses_znode: true, ..joining.master() };
    let error = joining.enter(&master).err().expect("refused");
    assert!(error.message().contains("no reply in time"), "{error}");
    assert_eq!((master.calls(), entries(joining.root.path())), (vec!["register", "announce"], vec![]));
}

#[test]
fn a_log_directory_of_this_name_is_of_another_server() {
    let mut joining = Joining::new();
    std::fs::create_dir_all(joining.logs()).expect("created");
    let master = joining.master();
    let error = joining.enter(&master).err().expect("refused");
    assert!(error.message().contains("another server has this name"), "{error}");
    assert_eq!(entries(&joining.logs()), Vec::<String>::new());
}

#[test]
fn a_server_whose_clock_is_refused_ends_with_the_masters_reason() {
    let mut joining = Joining::new();
    let reason = "Server host,16020,7 has been rejected; Reported time is too far out of sync with master.  \
                  Time difference of 40000ms > max allowed of 30000ms";
    let text = format!("RegionServerStartup: org.apache.hadoop.hbase.ClockOutOfSyncException: {reason}");
    let starting = HBaseError::new(ErrorKind::ServerNotRunningYet, "Server is not running yet");
    let refusals = Mutex::new(vec![HBaseError::do_not_retry(&text), starting]);
    let master = RecordingMaster { refusals, ..joining.master() };
    let error = joining.enter(&master).err().expect("refused");
    assert!(error.message().contains(reason) && error.is_do_not_retry(), "{error}");
    assert_eq!(master.calls(), ["register", "register"], "it retries until the master has started");
    assert_eq!(entries(joining.root.path()), Vec::<String>::new());
}

#[test]
fn a_server_whose_session_has_ended_does_not_wait_for_a_master() {
    let mut joining = Joining::new();
    let master = joining.master();
    *master.refusals.lock() = vec![HBaseError::io("no master is active")];
    joining.lease.end();
    let error = joining.enter(&master).err().expect("refused");
    assert!(error.message().contains("no master is active"), "{error}");
    assert_eq!(master.calls(), ["register"]);
}
