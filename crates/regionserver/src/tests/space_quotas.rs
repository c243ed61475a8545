//! Quotas of space: which requests each policy refuses, and what a refusal leaves unchanged.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::quota::space::{Policy, SpaceUse};
use evenkeel_common::{CallerState, CellType, Configuration, ErrorKind, HBaseError, KeyValue, Result};
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_protocol::{DecodeBudget, pb};
use evenkeel_region::operations::Scan;
use evenkeel_region::region::Region;
use prost::Message;

use super::reads_and_writes::{request, write};
use crate::RegionServerConfig;
use crate::convert::multi::MultiRequest;
use crate::quotas::settings::QuotaSettings;
use crate::requests::inline::RunsOn;
use crate::requests::{bulk_load, multi};
use crate::testing::*;

/// A server with one region of the table `t`.
struct Limited {
    server: TestServer,
    region: Arc<Region>,
}

impl Limited {
    fn start() -> Self {
        let mut conf = Configuration::new();
        conf.set("hbase.quota.enabled", "true");
        conf.set("hbase.superuser", "root");
        let quotas = QuotaSettings::from(&conf).expect("valid");
        let server = TestServer::new(RegionServerConfig { quotas, ..RegionServerConfig::default() });
        let region = server.open(b"", b"", table());
        Self { server, region }
    }

    /// Puts a policy in force, or none, with `free` bytes left.
    fn set(&self, violated: Option<Policy>, free: u64) {
        let found = SpaceUse { violated, used_bytes: 100, limit_bytes: 100 + free };
        let space = self.server.server.space_quotas().expect("enabled");
        space.install(HashMap::from([("t".parse().expect("legal"), found)]));
    }

    fn write(&self, kind: MutationType, condition: Option<pb::Condition>) -> Result<()> {
        let request = pb::MutateRequest { condition, ..request(&self.region, kind, b"r") };
        write(&self.server, &request, &[value_of(kind)], caller()).map(drop)
    }

    fn multi(&self, atomic: bool, kinds: &[MutationType]) -> Vec<Result<()>> {
        let action = |(index, kind): (usize, &MutationType)| pb::Action {
            index: Some(u32::try_from(index).expect("small")),
            mutation: Some(pb::MutationProto {
                row: Some(Bytes::from_static(b"r")),
                mutate_type: Some(*kind as i32),
                associated_cell_count: Some(1),
                ..Default::default()
            }),
            ..Default::default()
        };
        let region_action = vec![pb::RegionAction {
            region: specifier(&self.region),
            atomic: Some(atomic),
            action: kinds.iter().enumerate().map(action).collect(),
            condition: None,
        }];
        let message = pb::MultiRequest { region_action, ..Default::default() };
        let mut none = || None;
        let mut budget = DecodeBudget::new(1 << 30, &mut none);
        let request = MultiRequest::decode(message.encode_to_vec().into(), &mut budget).expect("well-formed");
        let cells: Vec<_> = kinds.iter().map(|kind| value_of(*kind)).collect();
        let reply = wait(|reply| {
            let state = CallerState::default();
            multi::multi(
                &self.server.server,
                &request,
                block(&cells),
                (caller(), &state),
                reply,
                RunsOn::Blocking,
            );
        });
        let reply = reply.expect("answered").message.encode_to_vec();
        let reply = pb::MultiResponse::decode(&reply[..]).expect("well-formed");
        let result = &reply.region_action_result[0];
        let error = |exception: &pb::NameBytesPair| {
            assert_eq!(exception.name, ErrorKind::SpaceLimiting.class_name());
            let text = String::from_utf8_lossy(exception.value.as_deref().unwrap_or_default()).into_owned();
            HBaseError::new(ErrorKind::SpaceLimiting, text)
        };
        if let Some(exception) = &result.exception {
            return vec![Err(error(exception))];
        }
        let all = result.result_or_exception.iter();
        all.map(|one| one.exception.as_ref().map_or(Ok(()), |exception| Err(error(exception)))).collect()
    }

    fn cells(&self) -> usize {
        self.region.get(Scan::get("r")).expect("read").len()
    }
}

fn value_of(kind: MutationType) -> KeyValue {
    match kind {
        MutationType::Increment => cell(b"r", b"n", &1_i64.to_be_bytes()),
        MutationType::Delete => {
            let (row, family, qualifier, kind) = (b"r", b"f", b"q", CellType::DeleteColumn);
            KeyValueBuilder { row, family, qualifier, timestamp: 1, kind, value: &[], tags: &[] }.build()
        }
        _ => cell(b"r", b"q", b"v"),
    }
}

#[track_caller]
fn refused(outcome: Result<()>) -> String {
    let error = outcome.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::SpaceLimiting, "{error}");
    error.message().to_owned()
}

