use std::net::Ipv4Addr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::oneshot;

use super::*;
use crate::device::{ReplyFuture, RequestHelp, RoomFuture};
use crate::requests::tests::{Adder, sensors};

struct Running<D = Adder> {
    address: SocketAddr,
    sensors: Sensors,
    shared: Arc<Common<D>>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<ServerEnd>,
}

fn serve(limits: ServerLimits) -> Running {
    serve_device(Adder, limits)
}

fn serve_device<D: Device>(device: D, limits: ServerLimits) -> Running<D> {
    let sensors = sensors();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let any = ReservedAddress::bind(any).expect("a free port");
    let server = Server::listen(any, Arc::new(device), sensors.clone(), limits).expect("listens");
    let (stop, stopped) = oneshot::channel();
    Running {
        address: server.local_addr().expect("an address"),
        sensors,
        shared: server.shared.clone(),
        stop,
        ended: tokio::spawn(server.run(async { _ = stopped.await })),
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// Connected, and told the versions.
    async fn connect<D>(server: &Running<D>) -> Self {
        let stream = TcpStream::connect(server.address)
            .await
            .expect("a connection");
        let mut client = Self(BufReader::new(stream));
        for what in [
            "protocol 5.1-MIB",
            "library karoo-",
            "device adder-1.0 adder-1.0.3",
        ] {
            let line = client.line().await;
            assert!(
                line.starts_with(&format!("#version-connect katcp-{what}")),
                "{line}"
            );
        }
        client
    }

    async fn send(&mut self, text: &str) {
        let sent = self.0.get_mut().write_all(text.as_bytes()).await;
        sent.expect("a server that reads");
    }

    /// The next line, without its end; empty at the end of the connection.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        let read = timeout(Duration::from_secs(20), read)
            .await
            .expect("an answer in time");
        read.map_or(String::new(), |_| line.trim_end().to_owned())
    }

    /// Reads up to this line.
    async fn skip_to(&mut self, last: &str) {
        loop {
            let line = self.line().await;
            assert_ne!(line, "", "closed before {last}");
            if line.starts_with(last) {
                return;
            }
        }
    }

    /// Whether the server closes the connection, whatever it sends before.
    async fn is_closed(&mut self) -> bool {
        let mut sink = tokio::io::sink();
        let rest = tokio::io::copy(&mut self.0, &mut sink);
        timeout(Duration::from_secs(20), rest).await.is_ok()
    }
}

/// What waits for the only client.
fn outbox(server: &Running) -> Arc<Outbox> {
    let clients = server.shared.clients();
    let (_, outbox) = clients.connected.values().next().expect("the client");
    outbox.clone()
}

/// Waits until the server has `count` clients.
async fn clients(server: &Running, count: usize) {
    let wait = async {
        while server.shared.clients().connected.len() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), wait)
        .await
        .expect("clients come and go");
}

#[tokio::test]
async fn requests_are_answered_in_order() {
    let server = serve(ServerLimits::default());
    let mut client = Client::connect(&server).await;
    client
        .send("?add[1] 1\r\n\n \r?add[2] 2\n#news x\n!reply x\n?watch")
        .await;
    assert_eq!(client.line().await, "!add[1] ok 41");
    assert_eq!(client.line().await, "!add[2] ok 42");
    client.send("dog\n").await;
    assert_eq!(client.line().await, "!watchdog ok");
    client.send("what\n?add 1\n").await;
    let log = client.line().await;
    assert!(log.starts_with("#log error 1"), "{log}");
    assert!(
        log.ends_with(r"a\_message\_begins\_with\_?,\_!\_or\_#,\_not\_with\_byte\_0x77"),
        "{log}"
    );
    assert_eq!(client.line().await, "!add ok 41");
}

