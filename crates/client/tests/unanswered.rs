//! Servers that do not answer or send malformed bytes: the client calls another one, and a shared
//! wait is no longer than a lone one.

mod fake;

use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Error, Get};
use evenkeel_protocol::pb;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Starts a server that sends these bytes as every response's message, or no response; returns its
/// address.
async fn answering(message: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        let mut sockets = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            sockets.spawn(answer(socket, message));
        }
    });
    address
}

async fn answer(mut socket: TcpStream, message: Option<&'static [u8]>) -> std::io::Result<()> {
    let mut preamble = [0; 6];
    socket.read_exact(&mut preamble).await?;
    read_frame(&mut socket).await?;
    for call_id in 0.. {
        read_frame(&mut socket).await?;
        let Some(message) = message else { continue };
        let header = pb::ResponseHeader { call_id: Some(call_id), ..Default::default() };
        let mut frame = header.encode_length_delimited_to_vec();
        frame.push(message.len() as u8);
        frame.extend_from_slice(message);
        socket.write_all(&[&(frame.len() as u32).to_be_bytes()[..], &frame].concat()).await?;
    }
    Ok(())
}

async fn read_frame(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; socket.read_u32().await? as usize];
    socket.read_exact(&mut frame).await?;
    Ok(frame)
}

#[tokio::test]
async fn a_bad_bootstrap_server_is_skipped() {
    let good = fake::Fake::start(10).await;
    // A field longer than the message; a message without the requested field; no response.
    for bad in [Some(&[0x0a, 9, b'x'][..]), Some(&[][..]), None] {
        let mut config = ClientConfig::new([answering(bad).await, good.address.clone()]);
        (config.retries, config.rpc_timeout) = (0, Duration::from_millis(300));
        let connection = Connection::connect(config).await.unwrap_or_else(|e| panic!("{bad:?}: {e}"));
        assert_eq!(connection.cluster_id(), "fake");
        let row = connection.table("t".parse().expect("legal")).get(Get::new("row")).await;
        assert!(row.is_ok_and(|row| row.value("f", "q").is_some()), "hbase:meta is found too");
    }
    let (a, b) = (answering(Some(&[0x0a, 9, b'x'])).await, answering(None).await);
    let mut config = ClientConfig::new([b, a]);
    (config.retries, config.rpc_timeout) = (0, Duration::from_millis(300));
    let failed = Connection::connect(config).await.expect_err("none of them knows");
    assert!(matches!(failed, Error::Protocol(_)), "{failed}");
}

#[tokio::test]
async fn callers_do_not_wait_for_a_hung_lookup_one_after_the_other() {
    // Both serve the cluster's id; then the first one hangs, and every lookup waits for it.
    let good = fake::Fake::start(10).await;
    let hung = answering(None).await;
    let mut config = ClientConfig::new([good.address.clone()]);
    (config.retries, config.rpc_timeout) = (0, Duration::from_millis(400));
    let connection = Connection::connect(config).await.expect("connects");
    good.move_meta_to(&hung);
    let table = connection.table("t".parse().expect("legal"));

    let (begun, mut callers) = (Instant::now(), JoinSet::new());
    for i in 0..10 {
        let table = table.clone();
        callers.spawn(async move { table.get(Get::new(format!("row {i}"))).await.map(drop) });
    }
    let failed = callers.join_all().await;
    assert!(failed.iter().all(Result::is_err) && begun.elapsed() < Duration::from_secs(2), "{failed:?}");

    let begun = Instant::now();
    let failed = table.get_all((0..10).map(|i| Get::new(format!("row {i}")))).await;
    assert!(failed.iter().all(Result::is_err) && begun.elapsed() < Duration::from_secs(2), "{failed:?}");
}