const KINDS: [MutationType; 4] =
    [MutationType::Put, MutationType::Delete, MutationType::Increment, MutationType::Append];

#[test]
fn single_writes_are_refused_as_their_policy_says() {
    let limited = Limited::start();
    KINDS.into_iter().for_each(|kind| limited.write(kind, None).expect("no quota"));
    limited.set(None, 0);
    KINDS.into_iter().for_each(|kind| limited.write(kind, None).expect("within the quota"));
    let before = limited.cells();
    limited.set(Some(Policy::NoInserts), 0);
    let names = ["Put", "Delete", "Increment", "Append"];
    for (kind, name) in KINDS.into_iter().zip(names) {
        match kind {
            MutationType::Delete => limited.write(kind, None).expect("deletes free space"),
            _ => {
                let text = format!("NO_INSERTS {name}s are disallowed due to a space quota.");
                assert_eq!(refused(limited.write(kind, None)), text);
            }
        }
    }
    for policy in [Policy::NoWrites, Policy::NoWritesCompactions, Policy::Disable] {
        limited.set(Some(policy), 0);
        for kind in KINDS {
            assert!(refused(limited.write(kind, None)).starts_with(policy.as_str_name()));
        }
    }
    assert_eq!(limited.cells(), before, "a refused write writes nothing");
    limited.server.server.space_quotas().expect("enabled").install(HashMap::new());
    KINDS.into_iter().for_each(|kind| limited.write(kind, None).expect("the quota is removed"));
}

#[test]
fn conditional_writes_are_refused_whether_their_condition_holds_or_not() {
    let limited = Limited::start();
    let condition = |value: &'static [u8]| pb::Condition {
        row: Bytes::from_static(b"r"),
        family: Some(Bytes::from_static(b"f")),
        qualifier: Some(Bytes::from_static(b"none")),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".into(),
            serialized_comparator: Some(
                pb::BinaryComparator {
                    comparable: pb::ByteArrayComparable { value: Some(Bytes::from_static(value)) },
                }
                .encode_to_vec()
                .into(),
            ),
        }),
        ..Default::default()
    };
    limited.write(MutationType::Put, Some(condition(b"x"))).expect("no quota");
    limited.set(Some(Policy::NoInserts), 0);
    let text = "NO_INSERTS Puts are disallowed due to a space quota.";
    assert_eq!(refused(limited.write(MutationType::Put, Some(condition(b"x")))), text);
    limited.write(MutationType::Delete, Some(condition(b"x"))).expect("a delete");
}

#[test]
fn batches_are_refused_together_and_atomic_ones_as_a_whole() {
    use MutationType::{Append, Delete, Increment, Put};
    let limited = Limited::start();
    assert_eq!(limited.multi(false, &[Put, Delete, Increment]), [const { Ok(()) }; 3]);
    limited.set(Some(Policy::NoInserts), 0);
    assert_eq!(limited.multi(false, &[Delete, Delete]), [const { Ok(()) }; 2]);
    assert_eq!(limited.multi(true, &[Delete, Delete]).iter().filter(|outcome| outcome.is_err()).count(), 0);
    let outcomes = limited.multi(false, &[Delete, Put, Append]);
    let texts: Vec<_> = outcomes.into_iter().map(refused).collect();
    // As in HBase, the Delete is in one batch with the Put.
    for (text, kind) in texts.iter().zip(["Put", "Put", "Append"]) {
        assert!(text.contains(&format!("NO_INSERTS {kind}s are disallowed due to a space quota.")), "{text}");
    }
    let outcomes = limited.multi(false, &[Delete, Increment]);
    assert!(outcomes[0].is_ok() && outcomes[1].is_err(), "Increments are not in the batch: {outcomes:?}");
    for middle in [Increment, Append] {
        let outcomes = limited.multi(false, &[Delete, middle, Put, Delete, middle, Delete]);
        let are_allowed: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!(are_allowed, [true, false, false, false, false, true], "{middle:?} ends a batch");
    }
    for kinds in [&[Delete, Put][..], &[Put][..], &[Delete, Increment]] {
        let [outcome] = &limited.multi(true, kinds)[..] else { panic!("one outcome of {kinds:?}") };
        assert!(outcome.is_err(), "{kinds:?}");
    }
    limited.set(Some(Policy::NoWrites), 0);
    assert!(limited.multi(false, &[Delete, Put]).iter().all(Result::is_err));
}

