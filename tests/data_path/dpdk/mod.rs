//! The safe layer over DPDK, on ring ports and virtual devices. EAL starts once per process, so all
//! tests share it.

mod ports;
mod sockets;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dpdk::{
    AttachError, Device, DpdkError, Eal, EalConfig, EalError, ExtMemory, ExtPool, HugePages,
    MAX_HANDLES, Mbuf, MbufBatch, MbufPool, PoolConfig, PortConfig, SharedRing, StartedPort,
    mbuf_ring, pool_size,
};
use ground::{StopFlag, tsc};

fn pool(name: &str, mbufs: usize, data_room: usize) -> MbufPool {
    let config = PoolConfig {
        mbufs,
        cache: 0,
        data_room,
        socket: None,
    };
    MbufPool::new(Eal::for_tests(), name, config).expect("pool")
}

fn packet(pool: &MbufPool, bytes: &[u8]) -> Mbuf {
    let mut mbuf = pool.alloc().expect("the pool has mbufs");
    mbuf.append(bytes.len())
        .expect("room")
        .copy_from_slice(bytes);
    mbuf
}

fn loopback(name: &str) -> (dpdk::TxQueue, dpdk::RxQueue, dpdk::Port) {
    let eal = Eal::for_tests();
    let (sender, receiver) = mbuf_ring(eal, name, 511).expect("ring");
    let device = Device::rings(eal, name, vec![receiver], vec![sender]).expect("ring port");
    let StartedPort {
        port,
        mut rx,
        mut tx,
    } = device.start(&PortConfig::default()).expect("start");
    (tx.remove(0), rx.remove(0), port)
}

#[test]
fn second_start_is_refused() {
    Eal::for_tests();
    let error = Eal::init(&EalConfig::default()).expect_err("EAL starts once");
    assert!(matches!(error, EalError::AlreadyStarted), "{error}");
}

