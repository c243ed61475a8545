//! Sessions: their end, their moves and their time limit.

use super::*;

#[tokio::test]
async fn disconnected_sessions_end_for_new_ones() {
    let server = TestServer::over(ZnodeTree::new().with_memory_limit(1 << 10), ZkConfig::default()).await;
    let stays = server.client().await;
    for _ in 0..600 {
        drop(server.client().await);
    }
    let mut next = server.client().await;
    assert_eq!(next.read(op::EXISTS, "/hbase", false).await.0, 0);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"mntr").await.unwrap();
    let mut text = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    let sessions = text.lines().find_map(|line| line.strip_prefix("zk_global_sessions\t")).unwrap();
    assert!(sessions.parse::<usize>().unwrap() <= 256, "{sessions}");
    drop(stays);
}

#[tokio::test]
async fn a_session_moves_to_its_next_connection() {
    let server = TestServer::default().await;
    let mut first = server.client().await;
    let (id, password) = (first.session, first.password);
    assert!(id > 0);
    let mut second = Client::connect(server.address, 10_000, id, password).await;
    assert_eq!((second.session, second.password), (id, password));
    first.ended().await;
    assert_eq!(second.read(op::EXISTS, "/hbase", false).await.0, 0);

    let mut stranger = Client::connect(server.address, 10_000, id, [1; 16]).await;
    assert_eq!((stranger.session, stranger.timeout_ms), (0, 0));
    stranger.ended().await;
    assert_eq!(second.read(op::EXISTS, "/hbase", false).await.0, 0);

    second.send(9, op::CLOSE_SESSION, |_| ()).await;
    assert_eq!(second.receive().await, (9, 0, vec![]));
    second.ended().await;
    assert_eq!(Client::connect(server.address, 10_000, id, password).await.session, 0);
}

#[tokio::test]
async fn silent_sessions_expire_with_and_without_connection() {
    let server = TestServer::start(quick_ticks()).await;
    let mut silent = Client::connect(server.address, 100, 0, [0; 16]).await;
    silent.ended().await;
    assert_eq!(Client::connect(server.address, 100, silent.session, silent.password).await.session, 0);

    let mut alive = Client::connect(server.address, 1_000, 0, [0; 16]).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        alive.send(-2, op::PING, |_| ()).await;
        assert_eq!(alive.receive().await.0, -2);
    }
    let (id, password) = (alive.session, alive.password);
    drop(alive);
    assert_eq!(Client::connect(server.address, 1_000, id, password).await.session, id);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(Client::connect(server.address, 1_000, id, password).await.session, 0);
}

#[tokio::test]
async fn sessions_outlive_a_restart() {
    let at = |now_ms| ZkConfig { clock: ManualClock::at(now_ms), ..ZkConfig::default() };
    let server = TestServer::start(at(1_700_000_000_000)).await;
    let mut client = server.client().await;
    server.stop().await;
    client.ended().await;
    let server = TestServer::start(at(1_700_000_005_000)).await;
    let again = Client::connect(server.address, 10_000, client.session, client.password).await;
    assert_eq!((again.session, again.password), (client.session, client.password));
    assert!(server.client().await.session > client.session);
    assert_eq!(Client::connect(server.address, 10_000, client.session, [9; 16]).await.session, 0);
    assert_eq!(Client::connect(server.address, 10_000, -5, client.password).await.session, 0);
}
