//! Quotas of a whole server, through the native client: set, exceeded, waited for, listed, kept
//! over a restart, removed. Those of space have short periods.

use std::time::{Duration, Instant};

use evenkeel_client::admin::{Quota, QuotaFilter};
use evenkeel_client::{ClientConfig, Connection, Error, Get, Put, TableDescriptor, TableName};
use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind};
use evenkeel_protocol::pb;

use crate::common::{Server, TIMEOUT, block_on, config};

fn limit(units: u64, unit: pb::TimeUnit) -> Option<pb::TimedQuota> {
    let scope = Some(pb::QuotaScope::Machine.into());
    Some(pb::TimedQuota { time_unit: unit.into(), soft_limit: Some(units), share: None, scope })
}

async fn create(connection: &Connection, name: &str) -> TableName {
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[]).await.expect("created");
    connection.table(name.clone()).put(Put::new("r").column("f", "q", "v")).await.expect("written");
    name
}

/// A connection whose calls are made once.
async fn impatient(server: &Server) -> Connection {
    let config = ClientConfig { retries: 0, ..config(&server.bootstrap()) };
    Connection::connect(config).await.expect("the server answers")
}

/// Returns the message of a refusal.
#[track_caller]
fn refusal(outcome: Result<impl std::fmt::Debug, Error>) -> String {
    let error = match outcome.expect_err("a quota refuses it") {
        Error::RetriesExhausted { last, .. } => *last,
        other => other,
    };
    assert_eq!(error.kind(), Some(ErrorKind::RpcThrottling), "{error}");
    error.to_string()
}

