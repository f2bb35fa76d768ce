//! Ports: queues that are rings, and devices that need no hardware.

use std::time::Duration;

use dpdk::{BURST, DpdkError, ExtMemory, ExtPool};

use super::*;
use crate::support::left_out;

#[test]
fn ring_port_keeps_its_queues_apart() {
    const QUEUES: usize = 4;
    let eal = Eal::for_tests();
    let pool = pool("queues", 255, 64);
    let (mut feeds, rx): (Vec<_>, Vec<_>) = (0..QUEUES)
        .map(|queue| mbuf_ring(eal, &format!("queues-rx{queue}"), 63).expect("ring"))
        .unzip();
    let (tx, mut sinks): (Vec<_>, Vec<_>) = (0..QUEUES)
        .map(|queue| mbuf_ring(eal, &format!("queues-tx{queue}"), 63).expect("ring"))
        .unzip();
    let device = Device::rings(eal, "queues", rx, tx).expect("port");
    let config = PortConfig {
        tx_queues: QUEUES,
        ..PortConfig::default()
    };
    let mut started = device.start(&config).expect("start");
    assert_eq!((started.rx.len(), started.tx.len()), (QUEUES, QUEUES));
    assert!(started.port.link().expect("link").up);

    let mut batch: MbufBatch = MbufBatch::new();
    for (queue, feed) in feeds.iter_mut().enumerate() {
        for _ in 0..=queue {
            batch.push(packet(&pool, &[queue as u8; 60])).expect("room");
        }
        assert_eq!(feed.enqueue(&mut batch), queue + 1);
    }
    for (queue, (rx, tx)) in started.rx.iter_mut().zip(&mut started.tx).enumerate() {
        assert_eq!(rx.rx_burst(&mut batch), queue + 1);
        assert!(batch.iter().all(|mbuf| mbuf.data() == [queue as u8; 60]));
        assert_eq!(tx.tx_burst(&mut batch), queue + 1);
        assert!(batch.is_empty());
    }
    let stats = started.port.stats().expect("stats");
    assert_eq!((stats.rx_packets, stats.tx_packets), (10, 10));
    assert!(!started.port.xstats().expect("xstats").is_empty());
    for (queue, sink) in sinks.iter_mut().enumerate() {
        assert_eq!(sink.dequeue(&mut batch), queue + 1);
        assert!(batch.iter().all(|mbuf| mbuf.data() == [queue as u8; 60]));
        batch.clear();
    }
    assert_eq!(pool.available(), 255);
}

#[test]
fn full_ring_leaves_the_rest_in_the_batch() {
    let pool = pool("full", 63, 64);
    let (mut sender, receiver) = mbuf_ring(Eal::for_tests(), "full", 31).expect("ring");
    let mut batch = MbufBatch::<40>::new();
    for index in 0..40 {
        batch.push(packet(&pool, &[index])).expect("room");
    }
    assert_eq!((sender.capacity(), sender.enqueue(&mut batch)), (31, 31));
    assert_eq!(
        batch.iter().map(|mbuf| mbuf.data()[0]).collect::<Vec<_>>(),
        (31..40).collect::<Vec<_>>()
    );
    drop(batch);
    assert_eq!(pool.available(), 63 - 31);
    drop((sender, receiver));
    assert_eq!(pool.available(), 63, "a ring frees what is left in it");
}

#[test]
fn port_names_can_be_used_again() {
    let eal = Eal::for_tests();
    for _ in 0..3 {
        let (tx, rx, port) = loopback("again");
        assert!(Device::list(eal).contains(&"net_ring_again".to_owned()));
        drop((tx, rx, port));
        assert!(!Device::list(eal).contains(&"net_ring_again".to_owned()));
    }
    let (_tx, _rx, _port) = loopback("again");
    // Else the port could be closed under its queues.
    for error in [
        Device::by_name(eal, "net_ring_again").expect_err("taken"),
        Device::vdev(eal, "net_ring_again", "").expect_err("taken"),
    ] {
        assert!(matches!(error, DpdkError::Taken { .. }), "{error}");
    }
    let error = Device::by_name(eal, "0000:99:00.0").expect_err("no such port");
    assert!(matches!(error, DpdkError::NoSuchPort { .. }), "{error}");
}

/// The driver has no interrupts, which is known when they are asked for.
#[test]
fn a_queue_that_wakes_nobody_is_polled() {
    let device = Device::vdev(Eal::for_tests(), "net_null8", "size=1024").expect("null device");
    let config = PortConfig {
        rx_pools: vec![pool("null_wakes", 511, 2048)],
        rx_descriptors: 256,
        rx_interrupts: true,
        ..PortConfig::default()
    };
    let mut port = device.start(&config).expect("start");
    let mut batch: MbufBatch = MbufBatch::new();
    let received = port.rx[0].sleep(&mut batch, Duration::from_secs(3600));
    assert_eq!(received, BURST);
    assert!(!port.rx[0].wakes());
    batch.clear();
    let received = port.rx[0].sleep(&mut batch, Duration::from_secs(3600));
    assert_eq!(received, BURST);
}

