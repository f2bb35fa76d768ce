//! A tx lcore whose port takes packets when the test says so.

use std::thread;

use dpdk::{Device, Eal, ExtPool, PortConfig, RingReceiver, mbuf_ring};
use ground::SampleClock;
use ground::stats::PhaseTimes;

use super::*;
use crate::memory::HostAllocator;
use crate::net::frame::MacAddr;
use crate::send::SourceAddress;

/// Substreams, and so descriptors and stop heaps.
const SUBSTREAMS: usize = 256;
/// Mbufs that are left to the lcore: fewer than a burst, more than the port takes.
const MBUFS: usize = 20;
const BATCHES: usize = 3;

#[test]
fn a_chunk_is_read_in_place_if_all_that_send_of_it_have_packets_enough() {
    assert_eq!(batches_of(100, [30, 0, 20].into_iter()), 5);
    assert_eq!(batches_of(101, [0, 20].into_iter()), 6);
    // An output that no path sends anything of.
    assert_eq!(batches_of(7, [0].into_iter()), 7);
}

/// A tx lcore with three chunks to send, of which the second has no batch, and the third comes a
/// minute later, and what is at its ends.
struct Bench {
    lcore: TxLcore,
    /// What takes packets from the port.
    sink: RingReceiver,
    pools: TxPools,
    /// Mbufs that somebody else holds.
    held: Vec<Mbuf>,
    abort: StopFlag,
    latency: Arc<Latency>,
    /// What wakes tx lcores.
    bell: Arc<Bell>,
}

impl Bench {
    fn new(name: &str) -> Self {
        let options = format!(
            "name=w,channels=256,dst=239.10.0.0+{}:7148,jones_per_batch=8192",
            SUBSTREAMS - 1
        );
        let config = crate::config::tests::engine(&options, |_| {});
        let eal = Eal::for_tests();
        let (sender, sink) = mbuf_ring(eal, &format!("{name}_out"), 15).unwrap();
        let (_unused, end) = mbuf_ring(eal, &format!("{name}_in"), 15).unwrap();
        let port = Device::rings(eal, name, vec![end], vec![sender]).unwrap();
        let queue = port.start(&PortConfig::default()).unwrap().tx.remove(0);
        let pools = TxPools::new(eal, name, 16, BURST, 8192).unwrap();
        let held = pools.headers.available() - MBUFS;
        let held = (0..held).map(|_| pools.headers.alloc().unwrap());
        let held = held.collect();
        let source = SourceAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ip: [10, 0, 0, 1].into(),
            port: 50000,
        };
        let latency = Arc::new(Latency::new(SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 0.0,
        }));
        let stats = Arc::new(OutputStats::new("w"));
        stats.expect_tx_lcores(1);
        let of = &config.outputs[0];
        let memory = |_| OutputMemory::new(BATCHES, of.batch_bytes(), &HostAllocator::default());
        let chunks = ExtPool::new(eal, (0..3).map(memory).map(Result::unwrap));
        let finished = Arc::new(ArrayQueue::new(4));
        let batches_of_a_minute =
            (60.0 * config.clock.adc_sample_rate) as usize / of.batch_samples();
        for (chunk, first) in [0, BATCHES, batches_of_a_minute].into_iter().enumerate() {
            let mut memory = chunks.take().unwrap();
            memory
                .writer()
                .begin(Timestamp((first * of.batch_samples()) as u64));
            for batch in (0..BATCHES).filter(|_| chunk == 1) {
                memory.writer().mark_absent(batch);
            }
            finished.push(Finished::Chunk(0, memory)).unwrap();
        }
        finished.push(Finished::End).unwrap();
        let output = TxOutput {
            packetiser: Packetiser::new(&config, 0, source),
            pace: Pace::UNLIMITED,
            latency: latency.clone(),
            stats,
        };
        let path = TxPath {
            queue,
            pools: pools.clone(),
            outputs: vec![output],
            idle: IdlePolicy::Share,
        };
        let (abort, bell) = (StopFlag::default(), Arc::default());
        let mut team = TxLcore::team(finished, vec![path], usize::MAX, &Tsc, &bell, &abort);
        Self {
            lcore: team.remove(0),
            sink,
            pools,
            held,
            abort,
            latency,
            bell,
        }
    }

    /// Takes `packets` packets, then waits until the lcore has no mbuf left and stops it.
    fn stop_behind(self, packets: usize) {
        let Self {
            lcore,
            mut sink,
            pools,
            held: _held,
            abort,
            ..
        } = self;
        thread::scope(|scope| {
            let thread = scope.spawn(|| lcore.run(&mut timer()));
            assert_eq!(take(&mut sink, packets).len(), packets);
            while pools.headers.available() > 0 {
                thread::yield_now();
            }
            abort.set();
            thread.join().unwrap();
        });
    }
}

