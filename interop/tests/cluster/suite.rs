//! What the stock client checks on one server, on tables whose regions are on two kinds of server:
//! the groups of `evenkeel.interop.checks.Checks`, and PerformanceEvaluation. And the program of
//! clients of other versions, whose flushes and snapshots go through ZooKeeper.

use interop::cluster::{Cluster, ClusterStorage};
use interop::toolchain::ForeignClient;
use interop::{Finished, ServerKind, java, toolchain};

use crate::scene::{Scene, must, test_permit, tested};

/// Groups of checks that do not depend on the number of servers.
const GROUPS: [&str; 7] = ["core", "filters", "admin", "meta", "codecs", "async", "endpoints"];
const TABLE: &str = "PeCluster";
const CLIENTS: usize = 2;
const ROWS_PER_CLIENT: usize = 2000;
/// Clients that flush by `flush-table-proc`; that of 1.7 takes snapshots without a nonce.
const OLD_CLIENTS: [(&str, &[&str]); 2] = [("1.7.2", &["src", "dialect1"]), ("2.2.7", &["src", "dialect2"])];

#[test]
fn the_client_s_checks_pass_on_regions_of_both_kinds() {
    let _permit = test_permit();
    let cluster = must(Cluster::start_with(
        ClusterStorage::Directory,
        &[("hbase.ipc.warn.response.size", "200000"), ("hbase.regionserver.user.metrics.enabled", "true")],
    ));
    let _java = must(cluster.start_regionserver(ServerKind::Stock, "java", &[]));
    must(cluster.wait_for_master());
    // The checks read values of 10 MB, of which a server of 256 MiB holds one at a time.
    let memory = [("evenkeel.memory.size", "1g")];
    let _ours = must(cluster.start_regionserver(tested(), "ours", &memory));
    let scene = Scene::new(cluster);
    scene.wait_for("two servers", || (scene.live().len() == 2).then_some(()));

    let mut args: Vec<String> = ["--registry", "zk"].map(str::to_owned).to_vec();
    args.extend(scene.cluster.client_settings().iter().map(|(key, value)| format!("-D{key}={value}")));
    args.extend(GROUPS.map(str::to_owned));
    let checks = java("evenkeel.interop.checks.Checks", &args).label("cluster-checks").deadline_secs(300);
    let run = must(checks.run());
    assert!(run.success, "{}", run.failures());

    OLD_CLIENTS.iter().for_each(|(version, sources)| run_old_client(&scene, version, sources));

    evaluate(&scene, "sequentialWrite");
    let servers: std::collections::BTreeSet<_> =
        scene.regions(TABLE).into_iter().filter_map(|(_, at)| at).map(|at| at.port).collect();
    assert_eq!(servers.len(), 2, "both servers have regions of {TABLE}");
    evaluate(&scene, "randomRead");
    evaluate(&scene, "scan");
    let counted = evaluation(&scene, "evenkeel.interop.tables.RowCount", &[TABLE.to_owned()]).stdout;
    assert_eq!(counted.trim(), (CLIENTS * ROWS_PER_CLIENT).to_string());
}

/// Creates a table with regions on both servers, writes, reads, flushes, takes and clones
/// snapshots.
fn run_old_client(scene: &Scene, version: &'static str, sources: &'static [&'static str]) {
    let client =
        ForeignClient { group: "org.apache.hbase", artifact: "hbase-shaded-client", version, sources };
    let settings = scene.cluster.client_settings();
    let mut args: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    args.push(format!("table=foreign-{version}"));
    let program = java("ForeignClient", &args).class_path(must(client.class_path()));
    let run = must(program.label(&format!("cluster-{version}")).deadline_secs(240).run());
    assert!(run.success && run.stdout.trim_end().ends_with("ok"), "{version}: {}", run.failures());
}

fn evaluate(scene: &Scene, command: &str) {
    let args = [
        "--nomapred".to_owned(),
        format!("--rows={ROWS_PER_CLIENT}"),
        format!("--table={TABLE}"),
        "--presplit=4".to_owned(),
        command.to_owned(),
        CLIENTS.to_string(),
    ];
    let run = evaluation(scene, "org.apache.hadoop.hbase.PerformanceEvaluation", &args);
    let ended = run.stderr.matches("Finished class org.apache.hadoop.hbase.PerformanceEvaluation").count();
    assert_eq!(ended, CLIENTS, "clients that finished {command}:\n{}", run.stderr);
}

/// Runs a program that takes the cluster's address from `hbase-site.xml`.
fn evaluation(scene: &Scene, class: &str, args: &[String]) -> Finished {
    let conf = must(scene.cluster.client_conf());
    let class_path = format!("{}:{}", conf.display(), must(toolchain::client_class_path()));
    let run = must(java(class, args).class_path(class_path).label("cluster-load").deadline_secs(240).run());
    assert!(run.success, "{class} {args:?}: {}\n{}", run.end, run.stderr);
    run
}
