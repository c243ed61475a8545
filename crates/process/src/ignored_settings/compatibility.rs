//! The page `docs/operating/compatibility-settings.md`: what becomes of each setting of HBase. It
//! is generated from the tables of settings; `EVENKEEL_UPDATE_DOCS=1` writes it.

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_common::config::defaults::{DEFAULTS, RENAMED};

use super::IGNORED;
use super::table::KEYS_OF_OTHER_COMPONENTS;
use crate::security::REFUSED;

/// The names of the settings in hbase-default.xml of 2.6.4.
const HBASE_DEFAULT: &str = include_str!("hbase-default-keys.txt");

/// Settings of hbase-default.xml that this server does not know: at start, the log names those that
/// are set.
const NOT_HERE: &[(&str, &[&str])] = &[
    (
        "not supported: security",
        &[
            "hadoop.policy.file",
            "hbase.auth.key.update.interval",
            "hbase.auth.token.max.lifetime",
            "hbase.http.staticuser.user",
            "hbase.ipc.client.fallback-to-simple-auth-allowed",
            "hbase.ipc.server.fallback-to-simple-auth-allowed",
            "hbase.master.kerberos.principal",
            "hbase.master.keytab.file",
            "hbase.regionserver.kerberos.principal",
            "hbase.regionserver.keytab.file",
            "hbase.unsafe.client.kerberos.hostname.disable.reversedns",
            "zookeeper.znode.acl.parent",
        ],
    ),
    (
        "other programs: the REST and Thrift gateways",
        &[
            "hbase.regionserver.thrift.compact",
            "hbase.regionserver.thrift.framed",
            "hbase.regionserver.thrift.framed.max_frame_size_in_mb",
            "hbase.rest-csrf.browser-useragents-regex",
            "hbase.rest.csrf.enabled",
            "hbase.rest.filter.classes",
            "hbase.rest.port",
            "hbase.rest.readonly",
            "hbase.rest.support.proxyuser",
            "hbase.rest.threads.max",
            "hbase.rest.threads.min",
            "hbase.thrift.maxQueuedRequests",
            "hbase.thrift.maxWorkerThreads",
            "hbase.thrift.minWorkerThreads",
        ],
    ),
    (
        "other programs: clients",
        &[
            "hbase.bulkload.retries.number",
            "hbase.client.localityCheck.threadPoolSize",
            "hbase.client.max.perregion.tasks",
            "hbase.client.max.perserver.tasks",
            "hbase.client.max.total.tasks",
            "hbase.client.pause.server.overloaded",
            "hbase.client.perserver.requests.threshold",
            "hbase.ipc.client.tcpnodelay",
            "hbase.status.listener.class",
        ],
    ),
    ("not supported: replication", &["hbase.replication.rpc.codec", "hbase.replication.source.maxthreads"]),
    (
        "other programs: the master of a cluster; the master of a standalone server has one server, and nothing to balance",
        &[
            "hbase.balancer.period",
            "hbase.coordinated.state.manager.class",
            "hbase.master.balancer.decision.buffer.enabled",
            "hbase.master.balancer.maxRitPercent",
            "hbase.master.balancer.rejection.buffer.enabled",
            "hbase.master.fileSplitTimeout",
            "hbase.master.infoserver.redirect",
            "hbase.master.loadbalance.bytable",
            "hbase.master.loadbalancer.class",
            "hbase.master.oldwals.dir.updater.period",
            "hbase.master.regions.recovery.check.interval",
            "hbase.master.wait.on.service.seconds",
            "hbase.regions.recovery.store.file.ref.count",
            "hbase.regions.slop",
            "hbase.server.versionfile.writeattempts",
        ],
    ),
    (
        "not supported: names of this host by an interface or a DNS server",
        &[
            "hbase.regionserver.dns.interface",
            "hbase.regionserver.dns.nameserver",
            "hbase.zookeeper.dns.interface",
            "hbase.zookeeper.dns.nameserver",
        ],
    ),
    (
        "no effect: the ZooKeeper endpoint is one server",
        &["hbase.zookeeper.leaderport", "hbase.zookeeper.peerport"],
    ),
    (
        "not supported: publishing the cluster's state",
        &[
            "hbase.status.multicast.address.ip",
            "hbase.status.multicast.address.port",
            "hbase.status.publisher.class",
        ],
    ),
    (
        "not supported: classes of the user's own",
        &[
            "hbase.dynamic.jars.dir",
            "hbase.namedqueue.provider.classes",
            "hbase.procedure.master.classes",
            "hbase.procedure.regionserver.classes",
        ],
    ),
    (
        "no effect: files of a store are read in turn, by position",
        &["hbase.storescanner.parallel.seek.enable", "hbase.storescanner.parallel.seek.threads"],
    ),
    (
        "no effect: one thread serves the pages, for a limited number of connections",
        &["hbase.http.max.threads"],
    ),
    ("no effect: a snapshot takes as long as it needs", &["hbase.snapshot.master.timeout.millis"]),
    (
        "no effect: the locality of a file's blocks is known from its open",
        &["hbase.locality.inputstream.derive.cache.period", "hbase.locality.inputstream.derive.enabled"],
    ),
    ("no effect: changes of a table always take its lock", &["hbase.table.lock.enable"]),
    ("no effect: pages show the keys of regions", &["hbase.display.keys"]),
];

