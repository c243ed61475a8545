//! RegionServers of both kinds under a stock master: `evenkeel regionserver` and HBase's
//! RegionServer, on one directory.
//!
//! With `EVENKEEL_INTEROP_TARGET=stock` the tested server is HBase's, too: the same checks with
//! Java servers only.
//!
//! One scenario:
//!
//! 1. The tested server joins. Regions of a stock client's table are moved to it and written there.
//! 2. The tested server is killed, and the Java server splits its log.
//! 3. The tested server joins again. The Java server is killed, so the tested server gets all
//!    regions, hbase:meta too, and splits the Java server's log.
//! 4. The tested server is stopped past its session timeout, and exits when it continues.
//!
//! After each step, a stock client reads every cell.

#![forbid(unsafe_code)]

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_client::{Admin, ClientConfig, Connection, RegionInfo, ServerName, TableName};
use interop::cluster::{Cluster, PATIENCE, ServerKind};
use interop::{Server, java};
use tokio::runtime::Runtime;

const TABLE: &str = "story";

/// A cluster, and a native client that administers it.
struct Scene {
    cluster: Cluster,
    runtime: Runtime,
    admin: Admin,
}

fn tested() -> ServerKind {
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => ServerKind::Stock,
        _ => ServerKind::Evenkeel,
    }
}

impl Scene {
    fn new(cluster: Cluster) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let config = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
        let connection = runtime.block_on(Connection::connect(config)).expect("a connection");
        Self { cluster, runtime, admin: connection.admin() }
    }

    /// Runs commands of `ClusterRows` by the stock client. Returns the digest if the commands
    /// include one.
    fn client(&self, commands: &str) -> Option<String> {
        let mut args: Vec<String> = commands.split(' ').map(str::to_owned).collect();
        args.extend(self.cluster.client_settings().iter().map(|(key, value)| format!("-D{key}={value}")));
        let run = java("evenkeel.interop.ClusterRows", &args).label("cluster-rows").deadline_secs(200).run();
        let run = run.unwrap_or_else(|why| panic!("{why}"));
        assert!(run.success, "{commands}: {}", run.failures());
        run.stdout.lines().find_map(|line| line.strip_prefix("DIGEST ")).map(str::to_owned)
    }

    fn digest(&self) -> String {
        self.client(&format!("digest {TABLE}")).expect("a digest")
    }

    fn live(&self) -> Vec<ServerName> {
        self.runtime.block_on(self.admin.live_servers()).unwrap_or_default()
    }

    /// The name of a server that this process started, once the master lists it.
    fn name_of(&self, server: &Server) -> ServerName {
        let port: u16 = server.setting("hbase.regionserver.port").and_then(|p| p.parse().ok()).expect("set");
        self.wait_for("the server to be live", || {
            self.live().into_iter().filter(|s| s.port == port).max_by_key(|s| s.start_code)
        })
    }

    fn regions(&self, table: &str) -> Vec<(RegionInfo, Option<ServerName>)> {
        let table: TableName = table.parse().expect("legal");
        let regions = self.runtime.block_on(self.admin.regions(&table)).unwrap_or_default();
        regions.into_iter().map(|region| (region.region, region.server)).collect()
    }

    fn wait_for<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
            sleep(Duration::from_millis(200));
        }
    }

    fn move_table(&self, table: &str, to: &ServerName) {
        for (region, at) in self.regions(table) {
            if at.as_ref() != Some(to) {
                self.runtime.block_on(self.admin.move_region(&region, Some(to))).expect("moved");
            }
        }
        self.wait_for("the regions to be there", || {
            let regions = self.regions(table);
            (!regions.is_empty() && regions.iter().all(|(_, at)| at.as_ref() == Some(to))).then_some(())
        });
    }

    fn wait_until_gone(&self, name: &ServerName) {
        self.wait_for("the master to give the server up", || (!self.live().contains(name)).then_some(()));
    }
}

fn signal(server: &Server, name: &str) {
    let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

fn is_running(pid: u32) -> bool {
    // A zombie process has no command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn regions_move_and_servers_die_and_no_cell_is_lost() {
    let cluster = Cluster::start().unwrap_or_else(|why| panic!("{why}"));
    let java =
        cluster.start_regionserver(ServerKind::Stock, "java", &[]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let ours = cluster.start_regionserver(tested(), "ours", &[]).unwrap_or_else(|why| panic!("{why}"));
    let scene = Scene::new(cluster);
    let (java_name, our_name) = (scene.name_of(&java), scene.name_of(&ours));

    // Regions of a new table, moved to the tested server and back, with a stock client's writes.
    scene.client(&format!("create {TABLE} + put {TABLE} 0 1000 + flush {TABLE}"));
    let before = scene.digest();
    scene.move_table(TABLE, &our_name);
    assert_eq!(scene.digest(), before, "after the move to the tested server");
    let written = scene.client(&format!("put {TABLE} 1000 2000 + digest {TABLE}")).expect("a digest");
    scene.move_table(TABLE, &java_name);
    assert_eq!(scene.digest(), written, "after the move to the Java server");

    // The tested server dies with unflushed writes in its log: the Java server splits it.
    scene.move_table(TABLE, &our_name);
    let written = scene.client(&format!("put {TABLE} 1500 3000 + digest {TABLE}")).expect("a digest");
    ours.kill();
    scene.wait_until_gone(&our_name);
    assert_eq!(scene.digest(), written, "after the tested server's death");

    // The Java server dies with hbase:meta and hbase:namespace: the tested server splits its log.
    let ours =
        scene.cluster.start_regionserver(tested(), "ours-2", &[]).unwrap_or_else(|why| panic!("{why}"));
    let our_name = scene.name_of(&ours);
    let written = scene.client(&format!("put {TABLE} 2500 3500 + digest {TABLE}")).expect("a digest");
    java.kill();
    scene.wait_until_gone(&java_name);
    assert_eq!(scene.digest(), written, "after the Java server's death");
    scene.wait_for("hbase:meta on the tested server", || {
        scene.regions("hbase:meta").iter().any(|(_, at)| at.as_ref() == Some(&our_name)).then_some(())
    });

    // The tested server has all regions and is stopped past its session timeout, then continues.
    let java = scene
        .cluster
        .start_regionserver(ServerKind::Stock, "java-2", &[])
        .unwrap_or_else(|why| panic!("{why}"));
    let java_name = scene.name_of(&java);
    let written = scene.client(&format!("put {TABLE} 0 500 + digest {TABLE}")).expect("a digest");
    signal(&ours, "-STOP");
    scene.wait_until_gone(&our_name);
    scene.wait_for("the regions on the Java server", || {
        let regions = scene.regions(TABLE);
        (!regions.is_empty() && regions.iter().all(|(_, at)| at.as_ref() == Some(&java_name))).then_some(())
    });
    signal(&ours, "-CONT");
    scene.wait_for("the fenced server to end by itself", || (!is_running(ours.pid())).then_some(()));
    assert_eq!(scene.digest(), written, "after a server was stopped past its session");
}
