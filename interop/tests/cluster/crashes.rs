//! Regions move and servers die.
//!
//! 1. The tested server joins. Regions of a stock client's table are moved to it and written there.
//!    A region that grows there is split by its table's policy. A region that is read often moves
//!    to a second server of Evenkeel, whose cache then has its blocks. That server is stopped by
//!    SIGTERM, and moves the region away.
//! 2. The tested server is killed, and the Java server splits its log.
//! 3. The tested server joins again. The Java server is killed, so the tested server gets all
//!    regions, hbase:meta too, and splits the Java server's log.
//! 4. The tested server is stopped past its session timeout, and exits when it continues. The
//!    master declares two servers dead, one with regions and one without; both exit. Further
//!    servers lose a thread each, say so and exit.
//! 5. A DataNode is killed. Then the tested server is killed `EVENKEEL_CLUSTER_KILLS` times. By
//!    its settings each of its calls is slow, so hbase:slowlog has rows of it. Its pages answer.
//!
//! With `EVENKEEL_CLUSTER_STORAGE=directory` all processes share a local directory instead of HDFS.

use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_client::{ColumnFamilyDescriptor, Get, Put, ServerName, TableDescriptor};
use interop::cluster::{Cluster, free_port};
use interop::{Server, ServerKind};

use crate::histories::Histories;
use crate::scene::{
    LOAD, Load, Scene, TABLE, connect, is_running, must, signal, storage, test_permit, tested,
};

/// The table whose region is split because it grows.
const GROWING: &str = "growing";
/// The table that moves between two of Evenkeel's servers.
const WARM: &str = "warm";
/// The rows of that table: 4 MB, 60 blocks.
const WARM_ROWS: u64 = 400;
/// How soon after a move the cache must be warm.
const WARM_WITHIN: Duration = Duration::from_secs(10);
/// The rows of the growing table: 6 MB, three times the size of a region.
const GROWING_ROWS: u64 = 600;
/// The maximum time that writers may wait when a DataNode dies.
const STALL_MAX: Duration = Duration::from_secs(15);

