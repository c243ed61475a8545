//! What an operator does with a cluster: every server is swapped and swapped back, tables are
//! changed by the stock shell, and the services below the servers are restarted.
//!
//! The steps are those of docs/operating/cluster.md:
//!
//! 1. A tested server joins two Java servers. Regions are moved to it and back while a stock client
//!    scans them and another client writes (`EVENKEEL_CLUSTER_MOVES` times, 20 moves each).
//! 2. Each Java server is decommissioned and stopped, and a tested server takes its place.
//! 3. The stock shell and the tool for bulk loads change tables whose regions are all on tested
//!    servers (`shell/cluster.rb`).
//! 4. The master is killed and replaced, ZooKeeper is restarted, and the active NameNode is killed,
//!    so that the other one takes over. That one is put into safe mode for a while.
//! 5. Java servers take the place of the tested servers: one is decommissioned, the other one only
//!    stopped.
//! 6. A tested server joins again, and the master takes the cluster down.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_client::ServerName;
use interop::cluster::{Cluster, ClusterStorage, TIMEOUT};
use interop::{Server, ServerKind, home, java, toolchain, work};

use crate::histories::Histories;
use crate::scene::{LOAD, Load, Scene, TABLE, must, test_permit, tested};

/// Long enough for a restart of ZooKeeper on a busy machine.
const SESSION_MS: &str = "20000";
/// How long the NameNode is in safe mode.
const SAFE_MODE: Duration = Duration::from_secs(3);

#[test]
fn servers_are_swapped_and_services_restarted() {
    let _permit = test_permit();
    let own = [("zookeeper.session.timeout", SESSION_MS), ("hbase.quota.enabled", "true")];
    let cluster = must(Cluster::start_with(ClusterStorage::HdfsPair(3), &own));
    let first_java = must(cluster.start_regionserver(ServerKind::Stock, "java-1", &[]));
    let second_java = must(cluster.start_regionserver(ServerKind::Stock, "java-2", &[]));
    must(cluster.wait_for_master());
    let mut scene = Scene::new(cluster);
    let create = format!("create {TABLE} + put {TABLE} 0 2000 + digest {TABLE} + create {LOAD}");
    let written = scene.client(&create);
    let (load, histories) = (Load::start(&scene.cluster), Histories::start(&scene));

    let first_ours = must(scene.cluster.start_regionserver(tested(), "ours-1", &[]));
    moves_beside_scans(&scene, &written, [&first_ours, &second_java]);

    decommission(&scene, first_java, &load);
    let second_ours = must(scene.cluster.start_regionserver(tested(), "ours-2", &[]));
    decommission(&scene, second_java, &load);
    let put = format!("put {TABLE} 1500 3000");
    let written = scene.check(&written, &put, "the Java servers were swapped");

    changes_of_tables(&scene);
    let put = format!("put {TABLE} 2500 3500");
    let written = scene.check(&written, &put, "the changes of other tables");

    must(scene.cluster.replace_master());
    report(&scene, &load, "the death of the master");
    must(scene.cluster.restart_zookeeper());
    report(&scene, &load, "the restart of ZooKeeper");
    let put = format!("put {TABLE} 0 500 + flush {TABLE}");
    let written = scene.check(&written, &put, "master and ZooKeeper were restarted");
    namenode_fails_over(&mut scene, &load);
    let put = format!("put {TABLE} 500 1000 + flush {TABLE}");
    let written = scene.check(&written, &put, "the NameNode failed over");

    let third_java = must(scene.cluster.start_regionserver(ServerKind::Stock, "java-3", &[]));
    decommission(&scene, first_ours, &load);
    stop(&scene, second_ours, &load);
    let put = format!("put {TABLE} 1000 1500");
    let written = scene.check(&written, &put, "the tested servers were swapped");
    load.end(&scene);
    histories.end();

    let last_ours = must(scene.cluster.start_regionserver(tested(), "ours-3", &[]));
    scene.move_table(LOAD, &scene.name_of(&last_ours));
    scene.check(&written, &format!("flush {TABLE}"), "a tested server joined again");
    must(scene.cluster.shut_down());
    last_ours.wait_for_end();
    third_java.wait_for_end();
}

/// Moves the regions of all tables between the two servers. Meanwhile a stock client reads all
/// cells of one again and again, each time the same.
fn moves_beside_scans(scene: &Scene, written: &[String], servers: [&Server; 2]) {
    let rounds = std::env::var("EVENKEEL_CLUSTER_MOVES").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1);
    let names = servers.map(|server| scene.name_of(server));
    let end = work().join("run").join(format!("moves-end.{}", std::process::id()));
    let watch = format!("watch {TABLE} {}", end.display());
    std::thread::scope(|scope| {
        let scans = scope.spawn(|| scene.client_for(&watch, 200 + 100 * rounds));
        for _ in 0..rounds {
            for name in &names {
                scene.move_table(TABLE, name);
                scene.move_load(name);
            }
        }
        must(fs::write(&end, "").map_err(|e| e.to_string()));
        let digests = scans.join().expect("the scans go on");
        println!("{} scans beside the moves", digests.len());
        assert!(!digests.is_empty());
        for digest in &digests {
            assert_eq!(Some(digest), written.last(), "a scan beside moves");
        }
    });
    must(fs::remove_file(&end).map_err(|e| e.to_string()));
}

