//! Who gets an address, and who a place at the server.

use super::*;

#[tokio::test]
async fn a_newcomer_takes_the_place_of_one_that_asks_for_nothing() {
    let limits = ServerLimits {
        clients: 4,
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let ask = async |text: &str, answer: &str| {
        let mut client = Client::connect(&server).await;
        client.send(text).await;
        client.skip_to(answer).await;
        client
    };
    let mut silent = Client::connect(&server).await;
    let mut asks = ask("?watchdog\n", "!watchdog ok").await;
    let _listens = ask("?sensor-sampling b.count event\n", "!sensor-sampling ok").await;
    let mut newer = Client::connect(&server).await;

    // The newest that is silent, then the other, then the one that has asked and does not listen.
    let again = "?sensor-sampling b.count event\n";
    let _one = ask(again, "!sensor-sampling ok").await;
    assert!(newer.is_closed().await);
    silent.send("?watchdog\n").await;
    silent.skip_to("!watchdog ok").await;
    let _two = ask(again, "!sensor-sampling ok").await;
    assert!(asks.is_closed().await);
    let _three = ask(again, "!sensor-sampling ok").await;
    assert!(silent.is_closed().await);

    // All listen.
    let stream = TcpStream::connect(server.address)
        .await
        .expect("a connection");
    let mut late = Client(BufReader::new(stream));
    assert_eq!(late.line().await, r"#disconnect too\_many\_clients");
    assert_eq!(late.line().await, "");
    clients(&server, 4).await;
}

/// Who has sent a long line, and maybe most of another, and reads none of the answers.
#[tokio::test]
async fn places_are_not_kept_by_those_that_do_not_read() {
    for more in [0, 130_000] {
        let limits = ServerLimits {
            long_lines: 1,
            line_time: Duration::from_millis(300),
            backlogs: usize::MAX,
            ..ServerLimits::default()
        };
        let server = serve(limits);
        let mut deaf = Client::connect(&server).await;
        clients(&server, 1).await;
        outbox(&server).push(vec![b'x'; 64 << 20]);
        let long = format!("?watchdog {}\n{}", "x".repeat(134_000), "x".repeat(more));
        deaf.send(&long).await;
        let answered = async {
            while server.shared.requests.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            while server.shared.long_lines.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), answered)
            .await
            .expect("the place is given back");
    }
}

/// Others that would share an address cannot take one that is reserved; the next server can, also
/// while connections of the last one have not quite ended.
#[tokio::test]
async fn a_reserved_address_is_taken_by_nobody_else() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let reserved = ReservedAddress::bind(any).expect("a free port");
    let address = reserved.socket.local_addr().expect("an address");
    let other = TcpSocket::new_v4().expect("a socket");
    other.set_reuseaddr(true).expect("an option");
    let refused = other.bind(address).expect_err("it is reserved");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    ReservedAddress::bind(address).expect_err("it is reserved");
    let listener = reserved.listen().expect("listens");
    let client = TcpStream::connect(address).await.expect("a connection");
    let (accepted, _) = listener.accept().await.expect("a connection");
    // The server's end closes first, and waits for what may still be under way.
    drop((accepted, listener));
    drop(client);
    let again = ReservedAddress::bind(address).expect("the next server");
    again.listen().expect("listens");
}
