//! Ports of UDP sockets, on the loopback interface: nothing here needs a right.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dpdk::{SocketConfig, SocketPort};
use karoo::net::{Datagram, HeaderTemplate, MacAddr};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::*;

const TOO_LONG: Duration = Duration::from_secs(60);

/// Groups and ports of this process alone: others may run the same tests.
fn group(number: u8, port: u16) -> SocketAddrV4 {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(239, high, low, number), port)
}

/// A port with a receive queue for each list of destinations, all of them joined, and a transmit
/// queue.
fn open(name: &str, destinations: &[Vec<SocketAddrV4>], rx_bytes: usize) -> SocketPort {
    let queues = destinations.iter().enumerate();
    let rx = queues.map(|(queue, to)| (pool(&format!("{name}{queue}"), 191, 9000), to.clone()));
    let config = SocketConfig {
        name,
        interface: if_nametoindex("lo").unwrap(),
        ip: Ipv4Addr::LOCALHOST,
        rx: rx.collect(),
        rx_bytes,
        tx_queues: 1,
        tx_bytes: 1 << 20,
    };
    let port = SocketPort::open(Eal::for_tests(), config).expect("sockets");
    for to in destinations
        .iter()
        .flatten()
        .filter(|to| to.ip().is_multicast())
    {
        port.groups.join(*to.ip()).expect("joined");
    }
    port
}

/// A frame from a UDP port of this host, in one segment or in two.
fn frame(name: &str, (from, ttl): (u16, u8), to: SocketAddrV4, payload: &[&[u8]]) -> Mbuf {
    let pool = pool(name, 7, 9000);
    let mac = MacAddr::default();
    let source = SocketAddrV4::new(Ipv4Addr::LOCALHOST, from);
    let mut headers = [0; 42];
    let bytes = payload.iter().map(|part| part.len()).sum();
    HeaderTemplate::new(mac, mac, source, to, ttl).emit(bytes, &mut headers);
    let mut mbuf = packet(&pool, &[&headers, payload[0]].concat());
    for part in &payload[1..] {
        mbuf.chain(packet(&pool, part)).expect("chained");
    }
    // Its mbufs keep it.
    std::mem::forget(pool);
    mbuf
}

/// Receives until there are so many packets.
fn receive(queue: &mut dpdk::RxQueue, batch: &mut MbufBatch, packets: usize) {
    let begun = Instant::now();
    while batch.len() < packets {
        assert!(begun.elapsed() < TOO_LONG, "{} packets", batch.len());
        queue.rx_burst(batch);
    }
}

#[test]
fn frames_come_as_they_were_sent() {
    let to = group(1, 7148);
    let mut port = open("as_sent", &[vec![to]], 1 << 20).started;
    let payloads: [&[&[u8]]; 3] = [&[b"one part"], &[b"header ", b"and payload"], &[b""]];
    let mut batch = MbufBatch::new();
    for (number, payload) in payloads.iter().enumerate() {
        let from = 50_000 + number as u16;
        let sent = frame(&format!("sent{number}"), (from, 4), to, payload);
        batch.push(sent).expect("room");
    }
    assert_eq!(port.tx[0].tx_burst(&mut batch), 3);
    assert!(batch.is_empty());
    receive(&mut port.rx[0], &mut batch, 3);
    for (number, (mbuf, payload)) in batch.iter().zip(payloads).enumerate() {
        let datagram = Datagram::new_checked(mbuf.data()).expect("a datagram");
        assert_eq!(datagram.dst(), to);
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 50_000 + number as u16);
        assert_eq!(datagram.src(), from);
        assert_eq!(datagram.payload(), payload.concat());
        assert_eq!(mbuf.nb_segs(), 1);
    }
    let stats = port.port.stats().unwrap();
    assert_eq!((stats.rx_packets, stats.tx_packets), (3, 3));
    assert_eq!((stats.rx_bytes, stats.tx_bytes), (3 * 42 + 26, 3 * 42 + 26));
    assert_eq!(
        (stats.rx_missed, stats.rx_errors, stats.tx_errors),
        (0, 0, 0)
    );
    assert!(port.port.is_virtual() && port.port.link().unwrap().up);
    assert_eq!(port.port.info().unwrap().driver, "UDP sockets");
}

