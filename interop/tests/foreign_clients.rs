//! Clients of other versions and makes, each by the same small program, through every connection
//! registry that it has: HBase's Java clients from 1.7 to 3.0 (`foreign/src/ForeignClient.java`)
//! and asynchbase (`foreign/asynchbase`).
//!
//! The master registry of 1.7 is not here: it asks ClientMetaService for GetTableState, which no
//! server of version 2 answers.

#![forbid(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use interop::toolchain::ForeignClient;
use interop::{java, target};

const SHADED: &str = "hbase-shaded-client";
const PLAIN: &str = "hbase-client";
const HBASE_1: &[&str] = &["src", "dialect1"];
const HBASE_2: &[&str] = &["src", "dialect2"];
/// The registry of clients that have one registry without a choice.
const DEFAULT: &str = "";
const ZOOKEEPER: &str = "org.apache.hadoop.hbase.client.ZKConnectionRegistry";
const MASTER: &str = "org.apache.hadoop.hbase.client.MasterRegistry";
const RPC: &str = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";

const fn hbase(artifact: &'static str, version: &'static str, sources: &'static [&str]) -> ForeignClient {
    ForeignClient { group: "org.apache.hbase", artifact, version, sources }
}

/// Programs run one at a time: each is a JVM of several threads.
fn run(client: &ForeignClient, class: &str, args: &[String]) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let class_path = client.class_path().unwrap_or_else(|why| panic!("{why}"));
    let label = format!("foreign-{}", client.version);
    let program = java(class, args).class_path(class_path).label(&label).deadline_secs(180);
    let output = program.run().unwrap_or_else(|why| panic!("{why}"));
    assert!(
        output.success && output.stdout.trim_end().ends_with("ok"),
        "{} {args:?} against {}: {}",
        client.version,
        target().name(),
        output.failures()
    );
}

fn settings() -> Vec<String> {
    target().client_settings().into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn client(client: ForeignClient, registries: &[&str]) {
    for (at, registry) in registries.iter().enumerate() {
        let mut args = settings();
        args.push(format!("table=foreign-{}-{at}", client.version));
        if *registry != DEFAULT {
            args.push(format!("hbase.client.registry.impl={registry}"));
        }
        run(&client, "ForeignClient", &args);
    }
}

#[test]
fn hbase_1_7() {
    client(hbase(SHADED, "1.7.2", HBASE_1), &[DEFAULT]);
}

#[test]
fn hbase_2_0() {
    client(hbase(SHADED, "2.0.2", HBASE_2), &[DEFAULT]);
}

#[test]
fn hbase_2_2() {
    client(hbase(SHADED, "2.2.7", HBASE_2), &[DEFAULT]);
}

#[test]
fn hbase_2_5() {
    client(hbase(SHADED, "2.5.5-hadoop3", HBASE_2), &[ZOOKEEPER, MASTER, RPC]);
}

#[test]
fn hbase_2_6() {
    client(hbase(PLAIN, "2.6.4-hadoop3", HBASE_2), &[ZOOKEEPER, MASTER, RPC]);
}

#[test]
fn hbase_3_0() {
    client(hbase(PLAIN, "3.0.0-alpha-4", HBASE_2), &[ZOOKEEPER, MASTER, RPC]);
}

/// A scan of several calls needs the scanner's id in each reply (HBASE-18000).
#[test]
fn asynchbase() {
    const TABLE: &str = "foreign-asynchbase";
    let mut create = settings();
    create.extend([format!("table={TABLE}"), "only=create".to_owned()]);
    run(&hbase(PLAIN, "2.6.4-hadoop3", HBASE_2), "ForeignClient", &create);
    let async_client = ForeignClient {
        group: "org.hbase",
        artifact: "asynchbase",
        version: "1.8.2",
        sources: &["asynchbase"],
    };
    let of = |key: &str| target().setting(key).unwrap_or_default();
    let quorum = format!("{}:{}", of("hbase.zookeeper.quorum"), of("hbase.zookeeper.property.clientPort"));
    run(&async_client, "AsyncHBaseClient", &[quorum, TABLE.to_owned()]);
}
