//! The messages against bytes written by hand: the bytes of HBase's clients, servers and files must
//! decode to and encode from these structs exactly.

use bytes::Bytes;
use evenkeel_protocol::Any;
use evenkeel_protocol::pb::*;
use prost::Message;

/// `message` encodes to `golden`, and `golden` decodes to `message`.
fn assert_golden<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, golden: &[u8]) {
    assert_eq!(message.encode_to_vec(), golden);
    assert_eq!(M::decode(golden).as_ref(), Ok(message));
}

fn utf8(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn get_request_with_a_column() {
    let request = GetRequest {
        region: RegionSpecifier {
            r#type: region_specifier::RegionSpecifierType::RegionName.into(),
            value: utf8("t,,1"),
        },
        get: Get {
            row: utf8("row"),
            column: vec![Column { family: utf8("f"), qualifier: vec![utf8("q")] }],
            max_versions: Some(300),
            existence_only: Some(false),
            ..Get::default()
        },
    };
    let golden = [
        &[0x0a, 8][..],                     // 1 region: 8 bytes
        &[0x08, 1],                         //   1 type: REGION_NAME
        &[0x12, 4, b't', b',', b',', b'1'], //   2 value
        &[0x12, 18],                        // 2 get: 18 bytes
        &[0x0a, 3, b'r', b'o', b'w'],       //   1 row
        &[0x12, 6],                         //   2 column: 6 bytes
        &[0x0a, 1, b'f', 0x12, 1, b'q'],    //     1 family, 2 qualifier
        &[0x30, 0xac, 0x02],                //   6 max_versions: 300
        &[0x50, 0],                         //   10 existence_only: false, present
    ]
    .concat();
    assert_golden(&request, &golden);
}

#[test]
fn multi_response_with_a_result_and_an_exception() {
    let result = ResultOrException {
        index: Some(0),
        result: Some(Result { associated_cell_count: Some(2), ..Result::default() }),
        ..ResultOrException::default()
    };
    let exception = ResultOrException {
        index: Some(1),
        exception: Some(NameBytesPair { name: "E".to_owned(), value: Some(utf8("m")) }),
        ..ResultOrException::default()
    };
    let response = MultiResponse {
        region_action_result: vec![RegionActionResult {
            result_or_exception: vec![result, exception],
            ..RegionActionResult::default()
        }],
        processed: Some(true),
        region_statistics: None,
    };
    let golden = [
        &[0x0a, 20][..],                 // 1 regionActionResult: 20 bytes
        &[0x0a, 6],                      //   1 resultOrException: 6 bytes
        &[0x08, 0],                      //     1 index: 0, present
        &[0x12, 2, 0x10, 2],             //     2 result: 2 associated_cell_count
        &[0x0a, 10],                     //   1 resultOrException: 10 bytes
        &[0x08, 1],                      //     1 index
        &[0x1a, 6],                      //     3 exception: 6 bytes
        &[0x0a, 1, b'E', 0x12, 1, b'm'], //       1 name, 2 value
        &[0x10, 1],                      // 2 processed
    ]
    .concat();
    assert_golden(&response, &golden);
}

#[test]
fn hfile_trailer() {
    let trailer = FileTrailerProto {
        file_info_offset: Some(0),
        load_on_open_data_offset: Some(128),
        entry_count: Some(1),
        num_data_index_levels: Some(1),
        comparator_class_name: Some("C".to_owned()),
        compression_codec: Some(2),
        ..FileTrailerProto::default()
    };
    let golden = [
        &[0x08, 0][..],      // 1 file_info_offset: 0, present
        &[0x10, 0x80, 0x01], // 2 load_on_open_data_offset: 128
        &[0x38, 1],          // 7 entry_count
        &[0x40, 1],          // 8 num_data_index_levels
        &[0x5a, 1, b'C'],    // 11 comparator_class_name
        &[0x60, 2],          // 12 compression_codec
    ]
    .concat();
    assert_golden(&trailer, &golden);
}

#[test]
fn wal_key_with_a_cluster_and_an_attribute() {
    let key = WalKey {
        encoded_region_name: utf8("e"),
        table_name: utf8("t"),
        log_sequence_number: 5,
        write_time: 0,
        scopes: vec![FamilyScope { family: utf8("f"), scope_type: ScopeType::ReplicationScopeGlobal.into() }],
        following_kv_count: Some(3),
        cluster_ids: vec![Uuid { least_sig_bits: 1, most_sig_bits: u64::MAX }],
        extended_attributes: vec![Attribute { key: "k".to_owned(), value: utf8("v") }],
        ..WalKey::default()
    };
    let golden = [
        &[0x0a, 1, b'e'][..],      // 1 encoded_region_name
        &[0x12, 1, b't'],          // 2 table_name
        &[0x18, 5],                // 3 log_sequence_number
        &[0x20, 0],                // 4 write_time: required, so present
        &[0x32, 5],                // 6 scopes: 5 bytes
        &[0x0a, 1, b'f', 0x10, 1], //   1 family, 2 scope_type
        &[0x38, 3],                // 7 following_kv_count
        &[0x42, 13],               // 8 cluster_ids: 13 bytes
        &[0x08, 1, 0x10],          //   1 least_sig_bits, 2 most_sig_bits: all ones
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x62, 6],                      // 12 extended_attributes: 6 bytes
        &[0x0a, 1, b'k', 0x12, 1, b'v'], //   1 key, 2 value
    ]
    .concat();
    assert_golden(&key, &golden);
}

