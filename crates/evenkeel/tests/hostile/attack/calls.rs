//! Attacks that use calls.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use evenkeel_protocol::pb;
use prost::Message;

use super::{Attack, AttackContext, BIG_ROWS, HeldResources, SMALL_ROWS, drain, push};
use crate::common::raw;
use crate::requests::{ADMIN_SERVICES, HBCK_SERVICE, methods};

const MIB: usize = 1 << 20;
const FILTERS: &str = "org.apache.hadoop.hbase.filter.";

pub const ATTACKS: &[Attack] = &[
    Attack::new("batches of many empty actions", empty_actions),
    Attack::new("batches of many Gets", many_gets),
    Attack::new("scans with a costly filter", costly_scans),
    Attack::that_writes("Puts of large values", large_puts),
    Attack::new("scanners that are left", scanners_left),
    Attack::new("scanners with large filters", |context| scanners_with_filters(context, 3000)),
    Attack::new("scanners with filters", |context| scanners_with_filters(context, 200)),
    Attack::new("scanners of hbase:meta", scanners_of_meta),
    Attack::that_writes("nonces", nonces),
    Attack::new("calls that fill the priority handlers", priority_calls),
    Attack::new("procedures whose outcomes nobody asks for", procedures),
    Attack::new("any bytes to every method", every_method),
    Attack::new("Gets with a costly filter", costly_gets),
    Attack::that_writes("checks with a costly filter", costly_checks),
    Attack::that_writes("batches of many Puts", many_puts),
    Attack::that_writes("atomic batches of many Puts", atomic_batches),
    Attack::that_writes("atomic batches of the endpoint", endpoint_batches),
    Attack::new("aggregations", aggregations),
    Attack::that_writes("tables and snapshots", tables_and_snapshots),
    Attack::that_writes("namespaces with a large property", large_namespaces),
    Attack::that_writes("tables with a large descriptor", large_descriptors),
    Attack::new("reversed scans", reversed_scans),
    Attack::new("lookups of the registry", registry_calls),
    Attack::that_writes("Appends to some rows", appends),
    Attack::that_writes("Increments of one row", increments_of_one_row),
];

/// Repeats a request on some connections, and reads the replies or leaves them unread.
fn again(context: &AttackContext, count: usize, request: &[u8], reads: bool) -> HeldResources {
    let open = || {
        let stream = context.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).ok()?;
        Some(stream)
    };
    context.keep(count, open, |stream| {
        if reads {
            drain(stream);
        }
        // A partially sent request cannot be completed: the connection is useless then.
        push(stream, request)
    })
}

/// A Multi of one region with these encoded actions.
fn multi(context: &AttackContext, actions: &[u8]) -> Vec<u8> {
    let region = pb::RegionAction { region: context.read_region.clone(), ..Default::default() };
    let mut region = region.encode_to_vec();
    region.extend_from_slice(actions);
    let mut request = vec![0x0a];
    prost::encoding::encode_varint(region.len() as u64, &mut request);
    request.extend(region);
    raw::call_of_bytes(1, "Multi", &request)
}

/// Actions of two bytes each: a tag and no length. The server must answer each.
fn empty_actions(context: &AttackContext) -> HeldResources {
    again(context, 2, &multi(context, &[0x1a, 0x00].repeat(4 * MIB)), false)
}

fn many_gets(context: &AttackContext) -> HeldResources {
    let action = |n: usize| {
        let get = pb::Get { row: Bytes::from(format!("r{:04}", n % SMALL_ROWS)), ..Default::default() };
        pb::RegionAction {
            action: vec![pb::Action { get: Some(get), ..Default::default() }],
            region: pb::RegionSpecifier::default(),
            ..Default::default()
        }
    };
    let bare = pb::RegionAction::default().encode_to_vec().len();
    // Close to the maximum request size of this server, or less.
    let gets = context.sized(200_000, 500_000);
    let actions: Vec<u8> = (0..gets).flat_map(|n| action(n).encode_to_vec().split_off(bare)).collect();
    again(context, 2, &multi(context, &actions), true)
}