/// Such a packet is for programs of this host.
#[test]
fn a_time_to_live_of_0_reaches_this_host() {
    let to = group(21, 7148);
    let mut port = open("ttl", &[vec![to]], 1 << 20).started;
    let mut batch = MbufBatch::new();
    let sent = frame("ttl_sent", (50_000, 0), to, &[b"here"]);
    batch.push(sent).expect("room");
    assert_eq!(port.tx[0].tx_burst(&mut batch), 1);
    let stats = port.port.stats().unwrap();
    assert_eq!((stats.tx_packets, stats.tx_errors), (1, 0));
    receive(&mut port.rx[0], &mut batch, 1);
}

#[test]
fn a_datagram_wakes_who_sleeps() {
    let to = group(20, 7148);
    let mut port = open("wakes", &[vec![to], vec![]], 1 << 20).started;
    let silent = port.rx.pop().expect("a queue");
    assert!(!silent.wakes(), "it has no socket");
    let mut queue = port.rx.pop().expect("a queue");
    assert!(queue.wakes());
    let mut batch: MbufBatch = MbufBatch::new();
    assert_eq!(queue.sleep(&mut batch, Duration::from_millis(1)), 0);
    let mut sent: MbufBatch = MbufBatch::new();
    for number in 0..2 {
        let frame = frame(&format!("wakeup{number}"), (50_000, 4), to, &[b"wake up"]);
        sent.push(frame).expect("room");
        // Within moments, whether it sleeps already or not.
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| queue.sleep(&mut batch, 10 * TOO_LONG));
            assert_eq!(port.tx[0].tx_burst(&mut sent), 1);
            assert_eq!(woken.join().unwrap(), 1);
        });
        assert!(begun.elapsed() < TOO_LONG);
    }
}

/// Time to live and UDP port are the frame's.
#[test]
fn the_kernels_headers_are_those_of_the_frame() {
    let to = group(2, 7149);
    let listener = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    listener.set_reuse_address(true).unwrap();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, to.port())).into())
        .unwrap();
    let lo = InterfaceIndexOrAddress::Index(if_nametoindex("lo").unwrap());
    listener.join_multicast_v4_n(to.ip(), &lo).unwrap();
    setsockopt(&listener, sockopt::Ipv4RecvTtl, &true).unwrap();
    listener.set_read_timeout(Some(TOO_LONG)).unwrap();
    let mut port = open("headers", &[], 0).started;
    for ttl in [4u8, 9] {
        let mut batch: MbufBatch = MbufBatch::new();
        let sent = frame(&format!("ttl{ttl}"), (50_010, ttl), to, &[b"far"]);
        batch.push(sent).expect("room");
        assert_eq!(port.tx[0].tx_burst(&mut batch), 1);
        let (mut room, mut control) = ([0; 16], nix::cmsg_space!(i32));
        let mut room = [IoSliceMut::new(&mut room)];
        let none = MsgFlags::empty();
        let message =
            recvmsg::<SockaddrIn>(listener.as_raw_fd(), &mut room, Some(&mut control), none);
        let message = message.unwrap();
        let told = message.cmsgs().unwrap().next();
        let Some(ControlMessageOwned::Ipv4Ttl(told)) = told else {
            panic!("{told:?}");
        };
        assert_eq!((message.bytes, told), (3, ttl.into()));
    }
}

#[test]
fn each_queue_has_its_destinations_and_no_others() {
    // More groups than a socket has memberships, a second port, and this host alone.
    let many: Vec<_> = (0..45).map(|number| group(100 + number, 7150)).collect();
    let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7151);
    let others = vec![group(3, 7150), group(100, 7152), host];
    let opened = open("queues_udp", &[many.clone(), others.clone()], 1 << 17);
    // All sockets of a queue together have what was asked for.
    assert!(opened.rx_bytes >= 1 << 17, "{}", opened.rx_bytes);
    let mut port = opened.started;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = socket2::SockRef::from(&sender);
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    let nobodys = [group(4, 7150), group(100, 7153)];
    for to in nobodys.iter().chain(&many).chain(&others) {
        sender.send_to(to.to_string().as_bytes(), to).unwrap();
    }
    for (queue, expected) in port.rx.iter_mut().zip([many, others]) {
        let mut found = Vec::new();
        let mut batch = MbufBatch::new();
        while found.len() < expected.len() {
            receive(queue, &mut batch, 1);
            for mbuf in batch.iter() {
                let datagram = Datagram::new_checked(mbuf.data()).expect("a datagram");
                assert_eq!(datagram.payload(), datagram.dst().to_string().as_bytes());
                found.push(datagram.dst());
            }
            batch.clear();
        }
        assert_eq!(queue.rx_burst(&mut batch), 0);
        found.sort();
        let mut expected = expected.clone();
        expected.sort();
        assert_eq!(found, expected);
    }
}