/// Runs this very test binary again with other settings.
fn run_again(arguments: &[&str], variable: (&str, &str)) {
    let output = Command::new(std::env::current_exe().expect("path"))
        .args(arguments)
        .env(variable.0, variable.1)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // A name that no test has any more passes as well.
    let ran = if arguments.contains(&"--exact") {
        text.contains(" 1 passed")
    } else {
        text.contains(" passed") && !text.contains(" 0 passed")
    };
    assert!(
        output.status.success() && ran,
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn everything_works_without_huge_pages() {
    if std::env::var_os("KAROO_TEST_HUGE_PAGES").is_none() {
        run_again(
            &["dpdk::", "--skip", "eal_stops"],
            ("KAROO_TEST_HUGE_PAGES", "never"),
        );
        return;
    }
    let never = std::env::var("KAROO_TEST_HUGE_PAGES").as_deref() == Ok("never");
    assert_eq!(Eal::for_tests().huge_pages(), !never);
}

#[test]
fn eal_stops_when_all_that_needs_it_is_gone() {
    if std::env::var_os("KAROO_TEST_STOP").is_none() {
        run_again(
            &["--exact", "dpdk::eal_stops_when_all_that_needs_it_is_gone"],
            ("KAROO_TEST_STOP", "1"),
        );
        return;
    }
    let config = EalConfig {
        worker_cpus: vec![ground::os::allowed_cpus()[0]],
        memory_mib: 32,
        huge_pages: HugePages::Never,
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).expect("EAL");
    let (sender, receiver) = mbuf_ring(&eal, "stop", 31).expect("ring");
    let device = Device::rings(&eal, "stop", vec![receiver], vec![sender]).expect("ring port");
    drop(eal);
    let mut port = device
        .start(&PortConfig::default())
        .expect("the device keeps EAL up");
    assert_eq!(port.rx[0].rx_burst(&mut MbufBatch::<8>::new()), 0);
    drop(port);
    let error = Eal::init(&config).expect_err("EAL starts once, also after it stopped");
    assert!(matches!(error, EalError::AlreadyStarted), "{error}");
}

#[test]
fn mbufs_grow_at_both_ends_and_return_on_drop() {
    let pool = pool("grow", 7, 256);
    assert_eq!(pool.available(), 7);
    let mut mbuf = packet(&pool, b"payload");
    mbuf.prepend(3).expect("headroom").copy_from_slice(b"hdr");
    assert_eq!(mbuf.data(), b"hdrpayload");
    assert_eq!((mbuf.pkt_len(), mbuf.nb_segs()), (10, 1));
    assert!(
        mbuf.prepend(1000).is_none(),
        "there are 128 bytes of headroom"
    );
    assert!(
        mbuf.append(250).is_none(),
        "256 bytes of data room, 7 taken"
    );
    mbuf.data_mut()[0] = b'H';

    mbuf.chain(packet(&pool, b", tail")).expect("two segments");
    assert_eq!((mbuf.pkt_len(), mbuf.nb_segs()), (16, 2));
    assert_eq!(
        mbuf.segments().collect::<Vec<_>>(),
        [&b"Hdrpayload"[..], b", tail"]
    );
    let mut flat = [0; 16];
    assert_eq!(mbuf.copy_to(&mut flat), 16);
    assert_eq!(&flat, b"Hdrpayload, tail");
    assert_eq!(pool.available(), 5);
    drop(mbuf);
    assert_eq!(pool.available(), 7);
}

#[test]
fn batches_take_what_fits_and_free_the_rest() {
    let pool = pool("batch", 15, 64);
    let mut batch = MbufBatch::<8>::new();
    assert!(pool.alloc_bulk(&mut batch, 6));
    assert!(!pool.alloc_bulk(&mut batch, 3), "room for two");
    assert!(batch.push(pool.alloc().expect("mbuf")).is_ok());
    assert!(batch.push(pool.alloc().expect("mbuf")).is_ok());
    let refused = batch.push(pool.alloc().expect("mbuf")).expect_err("full");
    assert_eq!((batch.len(), pool.available()), (8, 6));
    drop(refused);
    drop(batch.pop());
    assert_eq!(pool.available(), 8);
    let mut more = MbufBatch::<8>::new();
    assert!(pool.alloc_bulk(&mut more, 8));
    assert!(pool.alloc().is_none(), "the pool is empty");
    drop(batch);
    more.clear();
    assert_eq!(pool.available(), 15);
}

#[test]
fn pool_outlives_its_mbufs() {
    let pool = pool("outlived", 3, 64);
    let mbuf = packet(&pool, b"still here");
    drop(pool);
    assert_eq!(mbuf.data(), b"still here");
}

#[test]
fn duplicate_names_are_refused_with_the_call() {
    let _first = pool("twice", 3, 64);
    let config = _first.config();
    let error = MbufPool::new(Eal::for_tests(), "twice", config).expect_err("the name is taken");
    let text = error.to_string();
    assert!(
        text.contains("rte_pktmbuf_pool_create(twice") && text.contains("File exists"),
        "{text}"
    );
}

/// 150 GB.
#[test]
fn a_pool_beyond_dpdks_memory_is_refused_with_the_way_out() {
    let config = PoolConfig {
        mbufs: 1 << 24,
        cache: 0,
        data_room: 9000,
        socket: None,
    };
    let error = MbufPool::new(Eal::for_tests(), "too-large", config).unwrap_err();
    let text = error.to_string();
    for words in [
        "'too-large' of 16777216 mbufs takes 1",
        "DPDK has not left",
        "MiB of huge pages",
        "| sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn small_pool_is_refused_with_the_number() {
    assert_eq!(pool_size(1024, 32), 1536);
    assert_eq!(pool_size(16, 32), 80);
    let small = pool("small", 300, 2048);
    let config = PortConfig {
        rx_pools: vec![small.clone(), small],
        rx_descriptors: 128,
        ..PortConfig::default()
    };
    let device = Device::vdev(Eal::for_tests(), "net_null7", "").expect("null device");
    let info = device.info().expect("info");
    assert_eq!(info.driver, "net_null");
    let error = device.start(&config).expect_err("384 needed");
    assert!(
        matches!(error, DpdkError::PoolTooSmall { needed: 384, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("give it 384"));
}

/// Chunk memory that counts how often it came back.
struct Chunk {
    bytes: Box<[u8]>,
    returned: Arc<AtomicUsize>,
}

// SAFETY: a boxed slice stays where it is, and its bytes change only through `&mut`.
unsafe impl ExtMemory for Chunk {
    type Writer<'a> = &'a mut [u8];

    fn writer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn region(&self) -> std::ptr::NonNull<[u8]> {
        self.bytes.region()
    }

    fn recycled(&mut self) {
        self.returned.fetch_add(1, Ordering::SeqCst);
    }
}

fn chunks(count: usize, length: usize) -> (ExtPool<Chunk>, Arc<AtomicUsize>) {
    let returned = Arc::new(AtomicUsize::new(0));
    let chunk = || Chunk {
        bytes: vec![0; length].into(),
        returned: Arc::clone(&returned),
    };
    let pool = ExtPool::new(Eal::for_tests(), (0..count).map(|_| chunk()));
    (pool, returned)
}

/// Sends `packets` packets out of one chunk through a ring port; header mbuf chained to an external
/// segment.
#[test]
fn chunk_returns_once_when_its_last_packet_has_left() {
    const PACKETS: usize = 100;
    const PAYLOAD: usize = 8192;
    let headers = pool("ext-headers", 255, 128);
    let segments = pool("ext-segments", 255, 0);
    let (chunks, returned) = chunks(1, PACKETS * PAYLOAD);
    let (mut tx, mut rx, port) = loopback("ext");

    let mut chunk = chunks.take().expect("one chunk");
    for (index, byte) in chunk.writer().iter_mut().enumerate() {
        *byte = (index / PAYLOAD) as u8;
    }
    assert!(chunks.take().is_none());
    let mut shared = chunk.share();
    let mut sent: MbufBatch = MbufBatch::new();
    for index in 0..PACKETS {
        let mut mbuf = packet(&headers, &[0xaa; 114]);
        let payload = shared
            .attach(&segments, index * PAYLOAD..(index + 1) * PAYLOAD)
            .expect("segment");
        mbuf.chain(payload).expect("chain");
        assert!(
            mbuf.append(1).is_none(),
            "a packet does not grow into the chunk"
        );
        sent.push(mbuf).expect("room");
        if sent.room() == 0 || index == PACKETS - 1 {
            while !sent.is_empty() {
                tx.tx_burst(&mut sent);
            }
        }
    }
    assert_eq!(shared.packets(), PACKETS);
    drop(shared);
    assert_eq!(
        returned.load(Ordering::SeqCst),
        0,
        "packets still point into the chunk"
    );

    let mut received: MbufBatch = MbufBatch::new();
    let mut index = 0;
    while rx.rx_burst(&mut received) > 0 {
        for mbuf in &received {
            let parts: Vec<&[u8]> = mbuf.segments().collect();
            assert_eq!(parts, [&[0xaa; 114][..], &[index as u8; PAYLOAD]]);
            index += 1;
        }
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        received.clear();
    }
    assert_eq!(index, PACKETS);
    assert_eq!(returned.load(Ordering::SeqCst), 1);
    assert_eq!(
        (
            chunks.available(),
            segments.available(),
            headers.available()
        ),
        (1, 255, 255)
    );
    drop((tx, rx, port));

    // The same chunk again, without any packet.
    drop(chunks.take().expect("it is back").share());
    assert_eq!(
        (returned.load(Ordering::SeqCst), chunks.available()),
        (2, 1)
    );
}

/// One owner's packets take no handle away from another, however early they are made.
#[test]
fn every_owner_gets_its_handle() {
    const OTHERS: usize = 15;
    let segments = pool("handles", 255, 0);
    let (chunks, returned) = chunks(1, 100);
    let mut packets = Vec::new();
    let mut owners = Vec::new();
    let chunk = chunks.take().expect("chunk");
    let mut last = chunk.share_with(OTHERS, |other, mut handle| {
        assert_eq!(other, owners.len());
        if other == 0 {
            let packet = |byte| handle.attach(&segments, byte..byte + 1).expect("segment");
            packets.extend((0..100).map(packet));
        }
        owners.push(handle);
    });
    assert_eq!(owners.len(), OTHERS);
    for owner in owners.iter_mut().chain([&mut last]) {
        packets.push(owner.attach(&segments, 0..1).expect("segment"));
    }
    drop((packets, last));
    // Handles that are left keep it too.
    while let Some(owner) = owners.pop() {
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        drop(owner);
    }
    assert_eq!(returned.load(Ordering::SeqCst), 1);
    assert_eq!((chunks.available(), segments.available()), (1, 255));
}

/// DPDK counts references in 16 bits: with all handles there are, the count stays below, since each
/// may raise it by one at the same time as the others.
#[test]
fn a_chunk_has_no_more_packets_than_can_be_counted() {
    // Fewer than overflow the count, more than are allowed.
    const MBUFS: u32 = 65_500;
    let segments = pool("references", MBUFS as usize, 0);
    for others in [0, MAX_HANDLES - 1] {
        let (chunks, returned) = chunks(1, 100);
        let mut handles = Vec::new();
        let chunk = chunks.take().expect("chunk");
        let last = chunk.share_with(others, |_, handle| handles.push(handle));
        handles.push(last);
        let owners = handles.len();
        let mut packets = Vec::new();
        let refused = loop {
            match handles[packets.len() % owners].attach(&segments, 0..1) {
                Ok(packet) => packets.push(packet),
                Err(why) => break why,
            }
        };
        assert_eq!(refused, AttachError::References);
        assert!(packets.len() + owners + MAX_HANDLES <= usize::from(u16::MAX));
        assert!(packets.len() > 60_000, "{}", packets.len());
        for handle in &mut handles {
            assert!(handle.attach(&segments, 0..1).is_err());
        }
        packets.pop();
        packets.push(handles[0].attach(&segments, 0..1).expect("room for one"));
        drop((handles, packets));
        assert_eq!(returned.load(Ordering::SeqCst), 1);
        assert_eq!(segments.available(), MBUFS as usize);
    }
}

#[test]
fn segments_outside_the_chunk_are_refused() {
    let segments = pool("ranges", 1, 0);
    let (chunks, returned) = chunks(1, 100_000);
    let mut shared = chunks.take().expect("chunk").share();
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..100_001, 5..5, 9..3, 0..65_536, usize::MAX..2] {
        let error = shared
            .attach(&segments, range.clone())
            .expect_err("refused");
        assert!(
            matches!(
                error,
                AttachError::Range {
                    length: 100_000,
                    ..
                }
            ),
            "{range:?}: {error}"
        );
    }
    let one = shared
        .attach(&segments, 99_999..100_000)
        .expect("the last byte");
    assert_eq!(
        shared.attach(&segments, 0..1).expect_err("one mbuf"),
        AttachError::PoolEmpty
    );
    drop(shared);
    drop(chunks);
    assert_eq!(one.data(), [0]);
    assert_eq!(returned.load(Ordering::SeqCst), 0);
    drop(one);
    assert_eq!(returned.load(Ordering::SeqCst), 1);
}

/// Three lcores hand packets on through shared rings while they share two CPUs or one; a fourth
/// panics. One test, because each takes whole lcores.
#[test]
fn lcores_share_cpus_and_survive_panics() {
    let _lcores = crate::lcores();
    let eal = Eal::for_tests();
    let workers: Vec<_> = eal.workers().iter().map(|worker| worker.id).collect();
    assert_eq!(workers.len(), 4);

    let panicking = eal
        .launch(workers[3], "panics", || -> u32 {
            panic!("on purpose: {}", 42)
        })
        .expect("launch");
    let error = panicking.join().expect_err("it panicked");
    assert_eq!(error.message, "on purpose: 42");
    let again = eal
        .launch(workers[3], "again", std::thread::current)
        .expect("the lcore is free");
    again.join().expect("no panic");

    let release = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&release);
    let busy = eal
        .launch(workers[3], "busy", move || {
            while !wait.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        })
        .expect("launch");
    let refused = eal.launch(workers[3], "refused", || ()).expect_err("busy");
    assert!(refused.to_string().contains("lcore 4"), "{refused}");
    release.store(true, Ordering::Release);
    busy.join().expect("no panic");

    const PACKETS: u32 = 10_000;
    let abort = StopFlag::default();
    let pool = pool("relay", 255, 64);
    let first = SharedRing::new(eal, "relay-a", 63).expect("ring");
    let second = SharedRing::new(eal, "relay-b", 63).expect("ring");
    let producer = {
        let (pool, first, abort) = (pool.clone(), first.clone(), abort.clone());
        eal.launch(workers[0], "producer", move || {
            let _guard = abort.on_panic();
            let mut batch: MbufBatch = MbufBatch::new();
            let mut next = 0;
            while (next < PACKETS || !batch.is_empty()) && !abort.is_set() {
                while next < PACKETS && batch.room() > 0 {
                    let Some(mut mbuf) = pool.alloc() else { break };
                    mbuf.append(4)
                        .expect("room")
                        .copy_from_slice(&next.to_le_bytes());
                    batch.push(mbuf).expect("room");
                    next += 1;
                }
                first.enqueue(&mut batch);
            }
        })
    };
    let relay = {
        let (first, second, abort) = (first.clone(), second.clone(), abort.clone());
        eal.launch(workers[1], "relay", move || {
            let _guard = abort.on_panic();
            let mut batch: MbufBatch = MbufBatch::new();
            let mut passed = 0;
            while passed < PACKETS && !abort.is_set() {
                first.dequeue(&mut batch);
                passed += second.enqueue(&mut batch) as u32;
            }
        })
    };
    let consumer = eal.launch(workers[2], "consumer", move || {
        let _guard = abort.on_panic();
        let mut batch: MbufBatch = MbufBatch::new();
        let mut next = 0u32;
        while next < PACKETS && !abort.is_set() {
            second.dequeue(&mut batch);
            for mbuf in &batch {
                assert_eq!(mbuf.data(), next.to_le_bytes());
                next += 1;
            }
            batch.clear();
        }
        next
    });
    producer.expect("launch").join().expect("producer");
    relay.expect("launch").join().expect("relay");
    assert_eq!(consumer.expect("launch").join().expect("consumer"), PACKETS);
    assert_eq!(pool.available(), 255);
}

#[test]
fn tsc_agrees_with_the_system_clock() {
    let clock = Eal::for_tests().tsc_clock();
    // The TSC interval encloses the other one; a virtual machine may be away in between, and then
    // only in some tries.
    let ratio = |_| {
        let (ticks, wall) = (tsc(), std::time::Instant::now());
        let mut elapsed = wall.elapsed();
        while elapsed.as_millis() < 50 {
            elapsed = wall.elapsed();
        }
        clock.seconds(tsc() - ticks) / elapsed.as_secs_f64()
    };
    let least = (0..5).map(ratio).fold(f64::INFINITY, f64::min);
    assert!((0.99..1.01).contains(&least), "{least}");
    assert_eq!(
        clock.ticks(std::time::Duration::from_secs(2)),
        2 * clock.hz()
    );
}