/// A Multi of Puts, each in its own row or all in one.
fn batch_of_puts(context: &AttackContext, count: usize, atomic: bool) -> Vec<u8> {
    let put = |n: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from(format!("q{}", n % 100))),
            value: Some(Bytes::from_static(b"value")),
            ..Default::default()
        };
        let row = if atomic { "batch".to_owned() } else { format!("batch{n}") };
        let mutation = super::put_request(&context.read_region, &row, vec![value]).mutation;
        pb::Action { index: Some(n as u32), mutation: Some(mutation), ..Default::default() }
    };
    let action = (0..count).map(put).collect();
    let of_region = pb::RegionAction {
        region: context.read_region.clone(),
        atomic: Some(atomic),
        action,
        condition: None,
    };
    raw::call(1, "Multi", &pb::MultiRequest { region_action: vec![of_region], ..Default::default() })
}

fn many_puts(context: &AttackContext) -> HeldResources {
    again(context, 2, &batch_of_puts(context, context.sized(5_000, 50_000), false), true)
}

fn atomic_batches(context: &AttackContext) -> HeldResources {
    again(context, context.sized(4, 30), &batch_of_puts(context, context.sized(2_000, 20_000), true), true)
}

/// Each makes its row's value longer.
fn appends(context: &AttackContext) -> HeldResources {
    let append = |n: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"longer")),
            value: Some(Bytes::from(vec![b'a'; 200])),
            ..Default::default()
        };
        let mut request = super::put_request(&context.read_region, &format!("append{}", n % 20), vec![value]);
        request.mutation.mutate_type = Some(pb::mutation_proto::MutationType::Append as i32);
        raw::call(1, "Mutate", &request)
    };
    again(context, context.sized(4, 30), &(0..100).flat_map(append).collect::<Vec<_>>(), true)
}

/// MultiRowMutationService, whose calls lock all their rows.
fn endpoint_batches(context: &AttackContext) -> HeldResources {
    let put = |n: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"q")),
            value: Some(Bytes::from_static(b"value")),
            ..Default::default()
        };
        super::put_request(&context.read_region, &format!("batch{n}"), vec![value]).mutation
    };
    let rows = context.sized(1_000, 20_000);
    // Half of the batches lock the same rows in the other order.
    let batch = |order: Vec<usize>| {
        let mutation_request = order.into_iter().map(put).collect();
        let request = pb::MutateRowsRequest { mutation_request, ..Default::default() };
        let call = pb::CoprocessorServiceCall {
            row: Bytes::from_static(b"batch0"),
            service_name: "MultiRowMutationService".to_owned(),
            method_name: "MutateRows".to_owned(),
            request: request.encode_to_vec().into(),
        };
        raw::call(
            1,
            "ExecService",
            &pb::CoprocessorServiceRequest { region: context.read_region.clone(), call },
        )
    };
    let both = [batch((0..rows).collect()), batch((0..rows).rev().collect())].concat();
    again(context, context.sized(4, 30), &both, true)
}

/// Every aggregation over the whole region, which this server offers to all tables.
fn aggregations(context: &AttackContext) -> HeldResources {
    let column = pb::Column { family: Bytes::from_static(b"f"), qualifier: Vec::new() };
    let request = pb::AggregateRequest {
        interpreter_class_name: "org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter".to_owned(),
        scan: pb::Scan { column: vec![column], ..Default::default() },
        interpreter_specific_bytes: None,
    };
    let call = |method: &str| {
        let call = pb::CoprocessorServiceCall {
            row: Bytes::new(),
            service_name: "AggregateService".to_owned(),
            method_name: method.to_owned(),
            request: request.encode_to_vec().into(),
        };
        let request = pb::CoprocessorServiceRequest { region: context.read_region.clone(), call };
        raw::call(1, "ExecService", &request)
    };
    let all = ["GetRowNum", "GetMax", "GetMin", "GetSum", "GetAvg", "GetStd", "GetMedian"].map(call).concat();
    again(context, context.sized(4, 30), &all, true)
}