#[tokio::test]
async fn clients_hear_of_others_and_of_the_end() {
    let server = serve(ServerLimits::default());
    let mut one = Client::connect(&server).await;
    let mut two = Client::connect(&server).await;
    let address = two.0.get_ref().local_addr().expect("an address");
    assert_eq!(one.line().await, format!("#client-connected {address}"));
    two.send("?client-list\n").await;
    let listed = [two.line().await, two.line().await, two.line().await];
    assert!(
        listed.contains(&format!("#client-list {address}")),
        "{listed:?}"
    );
    assert_eq!(listed[2], "!client-list ok 2");
    drop(one);
    clients(&server, 1).await;
    server.stop.send(()).expect("a server");
    assert_eq!(two.line().await, r"#disconnect server\_shutting\_down");
    assert_eq!(two.line().await, "");
    assert_eq!(server.ended.await.expect("no panic"), ServerEnd::Stopped);
}

#[tokio::test]
async fn halt_is_answered_before_it_is_done() {
    let server = serve(ServerLimits::default());
    let mut client = Client::connect(&server).await;
    client.send("?halt now\n?halt[3]\n").await;
    assert!(client.line().await.starts_with("!halt fail "));
    assert_eq!(client.line().await, "!halt[3] ok");
    assert_eq!(client.line().await, r"#disconnect server\_shutting\_down");
    assert_eq!(client.line().await, "");
    assert_eq!(server.ended.await.expect("no panic"), ServerEnd::Halted);
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// A device whose requests never end: one waits for its place, one has begun.
struct Stuck;

impl Device for Stuck {
    fn version(&self) -> &str {
        "adder-1.0"
    }

    fn build(&self) -> &str {
        "adder-1.0.3"
    }

    fn requests(&self) -> &'static [RequestHelp] {
        const fn help(name: &'static str) -> RequestHelp {
            RequestHelp {
                name,
                parameters: "",
                summary: "Wait.",
            }
        }
        const { &[help("wait"), help("work")] }
    }

    fn room(&self, request: &Message<'_>) -> Option<RoomFuture> {
        let waits = request.name() == "wait";
        waits.then(|| Box::pin(std::future::pending()) as RoomFuture)
    }

    fn handle(&self, _: &Message<'_>, _: &mut Response) -> Result<(), Refusal> {
        panic!("nothing gets that far")
    }

    fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        let works = request.name() == "work";
        works.then(|| Box::pin(std::future::pending()) as ReplyFuture)
    }
}

/// Requests of other clients, and those behind the ?halt of the client that halts, in one piece of
/// the connection.
#[tokio::test]
async fn requests_under_way_are_answered_when_the_server_ends() {
    const WAITS: &str = r"fail server\_shutting\_down:\_the\_request\_was\_not\_carried\_out";
    const WORKS: &str = r"fail server\_shutting\_down:\_the\_request\_had\_begun,\_and\_may\_or\_may\_not\_take\_effect";
    for by_client in [true, false] {
        let server = serve_device(Stuck, ServerLimits::default());
        let mut one = Client::connect(&server).await;
        let mut two = Client::connect(&server).await;
        let mut idle = Client::connect(&server).await;
        let mut last = Client::connect(&server).await;
        one.send("?watchdog[1]\n?wait[2]\n?wait[3]\n?watchdog[4]\n?unfinished")
            .await;
        one.skip_to("!watchdog[1] ok").await;
        two.send("?watchdog[1]\n?work[2] x\n?wait[3]\n").await;
        two.skip_to("!watchdog[1] ok").await;
        idle.skip_to("#client-connected").await;
        if by_client {
            last.send("?halt[7]\n").await;
            assert_eq!(last.line().await, "!halt[7] ok");
        } else {
            server.stop.send(()).expect("a server");
        }
        for (client, replies) in [
            (
                &mut one,
                vec![
                    ("wait[2]", WAITS),
                    ("wait[3]", WAITS),
                    ("watchdog[4]", WAITS),
                ],
            ),
            (&mut two, vec![("work[2]", WORKS), ("wait[3]", WAITS)]),
            (&mut idle, vec![]),
            (&mut last, vec![]),
        ] {
            for (request, reply) in replies {
                assert_eq!(client.line().await, format!("!{request} {reply}"));
            }
            assert_eq!(client.line().await, r"#disconnect server\_shutting\_down");
            assert_eq!(client.line().await, "");
        }
        let ended = server.ended.await.expect("no panic");
        assert_eq!(ended == ServerEnd::Halted, by_client);
    }
}