#[test]
fn repeated_numbers_are_packed_only_where_declared() {
    let response = ScanResponse { cells_per_result: vec![1, 2], ..ScanResponse::default() };
    assert_golden(&response, &[0x08, 1, 0x08, 2]);
    assert_eq!(ScanResponse::decode(&[0x0a, 2, 1, 2][..]), Ok(response), "a reader takes both forms");
    let filter = TimestampsFilter { timestamps: vec![1, 2], can_hint: None };
    assert_golden(&filter, &[0x0a, 2, 1, 2]);
}

#[test]
fn any_carries_a_message_and_its_type() {
    let procedure = Procedure {
        class_name: "P".to_owned(),
        state_message: vec![Any { type_url: "u".to_owned(), value: utf8("v") }],
        ..Procedure::default()
    };
    let bytes = procedure.encode_to_vec();
    let state_message = [0x7a, 6, 0x0a, 1, b'u', 0x12, 1, b'v']; // 15 state_message: 1 type_url, 2 value
    assert!(bytes.ends_with(&state_message), "{bytes:?}");
    assert_eq!(Procedure::decode(&bytes[..]), Ok(procedure));
}

#[test]
fn getters_answer_the_declared_defaults() {
    assert_eq!(Get::default().max_versions(), 1);
    assert!(Get::default().cache_blocks());
    assert!(Scan::default().include_start_row());
    assert!(!Scan::default().include_stop_row());
    assert_eq!(Scan::default().consistency(), Consistency::Strong);
    assert_eq!(MutationProto::default().durability(), mutation_proto::Durability::UseDefault);
    assert_eq!(open_region_request::RegionOpenInfo::default().open_proc_id(), -1);
    assert_eq!(CloseRegionRequest::default().close_proc_id(), -1);
    assert!(CloseRegionRequest::default().transition_in_zk());
    assert_eq!(SlowLogResponseRequest::default().limit(), 10);
    assert!(ModifyTableRequest::default().reopen_regions());
    assert_eq!(snapshot_description::Type::Flush, SnapshotDescription::default().r#type());
}

#[test]
fn absent_required_fields_decode_to_defaults() {
    assert_eq!(GetRequest::decode(&b""[..]), Ok(GetRequest::default()));
    assert_eq!(RegionSpecifier::default().r#type, 1, "the first value of the enum, not zero");
}

#[test]
fn damaged_messages_are_errors() {
    for damage in [&[0x0a, 5, 1][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x0d, 0], &[0x07]] {
        assert!(GetRequest::decode(damage).is_err(), "{damage:?}");
    }
}

#[test]
fn bytes_share_the_decoded_frame() {
    let frame = Bytes::from(vec![0x0a, 3, b'r', b'o', b'w']);
    let get = Get::decode(frame.clone()).expect("a row alone is a Get");
    assert_eq!(get.row.as_ptr(), frame[2..].as_ptr());
}

/// The bytes of field `number` with the varint 1.
fn one(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number) << 3, &mut bytes);
    bytes.push(1);
    bytes
}

/// The bytes of field `number` with the two bytes `08 01`: those of a string or bytes field, or a
/// message whose field 1 is the varint 1.
fn two_bytes(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut bytes);
    bytes.extend_from_slice(&[2, 8, 1]);
    bytes
}

/// Asserts that `$bytes` decode to a `$message` of which `$check` is true, as it is not of the
/// default message.
macro_rules! assert_field {
    ($bytes:expr, $message:ty, $check:expr) => {{
        let check: fn(&$message) -> bool = $check;
        let what = concat!(stringify!($message), " ", stringify!($check));
        assert!(check(&<$message>::decode(&$bytes[..]).expect(what)), "{what}");
        assert!(!check(&<$message>::default()), "{what}: true without the field");
    }};
}

const TEXT: &str = "\x08\x01";