/// Creates a few tables, and the same ones again; takes snapshots of new names.
fn tables_and_snapshots(context: &AttackContext) -> HeldResources {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let create = |n: usize| {
        let table = TableDescriptor::new(format!("flood{}", n % 3).parse().expect("legal"));
        let table_schema = pb::TableSchema::from(&table.with_family(family.clone()));
        raw::call(1, "CreateTable", &pb::CreateTableRequest { table_schema, ..Default::default() })
    };
    let snapshot = |n: usize| {
        let snapshot = pb::SnapshotDescription {
            name: format!("flood{n}"),
            table: Some("target".to_owned()),
            ..Default::default()
        };
        raw::call(1, "Snapshot", &pb::SnapshotRequest { snapshot, ..Default::default() })
    };
    let mut turn = 0;
    context.keep(
        context.sized(2, 10),
        || context.service(context.master, "MasterService"),
        |stream| {
            drain(stream);
            turn += 10;
            let some: Vec<u8> = (turn..turn + 10).flat_map(|n| [create(n), snapshot(n)].concat()).collect();
            push(stream, &some)
        },
    )
}

/// Sends the next of some requests to the master on each connection.
fn of_master(context: &AttackContext, mut request: impl FnMut() -> Vec<u8>) -> HeldResources {
    let open = || context.service(context.master, "MasterService");
    context.keep(context.sized(2, 10), open, |stream| {
        drain(stream);
        push(stream, &request())
    })
}

/// A new namespace each time. hbase:namespace and the tree of znodes keep its property.
fn large_namespaces(context: &AttackContext) -> HeldResources {
    let value = "v".repeat(context.sized(100, 900) << 10);
    let mut turn = 0;
    of_master(context, || {
        turn += 1;
        let configuration = vec![pb::NameStringPair { name: "property".to_owned(), value: value.clone() }];
        let name = Bytes::from(format!("flood{turn}"));
        let namespace_descriptor = pb::NamespaceDescriptor { name, configuration };
        let request = pb::CreateNamespaceRequest { namespace_descriptor, ..Default::default() };
        raw::call(1, "CreateNamespace", &request)
    })
}

/// Creates a table, and then changes it. Each change is a procedure that holds the descriptor.
fn large_descriptors(context: &AttackContext) -> HeldResources {
    let value = "v".repeat(context.sized(100, 900) << 10);
    let mut turn = 0;
    of_master(context, || {
        turn += 1;
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new("wide".parse().expect("legal")).with_family(family);
        let table = table.with("VALUE", &format!("{turn}{value}"));
        let (table_name, table_schema) = (pb::TableName::from(table.name()), pb::TableSchema::from(&table));
        match turn {
            1 => raw::call(1, "CreateTable", &pb::CreateTableRequest { table_schema, ..Default::default() }),
            _ => {
                let request = pb::ModifyTableRequest { table_name, table_schema, ..Default::default() };
                raw::call(1, "ModifyTable", &request)
            }
        }
    })
}

fn reversed_scans(context: &AttackContext) -> HeldResources {
    let scan = |id: u32| {
        let request = pb::ScanRequest {
            region: Some(context.read_region.clone()),
            scan: Some(pb::Scan { reversed: Some(true), ..Default::default() }),
            number_of_rows: Some(1000),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..Default::default()
        };
        raw::call(id, "Scan", &request)
    };
    again(context, context.sized(4, 30), &(0..5).flat_map(scan).collect::<Vec<_>>(), true)
}