/// Takes a server out as docs/operating/cluster.md says: the master moves its regions to others,
/// then it is stopped.
fn decommission(scene: &Scene, server: Server, load: &Load) {
    let name = scene.name_of(&server);
    let decommissioned = scene.admin.decommission_servers(std::slice::from_ref(&name), true);
    scene.runtime.block_on(decommissioned).expect("decommissioned");
    scene.wait_for("a server without regions", || {
        let regions = scene.runtime.block_on(scene.admin.online_regions(&name)).ok()?;
        regions.is_empty().then_some(())
    });
    stop_named(scene, server, &name);
    report(scene, load, &format!("{name} was decommissioned"));
}

/// Stops a server by SIGTERM.
fn stop(scene: &Scene, server: Server, load: &Load) {
    let name = scene.name_of(&server);
    stop_named(scene, server, &name);
    report(scene, load, &format!("{name} was stopped"));
}

fn stop_named(scene: &Scene, server: Server, name: &ServerName) {
    drop(server);
    scene.wait_until_gone(name);
}

fn report(scene: &Scene, load: &Load, after: &str) {
    let slowest = load.wait_for_writes(scene, after);
    println!("{after}: the slowest write took {slowest:?}");
}

/// Runs `shell/cluster.rb` in the stock shell, and bulk loads by HBase's tool: of files on HDFS,
/// and of files of another file system.
fn changes_of_tables(scene: &Scene) {
    let conf = must(scene.cluster.client_conf());
    let script = home().join("shell/cluster.rb").display().to_string();
    let shell = java("org.jruby.JarBootstrapMain", &["-n".to_owned(), script]);
    let shell = shell.class_path(must(toolchain::shell_class_path(&conf)));
    let run = must(shell.label("shell-cluster").deadline_secs(300).run());
    assert!(run.success && run.stdout.contains("every command ran"), "{}\n{}", run.stdout, run.failures());

    let hdfs = scene.cluster.hdfs().expect("on HDFS");
    let beside = format!("load=2=hdfs://{}/bulk-input", hdfs.authority());
    // Files of the servers' machine, which they copy to HDFS.
    let local = work().join("run").join(format!("bulk-input.{}", std::process::id()));
    let elsewhere = format!("load=4=file://{}", local.display());
    let phases = ["create", "write=0", "flush", "write=1", "check=1", &beside, "check=2", "write=3"];
    let mut args = phases.map(str::to_owned).to_vec();
    args.extend([elsewhere, "check=4".to_owned()]);
    let settings = [scene.cluster.client_settings(), hdfs.client_settings()].concat();
    args.extend(settings.iter().map(|(key, value)| format!("-D{key}={value}")));
    let run = must(java("evenkeel.interop.tables.BulkLoadTable", &args).label("cluster-bulk-load").run());
    assert!(run.success, "{}", run.failures());
    must(fs::remove_dir_all(&local).map_err(|e| e.to_string()));
}

/// The active NameNode dies and the other one takes over, under writes. Then it is in safe mode for
/// a while, in which a flush is requested; the flush ends at the latest after it.
fn namenode_fails_over(scene: &mut Scene, load: &Load) {
    load.take_slowest();
    let hdfs = scene.cluster.hdfs_mut().expect("on HDFS");
    hdfs.kill_namenode(0);
    must(hdfs.activate(1));
    report(scene, load, "the NameNode failed over");
    flush(scene, "the failover of the NameNode");

    let hdfs = scene.cluster.hdfs_mut().expect("on HDFS");
    must(hdfs.start_namenode(0));
    must(hdfs.set_safe_mode(true));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| flush(scene, "safe mode"));
        sleep(SAFE_MODE.saturating_sub(began.elapsed()));
        must(scene.cluster.hdfs().expect("on HDFS").set_safe_mode(false));
        flushed.join().expect("flushed");
    });
    report(scene, load, "the NameNode was in safe mode");
}

/// Flushes the table of the load. A flush that fails is requested again.
fn flush(scene: &Scene, after: &str) {
    let (table, began) = (LOAD.parse().expect("legal"), Instant::now());
    while let Err(error) = scene.runtime.block_on(scene.admin.flush_table(&table)) {
        println!("no flush after {after} yet: {error}");
        assert!(began.elapsed() < TIMEOUT, "no flush after {after}");
        sleep(Duration::from_millis(200));
    }
}