/// What finds no room is counted, also while nobody receives.
#[test]
fn datagrams_that_the_kernel_drops_are_counted() {
    const SENT: u64 = 2000;
    let to = group(5, 7154);
    let port = open("drops_udp", &[vec![to]], 1 << 16);
    assert!(port.rx_bytes <= 1 << 16, "{}", port.rx_bytes);
    let mut port = port.started;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = socket2::SockRef::from(&sender);
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for _ in 0..SENT {
        sender.send_to(&[1; 100], to).unwrap();
    }
    let missed = port.port.stats().unwrap().rx_missed;
    assert!((1..SENT).contains(&missed), "{missed}");
    let (mut batch, mut received): (MbufBatch, u64) = (MbufBatch::new(), 0);
    while port.rx[0].rx_burst(&mut batch) > 0 {
        received += batch.len() as u64;
        batch.clear();
    }
    let stats = port.port.stats().unwrap();
    assert_eq!(
        (received + stats.rx_missed, stats.rx_missed),
        (SENT, missed)
    );
    assert_eq!(stats.rx_packets, received);
}

/// What cannot be sent, or is too long to be received, is counted, and holds nothing else up.
#[test]
fn what_is_no_datagram_is_counted() {
    let to = group(6, 7155);
    let mut port = open("errors_udp", &[vec![to]], 1 << 20).started;
    let mut batch = MbufBatch::new();
    let other = pool("no_datagram", 7, 128);
    batch.push(packet(&other, &[0xff; 60])).expect("room");
    batch.push(packet(&other, &[0; 10])).expect("room");
    // Of three segments.
    let three = frame("three", (50_020, 4), to, &[b"a", b"b", b"c"]);
    batch.push(three).expect("room");
    batch
        .push(frame("good", (50_020, 4), to, &[b"good"]))
        .expect("room");
    assert_eq!(port.tx[0].tx_burst(&mut batch), 4);
    // Longer than an mbuf.
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = socket2::SockRef::from(&sender);
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    sender.send_to(&[1; 9001], to).unwrap();
    sender.send_to(b"last", to).unwrap();
    receive(&mut port.rx[0], &mut batch, 2);
    let payloads = batch.iter().map(|mbuf| mbuf.data()[42..].to_vec());
    assert_eq!(payloads.collect::<Vec<_>>(), [b"good", b"last"]);
    let stats = port.port.stats().unwrap();
    assert_eq!((stats.tx_packets, stats.tx_errors), (1, 3));
    assert_eq!((stats.rx_packets, stats.rx_errors), (2, 1));
    assert_eq!(other.available(), 7);
}

/// A pool without mbufs is counted too, and what waits is received once there are some.
#[test]
fn without_mbufs_packets_wait() {
    let to = group(7, 7156);
    let few = pool("few_udp", 3, 9000);
    let config = SocketConfig {
        name: "few_udp",
        interface: if_nametoindex("lo").unwrap(),
        ip: Ipv4Addr::LOCALHOST,
        rx: vec![(few.clone(), vec![to])],
        rx_bytes: 1 << 20,
        tx_queues: 0,
        tx_bytes: 0,
    };
    let mut port = SocketPort::open(Eal::for_tests(), config).expect("sockets");
    port.groups.join(*to.ip()).expect("joined");
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = socket2::SockRef::from(&sender);
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    for number in 0..5 {
        sender.send_to(&[number], to).unwrap();
    }
    let queue = &mut port.started.rx[0];
    let (mut first, mut rest) = (MbufBatch::new(), MbufBatch::new());
    receive(queue, &mut first, 3);
    assert_eq!(queue.rx_burst(&mut rest), 0);
    // What found no mbuf waits in its socket.
    let stats = port.started.port.stats().unwrap();
    assert_eq!((stats.rx_no_mbuf, stats.rx_missed), (0, 0));
    drop(first);
    receive(queue, &mut rest, 2);
    let last: Vec<_> = rest.iter().map(|mbuf| mbuf.data()[42]).collect();
    assert_eq!(last, [3, 4]);
}