/// What clients ask before they know any region.
fn registry_calls(context: &AttackContext) -> HeldResources {
    let calls = |methods: &[&str]| -> Vec<u8> {
        let of_method = |method: &&str| raw::call_of_bytes(1, method, &[]);
        methods.iter().flat_map(of_method).collect::<Vec<_>>().repeat(500)
    };
    let registry =
        ["GetClusterId", "GetActiveMaster", "GetMasters", "GetMetaRegionLocations", "GetBootstrapNodes"];
    let services = [
        (context.regionserver, "ClientMetaService", calls(&registry)),
        (context.master, "ClientMetaService", calls(&registry)),
        (context.regionserver, "BootstrapNodeService", calls(&["GetAllBootstrapNodes"])),
        (context.regionserver, "ConnectionRegistryService", calls(&["GetConnectionRegistry"])),
    ];
    let mut turn = 0;
    let mut streams = Vec::new();
    while context.runs() {
        for (port, service, calls) in &services {
            let Some(mut stream) = context.service(*port, service) else { continue };
            push(&mut stream, calls);
            turn += 1;
            // Half of the replies are read.
            if turn % 2 == 0 {
                std::thread::sleep(Duration::from_millis(5));
                drain(&mut stream);
            }
            streams.push(stream);
        }
        if streams.len() > 50 {
            streams.clear();
        }
    }
    Box::new(streams)
}

/// A value filter with a regular expression that is slow for long values.
fn costly_filter() -> pb::Filter {
    let regex = pb::RegexStringComparator {
        pattern: "(.*)(.*)(.*)(.*)(.*)(x{1,50}){1,20}y".to_owned(),
        pattern_flags: 0,
        charset: "UTF-8".to_owned(),
        engine: None,
    };
    let compare = pb::CompareFilter {
        compare_op: pb::CompareType::Equal as i32,
        comparator: Some(pb::Comparator {
            name: format!("{FILTERS}RegexStringComparator"),
            serialized_comparator: Some(regex.encode_to_vec().into()),
        }),
    };
    let value = pb::ValueFilter { compare_filter: compare };
    pb::Filter {
        name: format!("{FILTERS}ValueFilter"),
        serialized_filter: Some(value.encode_to_vec().into()),
    }
}

fn costly_gets(context: &AttackContext) -> HeldResources {
    let get = |n: usize| {
        let row = Bytes::from(format!("b{}", n % BIG_ROWS));
        let get = pb::Get { row, filter: Some(costly_filter()), ..Default::default() };
        raw::call(n as u32, "Get", &pb::GetRequest { region: context.read_region.clone(), get })
    };
    again(context, context.sized(4, 30), &(0..3).flat_map(get).collect::<Vec<_>>(), true)
}

/// Checks and mutates with a slow condition, which is evaluated under the row's lock.
fn costly_checks(context: &AttackContext) -> HeldResources {
    let check = |n: usize| {
        let row = format!("b{}", n % BIG_ROWS);
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"checked")),
            value: Some(Bytes::from_static(b"v")),
            ..Default::default()
        };
        let condition =
            pb::Condition { row: row.clone().into(), filter: Some(costly_filter()), ..Default::default() };
        let put = super::put_request(&context.read_region, &row, vec![value]);
        raw::call(n as u32, "Mutate", &pb::MutateRequest { condition: Some(condition), ..put })
    };
    again(context, context.sized(4, 30), &(0..8).flat_map(check).collect::<Vec<_>>(), true)
}

fn scan(region: &pb::RegionSpecifier, id: u32, rows: u32, filter: Option<pb::Filter>) -> Vec<u8> {
    let request = pb::ScanRequest {
        region: Some(region.clone()),
        scan: Some(pb::Scan { filter, ..Default::default() }),
        number_of_rows: Some(rows),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..Default::default()
    };
    raw::call(id, "Scan", &request)
}

fn costly_scans(context: &AttackContext) -> HeldResources {
    let scans: Vec<u8> =
        (0..3).flat_map(|id| scan(&context.read_region, id, 1000, Some(costly_filter()))).collect();
    again(context, context.sized(4, 30), &scans, true)
}