/// Runs a test on a thread for which EAL keeps no mbufs, as it does for the thread that starts it.
fn without_cache(test: impl FnOnce() + Send) {
    Eal::for_tests();
    thread::scope(|scope| scope.spawn(test).join().unwrap());
}

fn timer() -> PhaseTimer {
    PhaseTimer::start(PhaseTimes::new("tx", None))
}

/// The last byte of the address and the heap count of so many packets.
fn take(sink: &mut RingReceiver, packets: usize) -> Vec<(usize, u64)> {
    let mut taken = Vec::new();
    while taken.len() < packets {
        let mut batch = MbufBatch::<1>::new();
        if sink.dequeue(&mut batch) == 0 {
            thread::yield_now();
        }
        for mbuf in batch.iter() {
            let datagram = crate::net::Datagram::new_checked(mbuf.data()).unwrap();
            let packet = spead::Packet::new_checked(datagram.payload()).unwrap();
            let to = datagram.dst().ip().octets()[3];
            taken.push((to.into(), packet.heap_count()));
        }
    }
    taken
}

/// However few mbufs there are: descriptors and data, both again after a minute, and stop heaps of
/// each substream, in order. What is not sent has no age.
#[test]
fn everything_is_sent_though_packets_hold_all_mbufs() {
    without_cache(|| {
        let Bench {
            lcore,
            mut sink,
            pools,
            held: _held,
            latency,
            ..
        } = Bench::new("tx_slow");
        thread::scope(|scope| {
            let thread = scope.spawn(|| lcore.run(&mut timer()));
            while pools.headers.available() > 0 {
                thread::yield_now();
            }
            let taken = take(&mut sink, (2 * (1 + BATCHES) + 1) * SUBSTREAMS);
            thread.join().unwrap();
            for (i, (to, count)) in taken.iter().enumerate() {
                assert_eq!(*to, i % SUBSTREAMS);
                assert_eq!(*count, taken[0].1 + (i as u64) * (taken[1].1 - taken[0].1));
            }
            assert!(sink.is_empty());
        });
        assert_eq!(latency.read().1, 2);
    });
}

#[test]
fn an_lcore_ends_where_nobody_takes_its_descriptors() {
    without_cache(|| Bench::new("tx_none").stop_behind(0));
}

#[test]
fn an_lcore_ends_where_nobody_takes_its_data() {
    without_cache(|| Bench::new("tx_data").stop_behind(SUBSTREAMS));
}

/// What the port does not take is lost, and counted.
#[test]
fn nothing_waits_for_a_port_without_a_link() {
    without_cache(|| {
        let Bench {
            lcore,
            sink: _sink,
            held: _held,
            latency,
            ..
        } = Bench::new("tx_no_link");
        let port = lcore.port_queue.port();
        port.note_link(false);
        lcore.run(&mut timer());
        let stats = port.stats().unwrap();
        let all = (2 * (1 + BATCHES) + 1) * SUBSTREAMS;
        assert_eq!((stats.tx_packets, stats.tx_errors), (15, all as u64 - 15));
        assert_eq!(latency.read().1, 2);
    });
}

/// Three chunks and the end, for which another lcore may sleep.
#[test]
fn others_are_woken_for_what_is_passed_on() {
    without_cache(|| {
        let Bench {
            mut lcore,
            sink: _sink,
            held: _held,
            bell,
            ..
        } = Bench::new("tx_passed");
        let passed = Arc::new(ArrayQueue::new(4));
        if let ChunkSource::Engine(_, others) = &mut lcore.source {
            others.push(passed.clone());
        }
        lcore.port_queue.port().note_link(false);
        lcore.run(&mut timer());
        assert_eq!((passed.len(), bell.rung()), (4, 4));
    });
}

/// DPDK's name of a pool is taken as long as the pool is there.
#[test]
fn pools_stay_until_their_port_is_closed() {
    let bench = Bench::new("tx_outlive");
    bench.pools.outlive(&bench.lcore.port_queue);
    let again = || TxPools::new(Eal::for_tests(), "tx_outlive", 16, BURST, 8192);
    let Bench {
        lcore, pools, held, ..
    } = bench;
    let TxLcore {
        port_queue,
        pools: own,
        ..
    } = lcore;
    drop((held, pools, own));
    assert!(again().is_err());
    drop(port_queue);
    assert!(again().is_ok());
}
