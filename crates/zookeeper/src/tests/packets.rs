//! Packets: torn, pipelined, garbled and mutated.

use super::*;

#[tokio::test]
async fn garbage_closes_only_its_connection() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let long = 0x10_0000_i32.to_be_bytes();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 64], &[0, 0, 0, 0], &[0, 0, 0, 3, 1, 2, 3], &long, &[0; 48]]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("closed");
        assert!(rest.is_empty());
    }
    let mut headless = server.client().await;
    headless.stream.write_all(&[0, 0, 0, 2, 0, 0]).await.unwrap();
    headless.ended().await;
    assert_eq!(client.read(op::EXISTS, "/hbase", false).await.0, 0);
}

#[tokio::test]
async fn pipelined_and_torn_packets_are_answered_in_order() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let mut packets = Vec::new();
    for xid in 0..2_000 {
        frame(&mut packets, |out| {
            out.int(xid);
            out.int(op::EXISTS);
            out.buffer(b"/hbase");
            out.boolean(xid % 2 == 0);
        });
    }
    let (mut input, mut output) = client.stream.split();
    let write = async {
        for piece in packets.chunks(1_013) {
            output.write_all(piece).await.unwrap();
        }
    };
    let read = async {
        for expected in 0..2_000 {
            let length = input.read_i32().await.unwrap();
            let mut packet = vec![0; length as usize];
            input.read_exact(&mut packet).await.unwrap();
            assert_eq!(packet[..4], i32::to_be_bytes(expected));
        }
    };
    timeout(TIMEOUT, async { tokio::join!(write, read) }).await.unwrap();
}

/// A well-formed request of any kind.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop::sample::select(vec!["/", "/hbase", "/hbase/hbaseid", "/none", "", "x", "/hbase/"]);
    let op = prop_oneof![-12..24_i32, 99..108_i32];
    (any::<i32>(), op, prop::collection::vec(path, 0..4), any::<[u8; 4]>()).prop_map(
        |(xid, op, paths, flags)| {
            let mut out = Vec::new();
            out.int(xid);
            out.int(op);
            if matches!(op, op::SET_WATCHES | op::SET_WATCHES2) {
                out.long(i64::from(flags[0]) << 50);
                (0..5).for_each(|_| out.strings(paths.iter().copied()));
            } else {
                paths.iter().take(1).for_each(|path| out.buffer(path.as_bytes()));
                out.extend(flags.map(|flag| flag & 3));
            }
            out
        },
    )
}

/// The same with bytes changed, cut off or added.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (request(), edits, any::<prop::sample::Index>(), prop::bool::ANY).prop_map(
        |(mut packet, edits, end, cut)| {
            for (at, byte) in edits {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            if cut {
                packet.truncate(end.index(packet.len() + 1));
            }
            packet
        },
    )
}

/// Checks that the output is whole frames, the last of which echoes the xid.
fn check_output(packet: &[u8], next: ConnectionAction, out: &[u8]) {
    let mut rest = out;
    let mut last = None;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (body, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        assert!(body.len() >= 16);
        (last, rest) = (Some(body), tail);
    }
    assert!(rest.is_empty());
    match next {
        ConnectionAction::Drop => assert!(out.is_empty()),
        ConnectionAction::Serve | ConnectionAction::Close => {
            assert_eq!(last.expect("a reply")[..4], packet[..4])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_packet_gets_a_reply_or_ends_the_connection(
        packets in prop::collection::vec(prop_oneof![request(), mutated(), prop::collection::vec(any::<u8>(), 0..200)], 1..20)
    ) {
        let tree = ZnodeTree::new();
        tree.set("/hbase/hbaseid", "id").unwrap();
        let (watcher, _due) = tree.open_watcher();
        for packet in packets {
            let mut out = Vec::new();
            let next = requests::answer(&tree, watcher, &packet, &mut out);
            check_output(&packet, next, &out);
            prop_assert_eq!(next == ConnectionAction::Drop, packet.len() < 8);
            tree.set("/hbase/hbaseid", "id").unwrap();
            tree.remove("/none");
            tree.ensure("/none").unwrap();
        }
        prop_assert_eq!(tree.node_count(), 4);
        tree.close_watcher(watcher);
        prop_assert_eq!(tree.watch_count(), 0);
    }

    #[test]
    fn any_first_packet_is_a_connect_request_or_not(packet in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(connect) = crate::protocol::Connect::read(&packet) {
            prop_assert!(packet.len() >= 28 + connect.password.len());
        }
    }
}
