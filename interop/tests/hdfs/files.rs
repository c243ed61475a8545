//! Names, writers and readers on a healthy cluster.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use evenkeel_hdfs::{ChecksumResult, FlushLevel, NewFile};

use crate::{Turn, bytes, log, read_all};

#[test]
fn names_are_made_listed_renamed_and_deleted() {
    let client = Turn::take().client();
    let namenode = client.namenode();
    namenode.mkdirs("/names/a/b").expect("mkdirs");
    namenode.mkdirs("/names/a/b").expect("again");
    let small = client.new_file();
    for i in 0..20 {
        let path = format!("/names/a/file-{i:02}");
        client.create_bulk(&path, small).expect("created").close(FlushLevel::Flushed).expect("closed");
    }
    let listed = namenode.list("/names/a").expect("listed").expect("there");
    let names: Vec<String> = listed.iter().map(|s| String::from_utf8_lossy(&s.path).into_owned()).collect();
    assert_eq!(names.len(), 21, "over pages of 7");
    assert!(names.is_sorted() && names[0] == "b" && names[20] == "file-19");
    assert!(namenode.list("/names/none").expect("asked").is_none());
    assert!(namenode.file_info("/names/none").expect("asked").is_none());
    assert!(namenode.file_info("/names/a/file-00/x").expect("asked").is_none());

    namenode.rename("/names/a/file-00", "/names/a/file-01").expect("over a file");
    assert!(namenode.file_info("/names/a/file-00").expect("asked").is_none());
    let kind = |outcome: evenkeel_hdfs::Result<()>| outcome.expect_err("an error").kind();
    assert_eq!(kind(namenode.rename("/names/none", "/names/x")), ErrorKind::NotFound);
    assert_eq!(kind(namenode.rename("/names/a/file-01", "/no/x")), ErrorKind::NotFound);
    assert_eq!(
        namenode.create("/names/a/file-01", small).expect_err("there").kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(namenode.create("/no/x", small).expect_err("no parent").kind(), ErrorKind::NotFound);
    assert_eq!(namenode.delete("/names/a", false).expect_err("full").kind(), ErrorKind::DirectoryNotEmpty);
    assert!(namenode.delete("/names", true).expect("deleted"));
    assert!(!namenode.delete("/names", true).expect("gone"));
    assert!(!namenode.is_in_safe_mode().expect("asked"));
    assert!(!namenode.server_defaults().expect("asked").encrypt_data_transfer());
}

#[test]
fn a_log_is_visible_and_durable_as_far_as_it_was_acknowledged() {
    let mut turn = Turn::take();
    let client = turn.client();
    let mut writer = log(&client, "/log/a");
    assert_eq!(writer.replicas(), 3);
    let mut written = Vec::new();
    for len in [1, 511, 512, 513, 65536, 3, 13 << 20, 1] {
        let part = bytes(written.len(), len);
        writer.append(&part).expect("appended");
        writer.flush(FlushLevel::Flushed).expect("flushed");
        written.extend_from_slice(&part);
        assert_eq!(writer.acked(), written.len() as u64);
    }
    let status = client.namenode().file_info("/log/a").expect("asked").expect("there");
    assert_eq!(status.length, 0, "the NameNode does not know the length of an open file");
    assert!(read_all(&client, "/log/a") == written, "a reader sees all that was flushed");
    client.namenode().rename("/log/a", "/log/b").expect("renamed while open");
    writer.append(b"the end").expect("appended");
    written.extend_from_slice(b"the end");
    assert_eq!(writer.close(FlushLevel::Synced).expect("closed"), written.len() as u64);
    let status = client.namenode().file_info("/log/b").expect("asked").expect("there");
    assert_eq!(status.length, written.len() as u64);
    assert!(read_all(&client, "/log/b") == written);
    let java = turn.cluster().shell(&["-cat", "/log/b"]).expect("Hadoop's own client");
    assert!(java == written, "Hadoop's own client reads other bytes");
}

#[test]
fn a_sync_is_an_fsync_on_every_datanode() {
    let mut turn = Turn::take();
    let client = turn.client();
    let mut writer = log(&client, "/log/sync");
    writer.append(b"bytes").expect("appended");
    writer.flush(FlushLevel::Flushed).expect("flushed");
    let count = |turn: &mut Turn, node| turn.cluster().datanode_metric(node, "FsyncCount").expect("a metric");
    // The DataNodes' metrics are cached for 10 s.
    std::thread::sleep(Duration::from_secs(11));
    let before: Vec<u64> = (0..3).map(|node| count(&mut turn, node)).collect();
    for _ in 0..5 {
        writer.flush(FlushLevel::Synced).expect("synced, without new bytes");
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    for (node, before) in before.into_iter().enumerate() {
        while count(&mut turn, node) < before + 5 {
            assert!(Instant::now() < deadline, "DataNode {node} has not fsynced 5 times");
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(count(&mut turn, node), before + 5, "DataNode {node}");
    }
    writer.close(FlushLevel::Flushed).expect("closed");
}

#[test]
fn many_flushes_can_be_in_flight() {
    let client = Turn::take().client();
    let mut writer = log(&client, "/log/pipelined");
    let (mut written, mut last) = (Vec::new(), None);
    for i in 0..1000 {
        let part = bytes(written.len(), 1 + i % 900);
        writer.append(&part).expect("appended");
        written.extend_from_slice(&part);
        last = Some(writer.start_flush(FlushLevel::Flushed).expect("sent"));
    }
    writer.wait(last.expect("one")).expect("flushed");
    assert_eq!(writer.acked(), written.len() as u64);
    writer.close(FlushLevel::Flushed).expect("closed");
    assert!(read_all(&client, "/log/pipelined") == written);
}

#[test]
fn a_bulk_file_has_several_blocks_and_is_read_anywhere() {
    let mut turn = Turn::take();
    let client = turn.client();
    let file = NewFile { block_bytes: 1 << 20, parents: true, ..client.new_file() };
    let written = bytes(0, (3 << 20) + 54_321);
    let mut writer = client.create_bulk("/bulk/f", file).expect("created");
    for part in written.chunks(100_000) {
        writer.append(part).expect("appended");
    }
    assert_eq!(writer.close(FlushLevel::Synced).expect("closed"), written.len() as u64);
    assert!(read_all(&client, "/bulk/f") == written);
    let reader = client.open("/bulk/f").expect("opened");
    for offset in (0..written.len()).step_by(77_777) {
        let mut buf = vec![0; 3000.min(written.len() - offset)];
        let read = reader.read_verified_at(offset as u64, &mut buf).expect("read");
        assert_eq!(read, (buf.len(), ChecksumResult::Matches));
        assert!(buf == written[offset..offset + buf.len()], "at {offset}");
    }
    let mut stored = 0;
    for block in reader.blocks(0..written.len() as u64) {
        let replicas = block.locs.iter().filter(|node| node.id.host_name == "localhost").count() as u64;
        stored += replicas * block.b.num_bytes.expect("a length");
    }
    assert_eq!(stored, 3 * written.len() as u64, "three DataNodes on one host");
    assert!(turn.cluster().shell(&["-cat", "/bulk/f"]).expect("Hadoop's own client") == written);
}

#[test]
fn recovery_ends_a_file_and_fences_its_writer() {
    let client = Turn::take().client();
    let mut zombie = log(&client, "/wals/server/a");
    zombie.append(b"acknowledged").expect("appended");
    zombie.flush(FlushLevel::Flushed).expect("flushed");
    client.namenode().rename("/wals/server", "/wals/server-splitting").expect("renamed");
    zombie.append(b", still").expect("appended");
    zombie.flush(FlushLevel::Flushed).expect("a rename does not fence an open file");

    let other = evenkeel_hdfs::HdfsClient::new(client.settings().clone()).expect("threads");
    let (path, deadline) = ("/wals/server-splitting/a", Instant::now() + Duration::from_secs(60));
    other.recover(path, deadline, &|| true).expect("recovered");
    assert!(other.namenode().is_file_closed(path).expect("asked"));
    let recovered = read_all(&other, path);
    assert_eq!(recovered, b"acknowledged, still");
    let status = other.namenode().file_info(path).expect("asked").expect("there");
    assert_eq!(status.length, recovered.len() as u64);

    let lost = zombie.append(b" lost").and_then(|()| zombie.flush(FlushLevel::Flushed));
    assert!(lost.is_err(), "its replicas were taken from it");
    let next = client.create_log("/wals/server/b", client.new_file());
    assert_eq!(next.expect_err("fenced").kind(), ErrorKind::NotFound);
    assert_eq!(read_all(&other, path), recovered);
    let gone = other.recover("/wals/none", deadline, &|| true).expect_err("not there");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn a_lost_lease_is_seen_by_close() {
    let client = Turn::take().client();
    let mut writer = log(&client, "/log/lost");
    writer.append(b"bytes").expect("appended");
    writer.flush(FlushLevel::Flushed).expect("flushed");
    assert!(client.namenode().delete("/log/lost", false).expect("deleted"));
    let error = writer.close(FlushLevel::Flushed).expect_err("the file is gone");
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied), "{error}");
}