/// Writes an HFile for the region; returns its path and its length.
fn hfile(region: &Region, path: &str) -> (pb::bulk_load_h_file_request::FamilyPath, u64) {
    let fs = &**region.file_system();
    let mut writer = HFileWriter::create(fs, Path::new(path), HFileContext::default()).expect("a new file");
    writer.append(&cell(b"a", b"q", b"v").as_cell()).expect("in order");
    writer.finish(StoreFileMeta::default()).expect("written");
    let len = fs.status(Path::new(path)).expect("there").len;
    (
        pb::bulk_load_h_file_request::FamilyPath {
            family: Bytes::from_static(b"f"),
            path: format!("file:{path}"),
        },
        len,
    )
}

#[test]
fn files_are_loaded_if_they_fit_into_the_free_space() {
    let limited = Limited::start();
    limited.server.server.background().switch_compactions(false);
    let (first, len) = hfile(&limited.region, "/in/1");
    let (second, _) = hfile(&limited.region, "/in/2");
    let load = |files: &[pb::bulk_load_h_file_request::FamilyPath], token: Option<String>| {
        let request = pb::BulkLoadHFileRequest {
            region: specifier(&limited.region),
            family_path: files.to_vec(),
            bulk_token: token,
            assign_seq_num: Some(true),
            ..Default::default()
        };
        bulk_load::bulk_load(&limited.server.server, &request).map(|response| response.loaded)
    };
    let both = [first.clone(), second];
    let message = |policy: &str| {
        format!(
            "{policy} Bulk load of [file:/in/1, file:/in/2] is disallowed because the file(s) exceed the limits of a \
             space quota."
        )
    };
    limited.set(None, 2 * len - 1);
    for token in [None, Some("file:/hbase/staging/x".to_owned())] {
        assert_eq!(refused(load(&both, token).map(drop)), message("BulkLoadVerifying"));
    }
    limited.set(Some(Policy::NoWrites), 0);
    assert_eq!(refused(load(&both, None).map(drop)), message("NO_WRITES"));
    limited.set(None, 2 * len);
    let gone = pb::bulk_load_h_file_request::FamilyPath { path: "file:/in/none".into(), ..first.clone() };
    assert_eq!(
        refused(load(&[first, gone], None).map(drop)),
        "BulkLoadVerifying Could not verify length of file to bulk load: file:/in/none"
    );
    assert_eq!(limited.region.load().store_files, 0);
    assert_eq!(load(&both, None), Ok(true));
    assert_eq!(limited.server.server.region_sizes(), [(limited.region.info().clone(), 2 * len)]);

    let token = "file:/hbase/staging/bob__t__1";
    limited.region.file_system().mkdirs(Path::new("/hbase/staging/bob__t__1")).expect("made");
    let (own, _) = hfile(&limited.region, "/hbase/staging/bob__t__1/3");
    assert_eq!(load(std::slice::from_ref(&own), Some(token.to_owned())), Ok(true));
    assert!(
        !limited.region.file_system().exists(Path::new("/hbase/staging/bob__t__1/3")).expect("looked up")
    );
    limited.set(Some(Policy::NoWrites), 0);
    assert_eq!(load(std::slice::from_ref(&own), Some(token.to_owned())), Ok(true), "it is loaded already");
    assert_eq!(limited.region.load().store_files, 3);
    let gone = pb::bulk_load_h_file_request::FamilyPath {
        path: "file:/hbase/staging/bob__t__1/4".into(),
        ..own.clone()
    };
    assert!(
        refused(load(&[own, gone], Some(token.to_owned())).map(drop)).contains("Could not verify length")
    );
}

#[test]
fn compactions_are_refused_to_users_of_one_policy() {
    let limited = Limited::start();
    let server = &limited.server.server;
    let check = |user: Option<&str>| server.check_compaction_space(&limited.region, user);
    for policy in [Policy::NoInserts, Policy::NoWrites, Policy::Disable] {
        limited.set(Some(policy), 0);
        check(Some("bob")).expect("compactions are not disabled");
    }
    limited.set(Some(Policy::NoWritesCompactions), 0);
    for user in [Some("bob"), Some("bob/host@REALM"), None] {
        let error = check(user).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
        assert_eq!(
            error.message(),
            "Compactions on this region are disabled due to a space quota violation."
        );
    }
    check(Some("root/host@REALM")).expect("a superuser");
}

#[test]
fn a_server_reports_the_use_of_each_table() {
    let limited = Limited::start();
    assert_eq!(limited.server.server.space_quota_snapshots().snapshots, []);
    limited.set(Some(Policy::NoWrites), 5);
    let [one] = &limited.server.server.space_quota_snapshots().snapshots[..] else { panic!("one table") };
    let found = SpaceUse::from_message(&one.snapshot.expect("set"));
    assert_eq!(found, SpaceUse { violated: Some(Policy::NoWrites), used_bytes: 100, limit_bytes: 105 });
    let without = TestServer::new(RegionServerConfig::default());
    assert_eq!(without.server.space_quota_snapshots().snapshots, []);
}