#[test]
fn moves_and_server_crashes_lose_no_cell() {
    let _permit = test_permit();
    let cluster = Cluster::start(storage()).unwrap_or_else(|why| panic!("{why}"));
    let java =
        cluster.start_regionserver(ServerKind::Stock, "java", &[]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let ours = cluster.start_regionserver(tested(), "ours", &[]).unwrap_or_else(|why| panic!("{why}"));
    let mut scene = Scene::new(cluster);
    let (java_name, our_name) = (scene.name_of(&java), scene.name_of(&ours));

    // Regions of a new table, moved to the tested server and back, with a stock client's writes.
    let before =
        scene.client(&format!("create {TABLE} + put {TABLE} 0 1000 + flush {TABLE} + digest {TABLE}"));
    scene.move_table(TABLE, &our_name);
    let written = scene.check(&before, &format!("put {TABLE} 1000 2000"), "the move to the tested server");
    a_region_that_grows_is_split(&scene, &our_name);
    if tested() == ServerKind::Evenkeel {
        a_move_keeps_the_cache_warm(&scene, &our_name);
    }
    scene.move_table(TABLE, &java_name);
    let written = scene.check(&written, &format!("create {LOAD}"), "the move to the Java server");

    // The tested server dies with unflushed writes in its log: the Java server splits it.
    scene.move_table(TABLE, &our_name);
    let (load, histories) = (Load::start(&scene.cluster), Histories::start(&scene));
    scene.move_load(&our_name);
    let written = scene.check(&written, &format!("put {TABLE} 1500 3000"), "the move of both tables");
    ours.kill();
    scene.wait_until_gone(&our_name);
    let written = scene.check(&written, &format!("put {TABLE} 2500 3500"), "the tested server's death");

    // The Java server dies with hbase:meta and hbase:namespace: the tested server splits its log.
    let ours =
        scene.cluster.start_regionserver(tested(), "ours-2", &[]).unwrap_or_else(|why| panic!("{why}"));
    let our_name = scene.name_of(&ours);
    java.kill();
    scene.wait_until_gone(&java_name);
    let written = scene.check(&written, &format!("put {TABLE} 0 500"), "the Java server's death");
    scene.wait_for("hbase:meta on the tested server", || {
        scene.regions("hbase:meta").iter().any(|(_, at)| at.as_ref() == Some(&our_name)).then_some(())
    });

    // The tested server has all regions and is stopped past its session timeout, then continues.
    let java = scene
        .cluster
        .start_regionserver(ServerKind::Stock, "java-2", &[])
        .unwrap_or_else(|why| panic!("{why}"));
    let java_name = scene.name_of(&java);
    signal(&ours, "-STOP");
    scene.wait_until_gone(&our_name);
    scene.wait_for("the regions on the Java server", || {
        let regions = scene.regions(TABLE);
        (!regions.is_empty() && regions.iter().all(|(_, at)| at.as_ref() == Some(&java_name))).then_some(())
    });
    signal(&ours, "-CONT");
    scene.wait_for("the fenced server to end by itself", || (!is_running(ours.pid())).then_some(()));
    scene.check(&written, &format!("flush {TABLE}"), "a server was stopped past its session");
    servers_that_are_declared_dead_end(&scene, &load);

    if cfg!(debug_assertions) && tested() == ServerKind::Evenkeel {
        lost_threads_end_a_server(&scene);
    }
    let _ours = scene.cluster.hdfs().is_some().then(|| {
        let ours = datanode_dies(&mut scene, &load);
        kills_under_load(&mut scene, &load, ours)
    });
    load.end(&scene);
    histories.end();
}

/// The server requests the split from the master, which makes it; the daughters have all rows.
fn a_region_that_grows_is_split(scene: &Scene, server: &ServerName) {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let descriptor = TableDescriptor::new(GROWING.parse().expect("legal"))
        .with_family(family)
        .with("SPLIT_POLICY", "org.apache.hadoop.hbase.regionserver.ConstantSizeRegionSplitPolicy")
        .with("MAX_FILESIZE", "2097152")
        .with("MEMSTORE_FLUSHSIZE", "1048576");
    scene.runtime.block_on(scene.admin.create_table(&descriptor, &[])).expect("created");
    scene.move_table(GROWING, server);
    let table = connect(&scene.cluster, &scene.runtime).table(descriptor.name().clone());
    let row = |number: u64| format!("{number:06}");
    let value = |number: u64| format!("{number:06}").repeat(1_700);
    for number in 0..GROWING_ROWS {
        let put = Put::new(row(number)).column("f", "q", value(number));
        scene.runtime.block_on(table.put(put)).expect("written");
    }
    scene.wait_for("a split by the table's policy", || (scene.regions(GROWING).len() > 1).then_some(()));
    let gets = (0..GROWING_ROWS).map(|number| Get::new(row(number)));
    for (number, found) in (0..).zip(scene.runtime.block_on(table.get_all(gets))) {
        let found = found.expect("read");
        assert_eq!(found.value("f", "q"), Some(value(number).as_bytes()), "row {number} after the split");
    }
}

/// A region that is read often moves to another server of Evenkeel, which gets its hot blocks. Then
/// that server is stopped.
fn a_move_keeps_the_cache_warm(scene: &Scene, from: &ServerName) {
    let info_port = free_port().expect("a free port").to_string();
    let own = [("hbase.regionserver.info.port", &*info_port)];
    let other = scene.cluster.start_regionserver(ServerKind::Evenkeel, "warm", &own);
    let other = other.unwrap_or_else(|why| panic!("{why}"));
    let to = scene.name_of(&other);
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let descriptor = TableDescriptor::new(WARM.parse().expect("legal")).with_family(family);
    scene.runtime.block_on(scene.admin.create_table(&descriptor, &[])).expect("created");
    scene.move_table(WARM, from);
    let table = connect(&scene.cluster, &scene.runtime).table(descriptor.name().clone());
    let row = |number: u64| format!("{number:06}");
    let value = |number: u64| format!("{number:06}").repeat(1_700);
    for number in 0..WARM_ROWS {
        let put = Put::new(row(number)).column("f", "q", value(number));
        scene.runtime.block_on(table.put(put)).expect("written");
    }
    scene.runtime.block_on(scene.admin.flush_table(descriptor.name())).expect("flushed");
    let read_all = || {
        let gets = (0..WARM_ROWS).map(|number| Get::new(row(number)));
        for (number, found) in (0..).zip(scene.runtime.block_on(table.get_all(gets))) {
            let found = found.expect("read");
            assert_eq!(
                found.value("f", "q"),
                Some(value(number).as_bytes()),
                "row {number} of the warm table"
            );
        }
    };
    (0..2).for_each(|_| read_all());
    scene.move_table(WARM, &to);
    let moved = Instant::now();
    let received = scene.wait_for("the hot blocks", || {
        let [received, done] = ["Received", "Fetched"].map(|what| hot_block_count(&other, what));
        let dropped = hot_block_count(&other, "Dropped");
        (received > 0 && done + dropped >= received).then_some(received)
    });
    let took = moved.elapsed();
    let misses = || metric(&other, "Server", "blockCacheDataMissCount");
    let before = misses();
    read_all();
    let missed = misses() - before;
    println!("{received} hot blocks were fetched {took:?} after the move; {missed} blocks were missed then");
    assert!(received > 30 && missed <= received / 10 && took < WARM_WITHIN);

    signal(&other, "-TERM");
    scene.wait_for("the end of the stopped server", || (!is_running(other.pid())).then_some(()));
    scene.wait_for("the region on another server", || {
        let regions = scene.regions(WARM);
        (!regions.is_empty() && regions.iter().all(|(_, at)| at.as_ref().is_some_and(|at| *at != to)))
            .then_some(())
    });
    read_all();
}

fn hot_block_count(server: &Server, what: &str) -> u64 {
    metric(server, "Evenkeel", &format!("hotBlock{what}Count"))
}

/// Reads a number of a RegionServer's bean.
fn metric(server: &Server, bean: &str, name: &str) -> u64 {
    let page = server.page(&format!("/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub={bean}"));
    let page = page.unwrap_or_else(|why| panic!("{why}"));
    let (_, rest) = page.split_once(&format!("\"{name}\"")).unwrap_or_else(|| panic!("{name}: {page}"));
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// The master declares servers dead that are well: one is written to, the other learns it from the
/// answer to its report.
fn servers_that_are_declared_dead_end(scene: &Scene, load: &Load) {
    let servers = ["declared-dead", "declared-dead-idle"]
        .map(|name| must(scene.cluster.start_regionserver(tested(), name, &[])));
    let names = servers.each_ref().map(|server| scene.name_of(server));
    scene.move_load(&names[0]);
    load.wait_for_writes(scene, "the move to a server that the master declares dead");
    drop(scene.client(&format!("expire {} + expire {}", names[1], names[0])));
    for (server, name) in servers.iter().zip(&names) {
        scene.wait_for(&format!("the end of {name}"), || (!is_running(server.pid())).then_some(()));
    }
    let stall = load.wait_for_writes(scene, "a server was declared dead");
    println!("the slowest write took {stall:?} when the master declared a server dead");
    if tested() == ServerKind::Evenkeel {
        let log = servers[1].folder().expect("its own").join("server.log");
        let log = std::fs::read_to_string(log).expect("a log");
        let last = log.lines().rfind(|line| line.starts_with("evenkeel: ")).unwrap_or_default();
        assert!(last.contains("YouAreDeadException: Server REPORT rejected"), "{log}");
    }
}

/// Threads whose death ends a RegionServer of a cluster: one of each kind.
const ESSENTIAL: [&str; 30] = [
    "cluster",
    "procedure-results",
    "open-region-0",
    "open-priority-region-0",
    "open-meta-0",
    "close-region-0",
    "split-wal-0",
    "remote-procedure-0",
    "claim-queue-0",
    "wal",
    "wal-watch",
    "wal-archiver",
    "flush-0",
    "flush-in-memory-0",
    "compact-small-0",
    "compact-large-0",
    "write-throttle",
    "chore",
    "rpc-accept",
    "rpc-conn-0",
    "general-0",
    "priority-0",
    "scan-0",
    "write-0",
    "long-write-0",
    "admin-0",
    "decode-0",
    "info",
    "start",
    "signals",
];

/// A server that loses an essential thread says so and ends; the cluster stays whole.
fn lost_threads_end_a_server(scene: &Scene) {
    for threads in ESSENTIAL.chunks(5) {
        let servers: Vec<_> = threads
            .iter()
            .map(|thread| (thread, scene.cluster.start_with_a_panic_of(thread).expect("started")))
            .collect();
        for (thread, server) in servers {
            scene.wait_for(&format!("the end of a server without {thread}"), || {
                (!is_running(server.pid())).then_some(())
            });
            let log = server.folder().expect("its own").join("server.log");
            let log = std::fs::read_to_string(log).expect("a log");
            let last = log.lines().rfind(|line| line.starts_with("evenkeel: ")).unwrap_or_default();
            let said = match *thread {
                // Its death fails the start's call to ZooKeeper, which may be the first to report.
                "cluster" => log.contains("EVENKEEL_TEST_PANIC names this thread"),
                _ => last.contains(&format!("thread {thread} failed: it panicked: EVENKEEL_TEST_PANIC")),
            };
            assert!(said && !last.is_empty(), "{thread}: {log}");
        }
    }
}

/// A DataNode dies while the tested server writes its log and store files. Returns the server.
fn datanode_dies(scene: &mut Scene, load: &Load) -> Server {
    let info_port = free_port().expect("a free port").to_string();
    let own = [("hbase.regionserver.info.port", &*info_port), ("hbase.ipc.warn.response.time", "0")];
    let ours =
        scene.cluster.start_regionserver(tested(), "ours-3", &own).unwrap_or_else(|why| panic!("{why}"));
    let our_name = scene.name_of(&ours);
    scene.move_load(&our_name);
    scene.wait_for("the pages of the tested server", || ours.page("/rs-status").ok());
    if tested() == ServerKind::Evenkeel {
        check_pages(&ours, &our_name);
    }
    load.take_slowest();
    sleep(Duration::from_secs(2));
    let calm = load.take_slowest();
    scene.cluster.hdfs_mut().expect("on HDFS").kill_datanode(0);
    sleep(Duration::from_secs(2));
    let table = LOAD.parse().expect("legal");
    scene.runtime.block_on(scene.admin.flush_table(&table)).expect("flushed without the DataNode");
    let stall = load.take_slowest();
    println!("the slowest write took {calm:?}, and {stall:?} at the death of a DataNode");
    assert!(stall < STALL_MAX, "{stall:?}");
    scene.wait_for("a slow call in hbase:slowlog", || scene.has_slow_calls_of(LOAD).then_some(()));
    ours
}

/// The pages of a RegionServer of a cluster. It has no master, so it has no pages of one.
fn check_pages(ours: &Server, name: &ServerName) {
    for path in ["/rs-status", "/regions", "/memory", "/wal", "/slow", "/settings", "/dump"] {
        let page = ours.page(path).unwrap_or_else(|why| panic!("{path}: {why}"));
        assert!(page.contains(&name.to_string()), "{path} is of another server:\n{page}");
        assert!(!page.contains("/master-status"), "{path} links to a master:\n{page}");
    }
    let regions = ours.page("/regions").expect("answers");
    assert!(regions.contains(LOAD), "{regions}");
    for path in ["/master-status", "/procedures"] {
        assert!(ours.page(path).is_err(), "{path} answers");
    }
    let parts =
        ours.page("/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=MemoryParts").expect("answers");
    assert!(parts.contains("chunksBytesMax"), "{parts}");
}

/// The longer form: the tested server is killed repeatedly. Returns the last one.
fn kills_under_load(scene: &mut Scene, load: &Load, mut ours: Server) -> Server {
    let kills = std::env::var("EVENKEEL_CLUSTER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for kill in 0..kills {
        scene.cluster.hdfs_mut().expect("on HDFS").start_missing().unwrap_or_else(|why| panic!("{why}"));
        let our_name = scene.name_of(&ours);
        ours.kill();
        load.take_slowest();
        scene.wait_until_gone(&our_name);
        let next = scene.cluster.start_regionserver(tested(), &format!("killed-{kill}"), &[]);
        ours = next.unwrap_or_else(|why| panic!("{why}"));
        let our_name = scene.name_of(&ours);
        scene.move_load(&our_name);
        let stall = scene.wait_for("a write after the kill", || {
            Some(load.take_slowest()).filter(|stall| !stall.is_zero())
        });
        println!("kill {kill}: the slowest write took {stall:?}");
    }
    ours
}
