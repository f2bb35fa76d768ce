//! The safe layer over DPDK, on ring ports and virtual devices: EAL and its lcores here. EAL starts
//! once per process, so all tests share it.

mod chunks;
mod mbufs;
mod ports;
mod sockets;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dpdk::{
    Device, Eal, EalConfig, EalError, HugePages, Mbuf, MbufBatch, MbufPool, PoolConfig, PortConfig,
    SharedRing, StartedPort, mbuf_ring,
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
        ..
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