const HEAD: &str = "\
# What becomes of each setting of HBase

Generated by `cargo test -p evenkeel-process compatibility` with `EVENKEEL_UPDATE_DOCS=1`, and compared with the code by the
same test: every name of the hbase-default.xml of 2.6.4, and the further settings of HBase that this server knows.

- *same*: read, with HBase's meaning; the page of its subject says more.
- *no effect*: known, and the log of a start says so if it is set to anything but the values that agree.
- *other programs*: of clients, gateways or parts of a cluster that are HBase's own here as well.
- *refused*: a server does not [start](settings.md#settings-that-refuse-the-start) with it.
- *not supported*: the feature is missing; a start names the setting as unknown.

| setting | here |
|---|---|
";

fn verdicts() -> BTreeMap<&'static str, String> {
    let mut all = BTreeMap::new();
    let others = KEYS_OF_OTHER_COMPONENTS.iter();
    for (key, why) in others.flat_map(|(why, keys)| keys.iter().map(move |key| (*key, *why))) {
        all.insert(key, format!("other programs: {why}"));
    }
    for ignored in IGNORED {
        for key in ignored.keys {
            let values = ignored.equivalent_values.join("`, `");
            let agreed = if values.is_empty() { String::new() } else { format!(" (but for `{values}`)") };
            all.insert(key, format!("no effect{agreed}: {}", ignored.instead));
        }
    }
    for (why, keys) in NOT_HERE {
        keys.iter().for_each(|key| drop(all.insert(key, (*why).to_owned())));
    }
    for (key, open, missing) in REFUSED {
        let open = open.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
        let but = if open.is_empty() { open } else { format!(" (but for {open})") };
        all.insert(key, format!("refused{but}: {missing}"));
    }
    for (present, older) in RENAMED {
        all.insert(older, format!("same: an older name of `{present}`"));
    }
    for (key, _) in DEFAULTS.iter().filter(|(key, _)| !key.starts_with("evenkeel.")) {
        all.entry(key).or_insert_with(|| "same".to_owned());
    }
    all
}

#[test]
fn every_setting_of_hbase_has_a_verdict() {
    let all = verdicts();
    let missing: Vec<_> = HBASE_DEFAULT.lines().filter(|key| !all.contains_key(key)).collect();
    assert_eq!(missing, [""; 0], "neither known nor listed");
    for (_, keys) in NOT_HERE {
        for key in *keys {
            assert!(DEFAULTS.iter().all(|(known, _)| known != key), "{key} is known");
            assert!(HBASE_DEFAULT.lines().any(|of_hbase| of_hbase == *key), "{key}");
        }
    }
}

#[test]
fn the_page_of_settings_is_that_of_the_code() {
    let rows = verdicts().into_iter().map(|(key, verdict)| format!("| `{key}` | {verdict} |\n"));
    let text = HEAD.to_owned() + &rows.collect::<String>();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/compatibility-settings.md");
    if std::env::var_os("EVENKEEL_UPDATE_DOCS").is_some() {
        std::fs::write(&page, &text).expect("written");
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(found == text, "the page differs from the code: run this test with EVENKEEL_UPDATE_DOCS=1");
}