fn increment(context: &AttackContext, row: &str, nonce: Option<u64>) -> Vec<u8> {
    let value = pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some(Bytes::from_static(b"n")),
        value: Some(Bytes::copy_from_slice(&1_u64.to_be_bytes())),
        ..Default::default()
    };
    let mut request = super::put_request(&context.read_region, row, vec![value]);
    request.mutation.mutate_type = Some(pb::mutation_proto::MutationType::Increment as i32);
    request.mutation.nonce = nonce;
    request.nonce_group = nonce.map(|_| 7);
    // Without the log's time, a client makes more nonces.
    let unlogged = pb::mutation_proto::Durability::SkipWal as i32;
    request.mutation.durability = nonce.map(|_| unlogged);
    raw::call(1, "Mutate", &request)
}

fn increments_of_one_row(context: &AttackContext) -> HeldResources {
    let put = |n: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from(format!("q{n}"))),
            value: Some(Bytes::from_static(b"v")),
            ..Default::default()
        };
        raw::call(1, "Mutate", &super::put_request(&context.read_region, "hot", vec![value]))
    };
    let both: Vec<u8> = (0..100).flat_map(|n| [increment(context, "hot", None), put(n)].concat()).collect();
    again(context, context.sized(4, 30), &both, true)
}

fn large_puts(context: &AttackContext) -> HeldResources {
    let value = |n: usize| pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some(Bytes::from(format!("q{n}"))),
        value: Some(Bytes::from(vec![n as u8; 200_000])),
        ..Default::default()
    };
    let puts: Vec<u8> = (0..10)
        .flat_map(|n| {
            raw::call(1, "Mutate", &super::put_request(&context.read_region, "large", vec![value(n)]))
        })
        .collect();
    again(context, context.sized(6, 30), &puts, true)
}

/// Opens scanners of one row each, on connections that are then closed.
fn scanners_left(context: &AttackContext) -> HeldResources {
    let scans: Vec<u8> = (0..200).flat_map(|id| scan(&context.read_region, id, 1, None)).collect();
    let mut kept = Vec::new();
    while context.runs() {
        if let Some(mut stream) = context.client() {
            push(&mut stream, &scans);
            let _ = raw::reply(&mut stream);
            kept.push(stream);
        }
        if kept.len() > 10 {
            kept.clear();
        }
    }
    Box::new(kept)
}

/// A list of fast filters. A decoded filter takes about 1 KiB, ten times its encoded size.
fn large_filter(members: usize) -> pb::Filter {
    let prefix = pb::PrefixFilter { prefix: Some(Bytes::from(vec![b'r'; 1])) };
    let small = pb::Filter {
        name: format!("{FILTERS}PrefixFilter"),
        serialized_filter: Some(prefix.encode_to_vec().into()),
    };
    let list = pb::FilterList {
        operator: pb::filter_list::Operator::MustPassOne as i32,
        filters: vec![small; members],
    };
    pb::Filter { name: format!("{FILTERS}FilterList"), serialized_filter: Some(list.encode_to_vec().into()) }
}

fn scanners_with_filters(context: &AttackContext, members: usize) -> HeldResources {
    let one = scan(&context.read_region, 1, 1, Some(large_filter(members)));
    again(context, 8, &one, true)
}

fn meta() -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"hbase:meta,,1") }
}

fn scanners_of_meta(context: &AttackContext) -> HeldResources {
    let scans: Vec<u8> = (0..100).flat_map(|id| scan(&meta(), id, 1, None)).collect();
    again(context, 4, &scans, true)
}

fn nonces(context: &AttackContext) -> HeldResources {
    // Continues across runs, because a known nonce takes no memory.
    static NONCE: AtomicU64 = AtomicU64::new(0);
    let open = || {
        let stream = context.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).ok()?;
        Some(stream)
    };
    context.keep(context.sized(4, 30), open, |stream| {
        drain(stream);
        let batch: Vec<u8> = (0..200)
            .flat_map(|_| {
                let nonce = 1 + NONCE.fetch_add(1, Relaxed);
                increment(context, &format!("nonce{}", nonce % 50), Some(nonce))
            })
            .collect();
        push(stream, &batch)
    })
}