#[test]
fn null_device_receives_and_counts() {
    let pool = pool("null", 511, 2048);
    let device = Device::vdev(Eal::for_tests(), "net_null3", "size=1024").expect("null device");
    let config = PortConfig {
        rx_pools: vec![pool.clone()],
        rx_descriptors: 256,
        ..PortConfig::default()
    };
    let mut started = device.start(&config).expect("start");
    let mut batch: MbufBatch = MbufBatch::new();
    assert_eq!(started.rx[0].rx_burst(&mut batch), batch.len());
    assert!(batch.iter().all(|mbuf| mbuf.pkt_len() == 1024));
    let received = batch.len() as u64;
    assert!(received > 0);
    started.tx[0].tx_burst(&mut batch);
    assert!(batch.is_empty());
    let stats = started.port.stats().expect("stats");
    assert_eq!((stats.rx_packets, stats.tx_packets), (received, received));
}

/// Two pages of memory that outlive every pool over them.
#[repr(align(4096))]
struct Pages([u8; 8192]);

/// Some of the pages.
struct Part(&'static Pages, usize);

// SAFETY: statics stay where they are, and nothing writes to these.
unsafe impl ExtMemory for Part {
    type Writer<'a> = ();

    fn writer(&mut self) {}

    fn region(&self) -> std::ptr::NonNull<[u8]> {
        std::ptr::NonNull::from(&self.0.0[..self.1])
    }
}

/// EAL knows memory once, whatever the number of ports that may read it, until the last of them is
/// closed.
#[test]
fn memory_is_known_as_long_as_a_port_may_read_it() {
    static PAGES: Pages = Pages([0; 8192]);
    let eal = Eal::for_tests();
    let pool = || ExtPool::new(eal, [Part(&PAGES, 8192)]);
    let known = |error: DpdkError| error.to_string().contains("rte_extmem_register");
    let (chunks, others) = (pool(), pool());
    let ports = ["register0", "register1"].map(loopback);
    for (_, _, port) in &ports {
        assert!(port.is_virtual());
        port.register(&chunks).expect("registered");
        assert!(known(port.register(&others).expect_err("registered twice")));
    }
    drop(chunks);
    let (_tx, _rx, port) = loopback("register2");
    let [first, second] = ports;
    drop(first);
    assert!(known(port.register(&others).expect_err("still registered")));
    drop(second);
    port.register(&others).expect("registered again");
}

#[test]
fn memory_that_is_not_whole_pages_is_not_registered() {
    static PAGES: Pages = Pages([0; 8192]);
    let chunks = ExtPool::new(
        Eal::for_tests(),
        [8192, 5000].map(|bytes| Part(&PAGES, bytes)),
    );
    let (_tx, _rx, port) = loopback("register_part");
    let error = port.register(&chunks).expect_err("part of a page");
    assert!(error.to_string().contains(", 5000)"), "{error}");
    // Nothing is left of it.
    let chunks = ExtPool::new(Eal::for_tests(), [Part(&PAGES, 8192)]);
    port.register(&chunks).expect("registered");
}

/// In a process of its own, since EAL has one mode. Physical addresses need root and huge pages.
#[test]
fn chunks_are_not_registered_where_devices_see_physical_addresses() {
    const NAME: &str =
        "dpdk::ports::chunks_are_not_registered_where_devices_see_physical_addresses";
    if std::env::var_os("KAROO_TEST_PHYSICAL").is_none() {
        super::run_again(
            &["--exact", NAME, "--nocapture"],
            ("KAROO_TEST_PHYSICAL", "1"),
        );
        return;
    }
    let eal = match Eal::init(&EalConfig {
        memory_mib: 32,
        huge_pages: HugePages::Require,
        extra_args: vec!["--iova-mode=pa".to_owned()],
        ..EalConfig::default()
    }) {
        Ok(eal) => eal,
        Err(error @ EalError::NoHugePages { .. }) => {
            return left_out(&format!("no physical addresses: {error}"));
        }
        Err(EalError::Init { log, .. }) if log.contains("physical addresses") => {
            return left_out(&format!("no physical addresses: {log}"));
        }
        Err(error) => panic!("{error}"),
    };
    static PAGES: Pages = Pages([0; 8192]);
    let chunks = ExtPool::new(&eal, [Part(&PAGES, 8192)]);
    let (sender, receiver) = mbuf_ring(&eal, "physical", 31).expect("ring");
    let device = Device::rings(&eal, "physical", vec![receiver], vec![sender]).expect("ring port");
    let port = device.start(&PortConfig::default()).expect("start").port;
    let error = port.register(&chunks).expect_err("refused").to_string();
    assert!(error.contains("IOVA") && error.contains("IOMMU"), "{error}");
}
