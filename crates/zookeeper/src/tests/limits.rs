//! The limits of connections and of the memory that they make the server keep.

use super::*;

/// Waits until no memory is charged to any client.
async fn given_back(tree: &ZnodeTree) {
    let nothing = async {
        while tree.client_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TIMEOUT, nothing).await.expect("everything is given back");
}

#[tokio::test]
async fn memory_kept_for_connections_is_bounded_and_released() {
    const PART: u64 = 256 << 10;
    let server = TestServer::over(ZnodeTree::new().with_memory_limit(PART), ZkConfig::default()).await;
    // Watches, in separate requests and many at once.
    let mut clients = Vec::new();
    for at in 0..20 {
        let mut client = server.client().await;
        for watch in 0..20 {
            client.read(op::EXISTS, &format!("/w{at}/{watch}"), true).await;
        }
        let paths: Vec<String> = (0..400).map(|watch| format!("/many{at}/{watch}")).collect();
        client
            .call(op::SET_WATCHES, |out| {
                out.long(i64::MAX);
                for list in [&[][..], &paths, &[]] {
                    out.strings(list.iter().map(String::as_str));
                }
            })
            .await;
        assert!(server.tree.client_bytes() <= PART, "{}", server.tree.client_bytes());
        clients.push(client);
    }
    assert!(server.tree.client_bytes() > PART / 2);
    assert_eq!(
        server.client().await.read(op::EXISTS, "/hbase/hbaseid", true).await.0,
        0,
        "one more finds room"
    );
    drop(clients);
    given_back(&server.tree).await;

    // Events of a client that does not read.
    let mut deaf = server.client().await;
    deaf.call(op::ADD_WATCH, |out| {
        out.buffer(b"/hbase");
        out.int(1);
    })
    .await;
    for at in 0..20_000 {
        server.tree.set(&format!("/hbase/{}", at % 100), "x").unwrap();
        assert!(server.tree.client_bytes() <= PART, "{}", server.tree.client_bytes());
        if at % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(deaf);
    given_back(&server.tree).await;
    assert_eq!(server.tree.watch_count(), 0);
}

#[tokio::test]
async fn connections_per_address_are_limited_and_released() {
    let config = ZkConfig { connections_per_address_max: 2, ..ZkConfig::default() };
    let server = TestServer::start(config).await;
    let first = server.client().await;
    let _second = server.client().await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let _ = third.write_all(&connect_packet(10_000, 0, &[], true)).await;
    assert!(matches!(timeout(TIMEOUT, third.read(&mut [0; 8])).await.unwrap(), Ok(0) | Err(_)));
    drop(first);
    loop {
        let mut next = TcpStream::connect(server.address).await.unwrap();
        let _ = next.write_all(&connect_packet(10_000, 0, &[], true)).await;
        if next.read_i32().await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn small_room() -> ConnectionBudgets {
    ConnectionBudgets {
        input: InputBudget::of(1 << 20),
        requests: Budget::new(1 << 20),
        replies: Budget::new(1 << 20),
    }
}

/// Returns true if the server ended the connection.
async fn is_ended(stream: &mut TcpStream) -> bool {
    matches!(timeout(Duration::from_millis(1), stream.read(&mut [0; 64])).await, Ok(Ok(0) | Err(_)))
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_oversized_connect_request_closes_its_connection() {
    let server = TestServer::default().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&100_000_i32.to_be_bytes()).await.unwrap();
    eventually("it is closed", async || is_ended(&mut stream).await).await;
    server.stop().await;
}

#[tokio::test]
async fn incomplete_packets_are_counted_and_bounded() {
    let budgets = small_room();
    let server = TestServer::start(ZkConfig { budgets: budgets.clone(), ..ZkConfig::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        let half = [&900_000_i32.to_be_bytes()[..], &[0; 200_000]].concat();
        let _ = client.stream.write_all(&half).await;
        clients.push(client.stream);
    }
    eventually("some find no room", async || {
        let mut ended = 0;
        for client in &mut clients {
            ended += usize::from(is_ended(client).await);
        }
        ended >= 10
    })
    .await;
    assert!(budgets.input.used() <= InputBudget::max_of(1 << 20), "{}", budgets.input.used());
    let mut other = server.client().await;
    other.send(1, op::PING, |_| ()).await;
    assert_eq!(other.receive().await.0, 1);
    drop(clients);
    eventually("all is given back", async || budgets.input.used() == 0 && budgets.requests.used() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_trickled_packet_times_out() {
    let config = ZkConfig { receive_timeout: Duration::from_millis(300), ..ZkConfig::default() };
    let server = TestServer::start(config).await;
    let mut client = server.client().await;
    client.stream.write_all(&100_000_i32.to_be_bytes()).await.unwrap();
    eventually("it is closed", async || {
        let _ = client.stream.write_all(&[0]).await;
        is_ended(&mut client.stream).await
    })
    .await;
    server.stop().await;
}

/// Each path of a missing node is an event: a request of 300 KB has replies of some megabytes.
#[tokio::test]
async fn unread_replies_are_counted_and_bounded() {
    let budgets = small_room();
    let server = TestServer::start(ZkConfig { budgets: budgets.clone(), ..ZkConfig::default() }).await;
    let paths: Vec<String> = (0..30_000).map(|n| format!("/{n:05}")).collect();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        let mut packet = Vec::new();
        frame(&mut packet, |out| {
            out.int(-8);
            out.int(op::SET_WATCHES);
            out.long(0);
            out.strings(paths.iter().map(String::as_str));
            out.int(0);
            out.int(0);
        });
        let _ = client.stream.write_all(&packet).await;
        clients.push(client);
    }
    let mut other = server.client().await;
    other.send(1, op::PING, |_| ()).await;
    assert_eq!(other.receive().await.0, 1);
    assert!(budgets.replies.used() <= 1 << 20);
    drop(clients);
    eventually("all is given back", async || budgets.replies.used() == 0).await;
    server.stop().await;
}