/// Flushes, compactions, and lists of all objects.
fn priority_calls(context: &AttackContext) -> HeldResources {
    let flush = pb::FlushRegionRequest { region: context.read_region.clone(), ..Default::default() };
    let compact = pb::CompactRegionRequest {
        region: context.read_region.clone(),
        major: Some(true),
        ..Default::default()
    };
    let region_server: Vec<u8> = (0..50)
        .flat_map(|id| {
            [raw::call(id, "FlushRegion", &flush), raw::call(id, "CompactRegion", &compact)].concat()
        })
        .collect();
    let tables = pb::GetTableDescriptorsRequest { include_sys_tables: Some(true), ..Default::default() };
    let status = pb::GetClusterStatusRequest::default();
    let master: Vec<u8> = (0..50)
        .flat_map(|id| {
            [raw::call(id, "GetTableDescriptors", &tables), raw::call(id, "GetClusterStatus", &status)]
                .concat()
        })
        .collect();
    let mut turn = 0;
    let open = || {
        turn += 1;
        match turn % 2 {
            0 => context.service(context.regionserver, "AdminService"),
            _ => context.service(context.master, "MasterService"),
        }
    };
    let mut requests = [&region_server, &master].into_iter().cycle();
    context.keep(10, open, |stream| {
        drain(stream);
        push(stream, requests.next().expect("a cycle"))
    })
}

/// Procedures of two tables, of which a limited number may wait; the result of each is kept. The
/// bystander's table has none: an administrator who flushes a table again and again slows down its
/// writes, as with HBase.
fn procedures(context: &AttackContext) -> HeldResources {
    let mut nonce = 0;
    let mut flush = |(namespace, table): (&str, &str)| {
        nonce += 1;
        let name = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let request = pb::FlushTableRequest {
            table_name: pb::TableName { namespace: name(namespace), qualifier: name(table) },
            nonce_group: Some(11),
            nonce: Some(nonce),
            ..Default::default()
        };
        raw::call(1, "FlushTable", &request)
    };
    context.keep(
        2,
        || context.service(context.master, "MasterService"),
        |stream| {
            drain(stream);
            let tables = [("default", "target"), ("hbase", "namespace")];
            let some: Vec<u8> = (0..20).flat_map(|n| flush(tables[n % 2])).collect();
            push(stream, &some)
        },
    )
}

fn every_method(context: &AttackContext) -> HeldResources {
    let [admin, master] = ADMIN_SERVICES;
    let services = [
        (context.regionserver, "ClientService", include_str!("../../../../protocol/proto/Client.proto")),
        (context.regionserver, admin.0, admin.1),
        (context.master, master.0, master.1),
        (context.master, HBCK_SERVICE.0, HBCK_SERVICE.1),
    ];
    let mut seed = 99_u64;
    let mut body = |n: usize| -> Vec<u8> {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = |i: u64| (seed.rotate_left((i * 7 % 64) as u32) >> 40) as u8;
        let length = (seed >> 50) as usize % 200;
        match n % 4 {
            0 => Vec::new(),
            1 => (0..length as u64).map(random).collect(),
            // Nested fields whose lengths fit.
            2 => (0..20).flat_map(|field| [((field % 15 + 1) << 3 | 2) as u8, 2, 0x0a, 0]).collect(),
            // An existing region, followed by arbitrary bytes.
            _ => {
                let region = pb::CompactRegionRequest {
                    region: context.bystander_region.clone(),
                    ..Default::default()
                };
                let mut bytes = region.encode_to_vec();
                bytes.truncate(bytes.len() - 1 - length % 3);
                bytes
            }
        }
    };
    let (mut streams, mut turn) = (Vec::<TcpStream>::new(), 0);
    while context.runs() {
        for (port, service, proto) in &services {
            let Some(mut stream) = context.service(*port, service) else { continue };
            for method in methods(service, proto) {
                turn += 1;
                let _ = stream.write(&raw::call_of_bytes(turn, method, &body(turn as usize)));
            }
            streams.push(stream);
        }
        if streams.len() > 50 {
            streams.clear();
        }
    }
    Box::new(streams)
}