#[tokio::test]
async fn half_closed_connections_are_closed() {
    let server = serve(ServerLimits::default());
    let mut client = Client::connect(&server).await;
    client.send("?add 1\n?add 2\n?add").await;
    client.0.get_mut().shutdown().await.expect("a connection");
    assert_eq!(client.line().await, "!add ok 41");
    assert_eq!(client.line().await, "!add ok 42");
    assert_eq!(client.line().await, "");
    clients(&server, 0).await;
}

#[tokio::test]
async fn subscriptions_end_with_their_connection() {
    let server = serve(ServerLimits::default());
    let mut client = Client::connect(&server).await;
    client.send("?sensor-sampling b.count period 0.01\n").await;
    assert_eq!(
        client.line().await,
        "#sensor-status 1500000000.0 1 b.count nominal 5"
    );
    assert_eq!(
        client.line().await,
        "!sensor-sampling ok b.count period 0.01"
    );
    for _ in 0..3 {
        assert_eq!(
            client.line().await,
            "#sensor-status 1500000000.0 1 b.count nominal 5"
        );
    }
    drop(client);
    clients(&server, 0).await;
    let strategy = server.sensors.strategy(0, "b.count").expect("a sensor");
    assert_eq!(strategy, crate::sampling::Strategy::None);
}