/// The master creates hbase:quota after the server answers.
async fn wait_for_quota_table(connection: &Connection) {
    let deadline = Instant::now() + TIMEOUT;
    let name = evenkeel_common::quota::table_name().expect("legal");
    while connection.admin().table_state(&name).await.expect("a state").is_none() {
        assert!(Instant::now() < deadline, "hbase:quota is created");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn requests_are_refused_and_clients_wait() {
    block_on(async {
        let mut server = Server::started(&[("hbase.quota.enabled", "true")]);
        let patient = server.connect().await;
        wait_for_quota_table(&patient).await;
        let name = create(&patient, "slow").await;
        let (admin, target) = (patient.admin(), QuotaTarget::Table(name.clone()));
        let number = Some(pb::ThrottleType::RequestNumber);
        admin.set_throttle(&target, number, limit(4, pb::TimeUnit::Seconds)).await.expect("set");
        let began = Instant::now();
        for _ in 0..10 {
            patient.table(name.clone()).get(Get::new("r")).await.expect("the client waits as it is told");
        }
        let took = began.elapsed();
        assert!((Duration::from_millis(1200)..Duration::from_secs(20)).contains(&took), "{took:?}");

        admin.set_throttle(&target, None, None).await.expect("removed");

        let name = create(&patient, "limited").await;
        let target = QuotaTarget::Table(name.clone());
        admin.set_throttle(&target, number, limit(1, pb::TimeUnit::Hours)).await.expect("set");
        let once = impatient(&server).await;
        once.table(name.clone()).get(Get::new("r")).await.expect("the limit is full");
        let text = refusal(once.table(name.clone()).get(Get::new("r")).await);
        assert!(text.contains("number of requests exceeded - wait "), "{text}");
        refusal(once.table(name.clone()).put(Put::new("r").column("f", "q", "w")).await);

        assert!(admin.is_rpc_throttle_enabled().await.expect("a reply"));
        assert!(admin.switch_rpc_throttle(false).await.expect("switched"));
        once.table(name.clone()).get(Get::new("r")).await.expect("throttles are off");
        assert!(!admin.switch_rpc_throttle(true).await.expect("switched"));
        refusal(once.table(name.clone()).get(Get::new("r")).await);

        server.kill();
        server.start();
        let once = impatient(&server).await;
        let gets = once.table(name.clone());
        gets.get(Get::new("r")).await.expect("a new server begins with full limits");
        refusal(gets.get(Get::new("r")).await);
        let admin = once.admin();
        let listed = admin.quotas(&QuotaFilter::default()).await.expect("listed");
        let [only] = &listed[..] else { panic!("one quota: {listed:?}") };
        assert_eq!(only.target, target);
        assert!(matches!(&only.quota, Quota::Throttle(pb::ThrottleType::RequestNumber, _)), "{only:?}");
        let (_, beans) = server.page("/jmx").expect("the page");
        assert!(beans.contains("RpcThrottlingException_Type_NumRequestsExceeded_User_"), "{beans}");

        admin.disable_table(&name).await.expect("disabled");
        admin.delete_table(&name).await.expect("deleted");
        assert_eq!(admin.quotas(&QuotaFilter::default()).await.expect("listed"), []);
    });
}

/// The delays and the periods of the tasks of quotas of space.
const SHORT: [(&str, &str); 9] = [
    ("hbase.quota.enabled", "true"),
    ("hbase.master.quotas.observer.chore.delay", "50"),
    ("hbase.master.quotas.observer.chore.period", "50"),
    ("hbase.master.quotas.snapshot.chore.delay", "50"),
    ("hbase.master.quotas.snapshot.chore.period", "50"),
    ("hbase.regionserver.quotas.policy.refresher.chore.delay", "50"),
    ("hbase.regionserver.quotas.policy.refresher.chore.period", "50"),
    ("hbase.regionserver.quotas.region.size.reporting.chore.delay", "50"),
    ("hbase.regionserver.quotas.region.size.reporting.chore.period", "50"),
];

/// Repeats writes of one cell until one is refused; returns the message.
async fn refused_put(connection: &Connection, name: &TableName) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let put = Put::new("s").column("f", "q", "v");
        match connection.table(name.clone()).put(put).await {
            Ok(()) => assert!(Instant::now() < deadline, "the quota is exceeded"),
            Err(error) => {
                assert_eq!(error.kind(), Some(ErrorKind::SpaceLimiting), "{error}");
                return error.to_string();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_table_that_exceeds_its_space_refuses_writes_also_after_a_kill() {
    block_on(async {
        let mut server = Server::started(&SHORT);
        let connection = server.connect().await;
        wait_for_quota_table(&connection).await;
        let name = create(&connection, "large").await;
        let (admin, target) = (connection.admin(), QuotaTarget::Table(name.clone()));
        let value = vec![b'v'; 10_000];
        connection.table(name.clone()).put(Put::new("r").column("f", "q", value)).await.expect("written");
        admin.flush_table(&name).await.expect("flushed");
        let limit = pb::SpaceQuota {
            soft_limit: Some(10),
            violation_policy: Some(pb::SpaceViolationPolicy::NoInserts.into()),
            remove: None,
        };
        admin.set_space_quota(&target, Some(limit)).await.expect("set");
        let text = refused_put(&connection, &name).await;
        assert!(text.contains("NO_INSERTS Puts are disallowed due to a space quota."), "{text}");

        server.kill();
        server.start();
        let connection = server.connect().await;
        // Before and after the first comparisons, which know no sizes.
        let ends_at = Instant::now() + Duration::from_secs(3);
        while Instant::now() < ends_at {
            let put = Put::new("s").column("f", "q", "v");
            let error = connection.table(name.clone()).put(put).await.expect_err("refused since the start");
            assert_eq!(error.kind(), Some(ErrorKind::SpaceLimiting), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let admin = connection.admin();
        // The policy is in force before the master of the new process has compared anything. The
        // size may change: the start has flushed what it replayed.
        let deadline = Instant::now() + TIMEOUT;
        let stored = loop {
            let stored = admin.stored_space_uses().await.expect("read");
            if admin.space_quota_states().await.expect("read").tables == stored {
                break stored;
            }
            assert!(Instant::now() < deadline, "the states are those of hbase:quota");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let [(table, found)] = &stored[..] else { panic!("one table: {stored:?}") };
        assert_eq!((table, found.violated), (&name, Some(pb::SpaceViolationPolicy::NoInserts)));
        assert_eq!(found.limit_bytes, 10);
        let sizes = admin.space_quota_table_sizes().await.expect("read");
        assert!(sizes.contains(&(name.clone(), found.used_bytes)), "{sizes:?}");
        admin.set_space_quota(&target, None).await.expect("removed");
        let put = Put::new("s").column("f", "q", "v");
        connection.table(name.clone()).put(put).await.expect("the removal applies at once");
        assert_eq!(admin.stored_space_uses().await.expect("read"), []);
    });
}

#[test]
fn without_the_setting_there_are_no_quotas() {
    block_on(async {
        let server = Server::started(&[]);
        let admin = server.connect().await.admin();
        let target = QuotaTarget::User("bob".to_owned());
        let number = Some(pb::ThrottleType::RequestNumber);
        let error =
            admin.set_throttle(&target, number, limit(1, pb::TimeUnit::Days)).await.expect_err("refused");
        assert!(error.to_string().contains("quota support disabled"), "{error}");
        assert!(!admin.is_rpc_throttle_enabled().await.expect("a reply"));
        assert!(!admin.switch_rpc_throttle(true).await.expect("a reply"));
        assert!(!admin.switch_exceed_throttle_quota(true).await.expect("a reply"));
        assert!(matches!(admin.quotas(&QuotaFilter::default()).await, Err(Error::TableNotFound(_))));
    });
}
