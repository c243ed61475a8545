//! The normalizer merges small regions and splits large ones, and no row is lost.

use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{Connection, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, runtime};

const MIB: usize = 1 << 20;

fn descriptor(name: &str, attributes: &[(&str, &str)]) -> TableDescriptor {
    let table = TableDescriptor::new(name.parse().expect("legal"))
        .with("NORMALIZATION_ENABLED", "true")
        .with("hbase.normalizer.merge.min_region_age.days", "0")
        .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
}

/// Writes rows `prefix`0000 and so on, and flushes them.
async fn fill(connection: &Connection, name: &TableName, prefix: &str, rows: usize, bytes: usize) {
    let table = connection.table(name.clone());
    for n in 0..rows {
        let put = Put::new(format!("{prefix}{n:04}")).column("f", "q", vec![n as u8; bytes]);
        table.put(put).await.expect("written");
    }
    connection.admin().flush_table(name).await.expect("flushed");
}

async fn rows(connection: &Connection, name: &TableName) -> usize {
    let mut scanner = connection.table(name.clone()).scan(Scan::new());
    let mut count = 0;
    while scanner.next().await.expect("scanned").is_some() {
        count += 1;
    }
    count
}

async fn region_count(connection: &Connection, name: &TableName) -> usize {
    connection.admin().regions(name).await.expect("listed").len()
}

/// Asks for normalization until a table's number of regions fits.
async fn normalize_until(connection: &Connection, name: &TableName, fits: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // False while a region is in transition.
        connection.admin().normalize(std::slice::from_ref(name)).await.expect("asked");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let count = region_count(connection, name).await;
        if fits(count) {
            return;
        }
        assert!(Instant::now() < deadline, "{name} has {count} regions");
    }
}

#[test]
fn small_regions_are_merged_and_a_large_one_is_split() {
    let server = Server::started(&[("hbase.normalizer.period", "0")]);
    runtime().block_on(async {
        let connection = server.connect().await;
        let admin = connection.admin();

        let small = descriptor("small", &[("NORMALIZER_TARGET_REGION_SIZE_MB", "4")])
            .with("hbase.normalizer.merge.min.region.count", "4");
        let splits: Vec<_> = ('b'..='l').map(|c| Bytes::from(c.to_string())).collect();
        admin.create_table(&small, &splits).await.expect("created");
        for prefix in 'a'..='l' {
            fill(&connection, small.name(), &prefix.to_string(), 20, 100).await;
        }
        let large = descriptor("large", &[("NORMALIZER_TARGET_REGION_SIZE_MB", "2")]);
        admin.create_table(&large, &[]).await.expect("created");
        fill(&connection, large.name(), "r", 300, 6 * MIB / 300).await;
        let off = descriptor("off", &[("hbase.normalizer.split.enabled", "false")]);
        let off = off.with("NORMALIZER_TARGET_REGION_SIZE_MB", "1");
        admin.create_table(&off, &[]).await.expect("created");
        fill(&connection, off.name(), "r", 100, 3 * MIB / 100).await;

        assert!(admin.set_normalizer(false).await.expect("set"));
        assert!(!admin.normalize(&[]).await.expect("asked"));
        assert!(!admin.set_normalizer(true).await.expect("set"));
        assert_eq!(region_count(&connection, small.name()).await, 12, "nothing happens before a request");

        // Each region reports 1 MiB, so four of them fit into the target size.
        normalize_until(&connection, small.name(), |count| count == 3).await;
        normalize_until(&connection, large.name(), |count| count >= 2).await;
        // One thread takes the tables in their order, so `off` was done before `other`.
        let other = descriptor("other", &[("NORMALIZER_TARGET_REGION_SIZE_MB", "1")]);
        admin.create_table(&other, &[]).await.expect("created");
        fill(&connection, other.name(), "r", 100, 3 * MIB / 100).await;
        let both = [off.name().clone(), other.name().clone()];
        let deadline = Instant::now() + TIMEOUT;
        while !admin.normalize(&both).await.expect("asked") {
            assert!(Instant::now() < deadline, "a region is in transition");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while region_count(&connection, other.name()).await < 2 {
            assert!(Instant::now() < deadline, "the other table is not split");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(region_count(&connection, off.name()).await, 1);
        assert_eq!(rows(&connection, small.name()).await, 12 * 20);
        assert_eq!(rows(&connection, large.name()).await, 300);
        assert_eq!(rows(&connection, off.name()).await, 100);
    });
}

#[test]
fn the_periodic_run_normalizes_tables_that_the_setting_chooses() {
    let server = Server::started(&[
        ("hbase.normalizer.period", "200"),
        ("hbase.table.normalization.enabled", "true"),
        ("hbase.normalizer.merge.min_region_age.days", "0"),
        ("hbase.normalizer.merge.min_region_size.mb", "0"),
    ]);
    runtime().block_on(async {
        let connection = server.connect().await;
        let of = |name: &str| {
            TableDescriptor::new(name.parse().expect("legal"))
                .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"))
        };
        let (chosen, kept) = (of("chosen"), of("kept").with("NORMALIZATION_ENABLED", "false"));
        let splits = ["b", "c", "d"].map(Bytes::from);
        for table in [&kept, &chosen] {
            connection.admin().create_table(table, &splits).await.expect("created");
        }
        let deadline = Instant::now() + TIMEOUT;
        while region_count(&connection, chosen.name()).await > 1 {
            assert!(Instant::now() < deadline, "the regions are not merged");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(region_count(&connection, kept.name()).await, 4);
    });
}