#[tokio::test]
async fn endless_lines_are_cut_off() {
    let limits = ServerLimits {
        line: 1 << 20,
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let mut client = Client::connect(&server).await;
    let longest = format!("?{}\n", "x".repeat((1 << 20) - 1));
    client.send(&longest).await;
    assert!(client.line().await.contains(" invalid "));
    let mut other = Client::connect(&server).await;
    client.line().await;
    let longer = format!("?{}", "x".repeat(1 << 20));
    client.send(&longer).await;
    let line = client.line().await;
    assert!(
        line.starts_with(r"#disconnect a\_line\_is\_longer\_than\_1048576\_bytes"),
        "{line}"
    );
    clients(&server, 1).await;
    other.send("?watchdog\n").await;
    assert_eq!(other.line().await, "!watchdog ok");
}

/// Whether its end comes with it or never: also where it is so short that both are read at once.
#[tokio::test]
async fn lines_that_are_longer_than_the_limit_are_refused() {
    for limit in [100, 1 << 17] {
        for end in ["\n", ""] {
            let limits = ServerLimits {
                line: limit,
                ..ServerLimits::default()
            };
            let server = serve(limits);
            let mut client = Client::connect(&server).await;
            let longest = format!("?{}\n", "x".repeat(limit - 1));
            client.send(&longest.repeat(2)).await;
            for _ in 0..2 {
                let line = client.line().await;
                assert!(line.contains(" invalid "), "{line}");
            }
            client.send(&format!("?{}{end}", "x".repeat(limit))).await;
            let line = client.line().await;
            let why = format!(r"#disconnect a\_line\_is\_longer\_than\_{limit}\_bytes");
            assert!(line.starts_with(&why), "{limit} {end:?}: {line}");
            assert_eq!(client.line().await, "");
        }
    }
}

#[tokio::test]
async fn long_lines_wait_for_a_place_and_slow_ones_lose_theirs() {
    let limits = ServerLimits {
        long_lines: 1,
        line_time: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let long = "?watchdog ".to_owned() + &"x".repeat(200_000);
    let mut other = Client::connect(&server).await;
    let mut slow = Client::connect(&server).await;
    other.skip_to("#client-connected").await;
    slow.send(&long).await;
    let taken = async {
        while server.shared.long_lines.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), taken)
        .await
        .expect("the place is taken");
    // Taken only when the slow one, whose line does not end, is gone.
    other.send(&(long + "\n")).await;
    let line = other.line().await;
    assert!(line.starts_with("!watchdog fail "), "{line}");
    let line = slow.line().await;
    assert!(
        line.starts_with(r"#disconnect a\_long\_line\_did\_not\_end"),
        "{line}"
    );
}

#[tokio::test]
async fn who_reads_nothing_is_cut_off_and_others_are_not() {
    let limits = ServerLimits {
        backlog: 1 << 20,
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let mut deaf = Client::connect(&server).await;
    let mut other = Client::connect(&server).await;
    for client in [&mut deaf, &mut other] {
        client.send("?sensor-sampling b.text auto\n").await;
    }
    while server
        .sensors
        .strategy(0, "b.text")
        .is_ok_and(|s| s.encode()[0] == "none")
    {
        tokio::task::yield_now().await;
    }
    while !other.line().await.starts_with('!') {}
    let text = crate::Value::String("x".repeat(1 << 20).into());
    let sensor = server.sensors.find("b.text").expect("a sensor");
    for _ in 0..40 {
        let reading = crate::SensorReading::now(text.clone());
        server.sensors.set(sensor, reading);
        assert!(other.line().await.starts_with("#sensor-status"));
    }
    clients(&server, 1).await;
    assert!(deaf.is_closed().await);
    other.send("?watchdog\n").await;
    assert_eq!(other.line().await, "!watchdog ok");
    assert!(server.shared.backlogs.bytes() < 4 << 20);
}

#[tokio::test]
async fn answers_that_nobody_reads_stop_the_requests() {
    let limits = ServerLimits {
        stall: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let mut deaf = Client::connect(&server).await;
    let requests = "?help\n".repeat(10_000);
    let (mut read, mut write) = deaf.0.get_mut().split();
    // More answers than the sockets hold; the server stops reading at some time.
    let flood = async { while write.write_all(requests.as_bytes()).await.is_ok() {} };
    let mut most = 0;
    let look = async {
        loop {
            most = server.shared.backlogs.bytes().max(most);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = flood => {}
        () = look => {}
        () = clients(&server, 0) => {}
    }
    assert!(most > 0 && most < 1 << 20, "{most}");
    let mut rest = Vec::new();
    let _ = read.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn the_greediest_are_cut_off_when_all_want_too_much() {
    let limits = ServerLimits {
        backlogs: 1 << 20,
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let mut deaf = Client::connect(&server).await;
    let mut other = Client::connect(&server).await;
    clients(&server, 2).await;
    {
        let clients = server.shared.clients();
        let mut outboxes = clients.connected.values().map(|(_, outbox)| outbox);
        outboxes
            .next()
            .expect("the first")
            .push(vec![b'x'; 64 << 20]);
        outboxes.next().expect("the second").push(*b"#a\n");
    }
    other.send("?watchdog\n").await;
    assert_eq!(other.line().await, "#a");
    assert_eq!(other.line().await, "!watchdog ok");
    assert!(deaf.is_closed().await);
    clients(&server, 1).await;
}

/// Nobody asks for anything: what is sent unasked counts as well.
#[tokio::test]
async fn the_greediest_are_cut_off_without_a_request() {
    let limits = ServerLimits {
        backlogs: 1 << 20,
        ..ServerLimits::default()
    };
    let server = serve(limits);
    let mut deaf = Client::connect(&server).await;
    clients(&server, 1).await;
    for _ in 0..2 {
        outbox(&server).inform(vec![b'x'; 8 << 20].into());
    }
    clients(&server, 0).await;
    assert!(deaf.is_closed().await);
    assert_eq!(server.shared.backlogs.bytes(), 0);
}

#[path = "server_room_tests.rs"]
mod room;
