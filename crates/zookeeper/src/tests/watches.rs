//! Watches: their events, their order and their bounds.

use super::*;

#[tokio::test]
async fn watches_fire_once() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    assert_eq!(client.read(op::EXISTS, "/hbase/master", true).await.0, -101);
    assert_eq!(client.read(op::GET_CHILDREN, "/hbase", true).await.0, 0);
    server.tree.set("/hbase/master", "1").unwrap();
    assert_eq!(client.event().await, (1, "/hbase/master".into()));
    assert_eq!(client.event().await, (4, "/hbase".into()));
    server.tree.set("/hbase/master", "2").unwrap();
    server.tree.set("/hbase/other", "").unwrap();
    assert_eq!(client.read(op::GET_DATA, "/hbase/master", true).await.0, 0, "no event before it");
    server.tree.set("/hbase/master", "3").unwrap();
    assert_eq!(client.event().await, (3, "/hbase/master".into()));
    assert_eq!(client.read(op::GET_DATA, "/hbase/master", true).await.0, 0);
    assert_eq!(client.read(op::GET_CHILDREN2, "/hbase/master", true).await.0, 0);
    assert!(server.tree.remove("/hbase/master"));
    assert_eq!(client.event().await, (2, "/hbase/master".into()));
    assert_eq!(
        client.read(op::GET_DATA, "/hbase/master", true).await.0,
        -101,
        "one event for the removal, no watch here"
    );
    server.tree.set("/hbase/master", "4").unwrap();
    assert_eq!(client.read(op::EXISTS, "/hbase/master", false).await.0, 0);
    assert_eq!(server.tree.watch_count(), 0);
}

#[tokio::test]
async fn a_watch_event_precedes_the_reply_with_its_change() {
    let server = TestServer::default().await;
    let tree = server.tree.clone();
    let mut client = server.client().await;
    let writer = std::thread::spawn(move || {
        for _ in 0..300 {
            tree.set("/hbase/hbaseid", "x").unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let mut seen = 0;
    while seen < 300 {
        let (err, body) = client.read(op::GET_DATA, "/hbase/hbaseid", true).await;
        assert_eq!(err, 0);
        let watched = stat_of(&body[body.len() - 68..]).version;
        client
            .send(8, op::EXISTS, |out| {
                out.buffer(b"/hbase/hbaseid");
                out.boolean(false);
            })
            .await;
        let (xid, _, body) = client.receive().await;
        seen = match xid {
            -1 => {
                let (_, _, body) = client.receive().await;
                let changed = stat_of(&body).version;
                assert!(changed > watched, "the event was early");
                changed
            }
            _ => {
                assert_eq!(stat_of(&body).version, watched, "the event was late");
                if watched < 300 {
                    assert_eq!(client.event().await.0, 3);
                }
                watched
            }
        };
    }
    writer.join().unwrap();
}

#[tokio::test]
async fn reset_watches_report_missed_events() {
    let server = TestServer::default().await;
    for path in ["/a", "/b", "/c"] {
        server.tree.set(path, "").unwrap();
    }
    let since = server.tree.zxid();
    server.tree.set("/b", "new").unwrap();
    server.tree.remove("/c");
    server.tree.set("/d", "").unwrap();
    let mut client = server.client().await;
    for op in [op::SET_WATCHES, op::SET_WATCHES2] {
        client
            .send(-8, op, |out| {
                out.long(since);
                out.strings(["/a", "/b", "/c"].into_iter());
                out.strings(["/d", "/e"].into_iter());
                out.strings(["/a", "/"].into_iter());
                out.strings(["/p"].into_iter());
                out.strings(["/r"].into_iter());
            })
            .await;
        assert_eq!(client.receive().await, (-8, 0, vec![]));
        let mut events = Vec::new();
        for _ in 0..4 {
            events.push(client.event().await);
        }
        events.sort();
        let expected = [(1, "/d"), (2, "/c"), (3, "/b"), (4, "/")];
        assert_eq!(events, expected.map(|(kind, path)| (kind, path.to_owned())));
    }
    server.tree.set("/e", "").unwrap();
    assert_eq!(client.event().await, (1, "/e".into()));
    server.tree.set("/a/b", "").unwrap();
    assert_eq!(client.event().await, (4, "/a".into()));
    server.tree.set("/p", "").unwrap();
    server.tree.set("/p/q", "").unwrap();
    assert_eq!([client.event().await, client.event().await], [(1, "/p".into()), (4, "/p".into())]);
    server.tree.set("/r/s/t", "").unwrap();
    let events = [client.event().await, client.event().await, client.event().await];
    assert_eq!(events, ["/r", "/r/s", "/r/s/t"].map(|path| (1, path.to_owned())));
}

#[tokio::test]
async fn watches_can_be_added_checked_removed_and_are_bounded() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let typed = |path: &'static str, kind| {
        move |out: &mut Vec<u8>| {
            out.buffer(path.as_bytes());
            out.int(kind);
        }
    };
    assert_eq!(client.call(op::ADD_WATCH, typed("/hbase", 1)).await, (0, vec![0; 4]));
    assert_eq!(client.call(op::ADD_WATCH, typed("/hbase", 2)).await.0, -8);
    assert_eq!(client.call(op::CHECK_WATCHES, typed("/hbase", 3)).await.0, 0);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 3)).await.0, 0);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 3)).await.0, -121);
    client.read(op::EXISTS, "/hbase", true).await;
    assert_eq!(client.call(op::CHECK_WATCHES, typed("/hbase", 1)).await.0, -121);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 2)).await.0, 0);
    assert_eq!(server.tree.watch_count(), 0);

    let path = |i: usize| format!("/{i}/{}", "x".repeat(900_000));
    let mut refused = 0;
    for i in 0..6 {
        refused += i32::from(client.read(op::EXISTS, &path(i), true).await.0 == -1);
    }
    assert_eq!(refused, 2, "4 MiB of watches hold four of these");
    drop(client);
    while server.tree.watch_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