#[test]
fn rpc_fields_have_their_numbers() {
    assert_field!(two_bytes(2), ConnectionHeader, |m| m.service_name() == TEXT);
    assert_field!(two_bytes(3), ConnectionHeader, |m| m.cell_block_codec_class() == TEXT);
    assert_field!(two_bytes(4), ConnectionHeader, |m| m.cell_block_compressor_class() == TEXT);
    assert_field!(one(1), RequestHeader, |m| m.call_id == Some(1));
    assert_field!(two_bytes(3), RequestHeader, |m| m.method_name() == TEXT);
    assert_field!(one(4), RequestHeader, |m| m.request_param());
    assert_field!(two_bytes(5), RequestHeader, |m| m.cell_block_meta
        == Some(CellBlockMeta { length: Some(1) }));
    assert_field!(one(6), RequestHeader, |m| m.priority == Some(1));
    assert_field!(one(7), RequestHeader, |m| m.timeout == Some(1));
    assert_field!(one(1), ResponseHeader, |m| m.call_id == Some(1));
    assert_field!(two_bytes(3), ResponseHeader, |m| m.cell_block_meta
        == Some(CellBlockMeta { length: Some(1) }));
    assert_field!(two_bytes(1), ExceptionResponse, |m| m.exception_class_name() == TEXT);
    assert_field!(two_bytes(2), ExceptionResponse, |m| m.stack_trace() == TEXT);
    assert_field!(one(5), ExceptionResponse, |m| m.do_not_retry());
    assert_field!(one(6), ExceptionResponse, |m| m.server_overloaded());
}

#[test]
fn client_fields_have_their_numbers() {
    assert_field!(one(11), Get, |m| m.closest_row_before());
    assert_field!(one(14), Get, |m| m.load_column_families_on_demand());
    assert_field!(one(2), MutationProto, |m| m.mutate_type == Some(1));
    assert_field!(one(8), MutationProto, |m| m.associated_cell_count == Some(1));
    assert_field!(one(9), MutationProto, |m| m.nonce == Some(1));
    assert_field!(one(4), MutateRequest, |m| m.nonce_group == Some(1));
    assert_field!(two_bytes(3), Scan, |m| m.start_row() == TEXT.as_bytes());
    assert_field!(two_bytes(4), Scan, |m| m.stop_row() == TEXT.as_bytes());
    assert_field!(one(15), Scan, |m| m.reversed());
    assert_field!(one(17), Scan, |m| m.caching == Some(1));
    assert_field!(one(20), Scan, |m| m.mvcc_read_point == Some(1));
    assert_field!(one(22), Scan, |m| m.include_stop_row());
    assert_field!(one(23), Scan, |m| m.read_type() == scan::ReadType::Stream);
    assert_field!(one(24), Scan, |m| m.need_cursor_result());
    assert_field!(one(3), ScanRequest, |m| m.scanner_id == Some(1));
    assert_field!(one(5), ScanRequest, |m| m.close_scanner());
    assert_field!(one(6), ScanRequest, |m| m.next_call_seq == Some(1));
    assert_field!(one(11), ScanRequest, |m| m.limit_of_rows == Some(1));
    assert_field!(one(3), ScanResponse, |m| m.more_results());
    assert_field!(one(7), ScanResponse, |m| m.partial_flag_per_result == [true]);
    assert_field!(one(8), ScanResponse, |m| m.more_results_in_region());
    assert_field!(one(9), ScanResponse, |m| m.heartbeat_message());
    assert_field!(one(2), RegionAction, |m| m.atomic());
    assert_field!(one(2), MultiRequest, |m| m.nonce_group == Some(1));
    assert_field!(one(5), Result, |m| m.partial());
}

#[test]
fn server_fields_have_their_numbers() {
    assert_field!(one(3), ServerName, |m| m.start_code == Some(1));
    assert_field!(one(7), RegionInfo, |m| m.replica_id == Some(1));
    assert_field!(one(1), TableState, |m| m.state() == table_state::State::Disabled);
    assert_field!(one(3), RegionServerStartupRequest, |m| m.server_current_time == 1);
    assert_field!(one(3), RegionStateTransition, |m| m.open_seq_num == Some(1));
    assert_field!(one(1), CreateTableResponse, |m| m.proc_id == Some(1));
    assert_field!(one(2), MetaRegionServer, |m| m.rpc_version == Some(1));
    assert_field!(one(3), MetaRegionServer, |m| m.state() == region_state::State::PendingOpen);
    assert_field!(one(3), Master, |m| m.info_port == Some(1));
    assert_field!(two_bytes(5), WalHeader, |m| m.cell_codec_cls_name() == TEXT);
    assert_field!(one(9), WalKey, |m| m.nonce_group == Some(1));
    assert_field!(one(11), WalKey, |m| m.orig_sequence_number == Some(1));
    assert_field!(one(4), BulkLoadDescriptor, |m| m.bulkload_seq_num == 1);
    assert_field!(one(2), MutateRowsRequest, |m| m.nonce_group.is_some());
    assert_field!(two_bytes(2), AggregateResponse, |m| m.second_part() == TEXT.as_bytes());
}
