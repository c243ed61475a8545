//! A server that the master refuses says why, and ends.

use interop::cluster::{Cluster, ClusterStorage};

use crate::scene::{must, test_permit, tested};

#[test]
fn a_server_whose_clock_the_master_refuses_ends() {
    let _permit = test_permit();
    // Every clock differs by more than this.
    let cluster =
        must(Cluster::start_with(ClusterStorage::Directory, &[("hbase.master.maxclockskew", "-1")]));
    // Its port may accept before the master answers.
    if let Ok(refused) = cluster.start_regionserver(tested(), "refused", &[]) {
        refused.wait_for_end();
    }
    let log = must(cluster.log("refused"));
    assert!(log.contains("ClockOutOfSyncException"), "{log}");
}
