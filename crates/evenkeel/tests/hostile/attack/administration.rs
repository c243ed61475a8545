//! Attacks by an administrator's calls, and by bulk loads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use evenkeel_protocol::pb;

use super::{Attack, AttackContext, HeldResources, drain, push};
use crate::common::raw;
use crate::requests::{ADMIN_SERVICES, methods};

pub const ATTACKS: &[Attack] = &[
    Attack::new("bulk loads of one file", bulk_loads),
    Attack::new("bulk loads of files that do not exist", absent_loads),
    Attack::new("regions that move and are truncated", regions_that_move),
    Attack::that_writes("legal calls of every administrator's method", legal_calls),
];

fn load(context: &AttackContext, path: &str) -> Vec<u8> {
    let family_path = pb::bulk_load_h_file_request::FamilyPath {
        family: Bytes::from_static(b"f"),
        path: format!("file:{path}"),
    };
    let request = pb::BulkLoadHFileRequest {
        region: context.administered.region(),
        family_path: vec![family_path],
        assign_seq_num: Some(true),
        copy_file: Some(true),
        ..Default::default()
    };
    raw::call(1, "BulkLoadHFile", &request)
}

fn loads(context: &AttackContext, path: &str) -> HeldResources {
    let some = load(context, path).repeat(10);
    context.keep(
        context.sized(2, 10),
        || context.client(),
        |stream| {
            drain(stream);
            push(stream, &some)
        },
    )
}

/// The server copies the file each time, so each load adds a file to the region.
fn bulk_loads(context: &AttackContext) -> HeldResources {
    loads(context, &context.loadable.display().to_string())
}

fn absent_loads(context: &AttackContext) -> HeldResources {
    loads(context, &context.loadable.with_extension("absent").display().to_string())
}

/// Closes and opens a region, again and again.
fn regions_that_move(context: &AttackContext) -> HeldResources {
    let calls: Vec<u8> = ["MoveRegion", "TruncateRegion", "UnassignRegion", "AssignRegion"]
        .into_iter()
        .flat_map(|method| raw::call_of_bytes(1, method, &context.administered.request(method)))
        .collect();
    context.keep(
        context.sized(2, 10),
        || context.service(context.master, "MasterService"),
        |stream| {
            drain(stream);
            push(stream, &calls)
        },
    )
}

/// After these calls the region of the other calls does not exist.
const ENDS_THE_REGION: [&str; 3] = ["DeleteTable", "truncateTable", "SplitRegion"];

/// Methods of AdminService and MasterService, with a request that the server can do or has a reason
/// to refuse. One attack after the other begins with another method.
fn legal_calls(context: &AttackContext) -> HeldResources {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let calls = ADMIN_SERVICES.map(|(service, proto)| {
        let call = |method| raw::call_of_bytes(1, method, &context.administered.request(method));
        methods(service, proto)
            .filter(|method| !ENDS_THE_REGION.contains(method))
            .map(call)
            .collect::<Vec<_>>()
    });
    let ports = [context.regionserver, context.master];
    let mut opened = 0;
    let open = || {
        opened += 1;
        let (service, _) = ADMIN_SERVICES[opened % 2];
        context.service(ports[opened % 2], service)
    };
    context.keep(context.sized(4, 20), open, |stream| {
        drain(stream);
        let is_master = stream.peer_addr().is_ok_and(|address| address.port() == context.master);
        let of_service = &calls[usize::from(is_master)];
        let at = TURN.fetch_add(1, Relaxed) as usize % of_service.len();
        push(stream, &of_service[at].repeat(5))
    })
}
