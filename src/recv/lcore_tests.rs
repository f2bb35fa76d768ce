//! One rx lcore, whose queue and window the test holds.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dpdk::{Device, Eal, Mbuf, MbufPool, PoolConfig, PortConfig, RingSender, mbuf_ring};
use dsp::SampleBits;
use ground::stats::PhaseTimes;
use ground::{SampleClock, Timestamp};
use spead::digitiser::PREAMBLE_LEN;
use spead::{DigitiserHeap, DigitiserRepr};

use super::super::address::HeapAddress;
use super::super::cause::DropCause;
use super::super::memory::WindowOf;
use super::super::placer::LAG;
use super::super::waiting::CONFIRMED;
use super::super::window::{LocatedChunk, WindowLane};
use super::*;
use crate::memory::HostAllocator;
use crate::memory::stand_in::{BarStandIn, shut};
use crate::net::frame::HEADERS_LEN;
use crate::net::{HeaderTemplate, MacAddr};
use crate::recv::{ChunkCollector, Collected, ReceiveOptions, receive_memory};

fn recv() -> RecvConfig {
    RecvConfig {
        packet_samples: 64,
        sample_bits: SampleBits::new(10).unwrap(),
        chunk_samples: 256,
        mask_timestamp: false,
    }
}

fn heap(pool: &MbufPool, timestamp: u64) -> Mbuf {
    heap_of(pool, timestamp, recv().heap_bytes())
}

/// A heap of so many bytes.
fn heap_of(pool: &MbufPool, timestamp: u64, bytes: usize) -> Mbuf {
    let repr = DigitiserRepr {
        heap_count: 0,
        timestamp,
        digitiser_id: 1,
        saturated: 0,
        payload_length: bytes,
    };
    let [src, dst] = ["192.0.2.2:7148", "239.102.1.64:7148"].map(|a| a.parse().unwrap());
    let template = HeaderTemplate::multicast(MacAddr([2, 0, 0, 0, 0, 2]), src, dst, 4).unwrap();
    let udp = PREAMBLE_LEN + bytes;
    let mut mbuf = pool.alloc().unwrap();
    let frame = mbuf.append(HEADERS_LEN + udp).unwrap();
    frame.fill(0);
    template.emit(udp, frame.first_chunk_mut().unwrap());
    repr.emit(frame[HEADERS_LEN..].first_chunk_mut().unwrap());
    frame[HEADERS_LEN + PREAMBLE_LEN..].fill((timestamp / 64) as u8 + 1);
    mbuf
}

fn frames(name: &str, mbufs: usize) -> MbufPool {
    let config = PoolConfig {
        mbufs,
        cache: 0,
        data_room: 512,
        socket: None,
    };
    MbufPool::new(Eal::for_tests(), name, config).unwrap()
}

/// Where a heap with the low bits of `timestamp` belongs, looked for near it.
fn place(recv: &RecvConfig, timestamp: u64) -> Result<HeapAddress, DropCause> {
    let mut frame = vec![0; PREAMBLE_LEN + recv.heap_bytes()];
    let repr = DigitiserRepr {
        heap_count: 0,
        timestamp: timestamp % Timestamp::WIRE_RANGE,
        digitiser_id: 1,
        saturated: 0,
        payload_length: recv.heap_bytes(),
    };
    repr.emit(frame.first_chunk_mut().unwrap());
    HeapAddress::of(
        recv,
        Timestamp(timestamp),
        &DigitiserHeap::new_checked(&frame).unwrap(),
    )
}

#[test]
fn a_mask_takes_a_timestamp_to_the_start_of_its_own_heap() {
    let mut recv = recv();
    recv.mask_timestamp = true;
    for heap in 0..8 {
        for (timestamp, expected) in [
            (64 * heap, heap),
            (64 * heap + 1, heap),
            (64 * heap + 63, heap),
        ] {
            let (chunk, heap) = (expected / 4, expected as usize % 4);
            assert_eq!(
                place(&recv, timestamp),
                Ok(HeapAddress { chunk, heap }),
                "{timestamp}"
            );
        }
    }
    recv.mask_timestamp = false;
    assert_eq!(place(&recv, 65), Err(DropCause::BadTimestamp));
}

/// Chunks so long that there are ids for later times too.
#[test]
fn no_heap_is_placed_at_the_end_of_time() {
    let mut recv = recv();
    recv.chunk_samples = 1 << 16;
    let last = Timestamp::END - 64;
    const { assert!(Timestamp::END / (1 << 16) < END_OF_STREAM) };
    let (chunk, heap) = (last >> 16, (1 << 10) - 1);
    assert_eq!(place(&recv, last), Ok(HeapAddress { chunk, heap }));
    assert_eq!(place(&recv, Timestamp::END), Err(DropCause::BadTimestamp));
    assert_eq!(
        place(&recv, Timestamp::END + 64),
        Err(DropCause::BadTimestamp)
    );
}

/// Memory for so many rx lcores.
fn memory_for(lanes: usize) -> (Arc<ReceiveMemory>, ChunkCollector) {
    let (options, host) = (ReceiveOptions::for_lanes(lanes), HostAllocator::default());
    receive_memory(&recv(), options, &host).unwrap()
}

/// An rx lcore of this lane, and the other end of its queue.
fn lcore(name: &str, memory: &Arc<ReceiveMemory>, lane: usize) -> (RxLcore, RingSender) {
    let eal = Eal::for_tests();
    let (sender, end) = mbuf_ring(eal, &format!("{name}_in"), 31).unwrap();
    let (unused, _) = mbuf_ring(eal, &format!("{name}_out"), 31).unwrap();
    let ports = PortConfig {
        rx_pools: vec![frames(&format!("{name}_port"), 127)],
        ..PortConfig::default()
    };
    let port = Device::rings(eal, name, vec![end], vec![unused]).unwrap();
    let queue = port.start(&ports).unwrap().rx.remove(0);
    let config = RxConfig {
        recv: recv(),
        mode: RxMode::Live,
        epoch: EpochHint::WireValue,
        ours: None,
        idle: IdlePolicy::Share,
        patience: ChunkPatience::NONE,
    };
    let watermarks = Arc::new(ArrayQueue::new(1));
    let (stats, abort) = (Arc::default(), StopFlag::default());
    let parts = RxParts {
        queue,
        memory: memory.clone(),
        lane,
        watermarks,
        stats,
        bell: Arc::default(),
        abort,
    };
    let lcore = RxLcore::new(config, parts);
    (lcore, sender)
}

/// Runs an lcore to its end on this thread.
fn run(lcore: RxLcore) {
    lcore.run(&mut PhaseTimer::start(PhaseTimes::new("rx", None)));
}

/// A burst of one datagram: how many heaps of it were placed, and published.
fn burst(placer: &mut HeapPlacer, mbuf: &Mbuf, timer: &mut PhaseTimer) -> Result<usize, DropCause> {
    let memory = placer.memory.clone();
    let mut burst = Burst::new(&memory);
    placer.begin_burst();
    let outcome = placer.place(mbuf, None, &mut burst, timer);
    placer.end_burst(&mut burst);
    outcome
}

fn open(lane: &mut WindowLane<WindowOf>, memory: &ReceiveMemory, id: u64) -> LocatedChunk {
    lane.begin();
    let located = lane.locate(id, || memory.take());
    lane.end();
    located
}

/// Of what is dropped, that is kept which tells what is configured otherwise than the sender.
#[test]
fn what_was_dropped_last_is_kept() {
    let (memory, mut collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_kept", &memory, 0);
    let pool = frames("rx_kept", 1);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    let mut place = |placer: &mut HeapPlacer, mbuf: Mbuf| burst(placer, &mbuf, &mut clock);
    let stats = placer.stats.clone();
    // The window follows the lane to its heaps. Nobody moves it while the lane waits.
    placer.abort.set();
    placer.time.newest = Some(10);
    let first = || heap(&pool, 10 * 256);
    assert_eq!(place(&mut placer, first()), Err(DropCause::NoFreeChunk));
    assert!(matches!(collector.poll(), Collected::Nothing));
    assert_eq!(place(&mut placer, first()), Ok(1));
    assert_eq!(stats.last_dropped(), Default::default());

    let outcome = place(&mut placer, heap_of(&pool, 10 * 256, 64));
    assert_eq!(outcome, Err(DropCause::WrongHeapLength));
    let outcome = place(&mut placer, heap(&pool, 10 * 256 + 3));
    assert_eq!(outcome, Err(DropCause::BadTimestamp));
    let outcome = place(&mut placer, heap(&pool, 3 * 256 + 64));
    assert_eq!(outcome, Err(DropCause::TooOld));
    assert_eq!(stats.metadata(), 0);

    // What a descriptor has in place of the timestamp is another item.
    let mut descriptor = heap_of(&pool, 10 * 256, 72);
    descriptor.data_mut()[HEADERS_LEN + 40..][..2].copy_from_slice(&[0x80, 0x77]);
    let outcome = place(&mut placer, descriptor);
    assert_eq!(outcome, Err(DropCause::WrongHeapLength));
    assert_eq!(stats.metadata(), 1);

    placer.ours = Some(FlowTable::default());
    let outcome = place(&mut placer, heap(&pool, 10 * 256));
    assert_eq!(outcome, Err(DropCause::NotOurs));
    let last = stats.last_dropped();
    assert_eq!((last.heap_length, last.timestamp), (Some(64), Some(2563)));
    assert_eq!(last.behind, Some(7 * 256));
    assert_eq!(last.destination, Some("239.102.1.64:7148".parse().unwrap()));
}

/// Told to end before it has looked at its queue, an lcore has a burst all the same.
#[test]
fn the_burst_before_the_end_is_placed() {
    const HEAPS: usize = 8;
    let (memory, mut collector) = memory_for(1);
    let (lcore, mut sender) = lcore("rx_stop", &memory, 0);
    let pool = frames("rx_stop", HEAPS);
    let mut batch: MbufBatch = MbufBatch::new();
    for index in 0..HEAPS {
        let timestamp = index * recv().packet_samples;
        batch.push(heap(&pool, timestamp as u64)).unwrap();
    }
    assert_eq!(sender.enqueue(&mut batch), HEAPS);
    let watermarks = &lcore.watermarks;
    watermarks.push(Watermark::STOP).unwrap();
    let stats = lcore.placer.stats.clone();
    run(lcore);
    let mut drops = Default::default();
    stats.add_drops(&mut drops);
    assert_eq!((stats.placed(), drops), (HEAPS as u64, Default::default()));
    for id in 0..2 {
        assert!(matches!(collector.poll(), Collected::Chunk(found, _) if found == id));
    }
    assert!(matches!(collector.poll(), Collected::End));
}

/// Who sleeps is woken when a chunk may be complete, and by the first heap after a second without
/// any; not by what is dropped.
#[test]
fn the_bell_rings_for_chunks_and_at_the_end_of_silence() {
    for (quiet, rings) in [(false, 2), (true, 3)] {
        let (memory, _collector) = memory_for(1);
        let name = format!("rx_bell_{quiet}");
        let (mut lcore, mut sender) = lcore(&name, &memory, 0);
        let pool = frames(&name, 5);
        lcore.placer.time.newest = Some(0);
        while quiet && !lcore.idle.is_quiet() {
            lcore.idle.wait();
        }
        let (bell, stats) = (lcore.placer.bell.clone(), lcore.placer.stats.clone());
        let watermarks = lcore.watermarks.clone();
        let begun = Instant::now();
        thread::scope(|scope| {
            let running = scope.spawn(|| run(lcore));
            // A burst each: two wrong timestamps, two heaps of chunk 0, and one that ends chunk 0.
            for (before, timestamp) in (0..).zip([3, 3, 0, 64, 2 * 256]) {
                let mut batch: MbufBatch = MbufBatch::new();
                batch.push(heap(&pool, timestamp)).unwrap();
                assert_eq!(sender.enqueue(&mut batch), 1);
                while stats.datagrams() == before && !running.is_finished() {
                    thread::yield_now();
                }
            }
            watermarks.push(Watermark::STOP).unwrap();
        });
        assert_eq!(stats.placed(), 3);
        // Held up for a second between two bursts, this thread makes the lcore quiet once more.
        let held_up = u64::from(begun.elapsed() >= Duration::from_secs(1));
        assert!((rings..=rings + held_up).contains(&bell.rung()), "{quiet}");
    }
}

/// Nothing more comes: two heaps that agree are right, and are placed after a while.
#[test]
fn waiting_heaps_are_placed_where_nothing_follows() {
    let (memory, _collector) = memory_for(1);
    let (mut lcore, mut sender) = lcore("rx_alone", &memory, 0);
    lcore.placer.silence = Duration::ZERO;
    let pool = frames("rx_alone", 2);
    let mut batch: MbufBatch = MbufBatch::new();
    for timestamp in [256, 320] {
        batch.push(heap(&pool, timestamp)).unwrap();
    }
    assert_eq!(sender.enqueue(&mut batch), 2);
    let (stats, watermarks) = (lcore.placer.stats.clone(), lcore.watermarks.clone());
    thread::scope(|scope| {
        let running = scope.spawn(|| run(lcore));
        while stats.placed() == 0 && !running.is_finished() {
            thread::yield_now();
        }
        watermarks.push(Watermark::STOP).unwrap();
    });
    assert_eq!(stats.placed(), 2);
}

/// Waiting heaps that a watermark amid a burst tells to be right are counted.
#[test]
fn heaps_that_a_watermark_settles_are_counted() {
    let (memory, _collector) = memory_for(1);
    let (lcore, mut sender) = lcore("rx_mark", &memory, 0);
    let pool = frames("rx_mark", 3);
    let mut batch: MbufBatch = MbufBatch::new();
    for heaps in 0..3 {
        batch.push(heap(&pool, 64 * heaps)).unwrap();
    }
    assert_eq!(sender.enqueue(&mut batch), 3);
    let (stats, watermarks) = (lcore.placer.stats.clone(), lcore.watermarks.clone());
    let mark = Watermark { after: 2, floor: 0 };
    watermarks.push(mark).unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(lcore));
        while watermarks.push(Watermark::STOP).is_err() && !running.is_finished() {
            thread::yield_now();
        }
    });
    assert_eq!(stats.placed(), 3);
}

/// Statistics need no memory that the CPU does not read.
#[test]
fn heaps_for_statistics_are_copied_from_their_packets() {
    const HEAPS: usize = 8;
    for takes_statistics in [true, false] {
        let options = ReceiveOptions {
            takes_statistics,
            ..ReceiveOptions::for_lanes(1)
        };
        let (memory, mut collector) = receive_memory(&recv(), options, &BarStandIn).unwrap();
        assert_eq!(memory.keeps_copies(), takes_statistics);
        let name = format!("rx_copies_{takes_statistics}");
        let (lcore, mut sender) = lcore(&name, &memory, 0);
        let pool = frames(&name, HEAPS);
        let mut batch: MbufBatch = MbufBatch::new();
        for index in 0..HEAPS {
            batch.push(heap(&pool, 64 * index as u64)).unwrap();
        }
        assert_eq!(sender.enqueue(&mut batch), HEAPS);
        lcore.watermarks.push(Watermark::STOP).unwrap();
        run(lcore);
        for id in 0..2 {
            let Collected::Chunk(found, chunk) = collector.poll() else {
                panic!("no chunk {id}");
            };
            shut(&chunk);
            for heap in 0..4 {
                assert!(chunk.present(1, heap));
                let copy = chunk.readable(1, heap).map(|copy| copy[..80].to_vec());
                let expected = (takes_statistics && (found, heap) == (0, 0)).then(|| vec![1; 80]);
                assert_eq!(copy, expected, "heap {heap} of chunk {found}");
            }
        }
    }
}

const SPARE: u64 = 6;

fn with_spare(lanes: usize) -> (Arc<ReceiveMemory>, ChunkCollector) {
    let options = ReceiveOptions {
        spare_chunks: SPARE as usize,
        takes_statistics: true,
        ..ReceiveOptions::for_lanes(lanes)
    };
    let (memory, mut collector) =
        receive_memory(&recv(), options, &HostAllocator::default()).unwrap();
    assert!(!memory.keeps_copies());
    collector.allow_leaving_behind();
    (memory, collector)
}

/// Collects and gives back what there is, also when a lane has been left behind. Returns the id
/// behind the last.
fn collect(collector: &mut ChunkCollector) -> Option<u64> {
    let mut next = None;
    for _ in 0..2 {
        while let Collected::Chunk(id, chunk) = collector.poll() {
            collector.recycle(chunk);
            next = Some(id + 1);
        }
    }
    next
}

#[test]
fn a_lane_without_packets_costs_no_more_than_a_chunk() {
    const TOO_LONG: Duration = Duration::from_secs(20);
    let (memory, mut collector) = with_spare(2);
    let (mut silent, _sender) = lcore("rx_silent", &memory, 1);
    silent.placer.silence = Duration::ZERO;
    let watermarks = silent.watermarks.clone();
    let mut first = WindowLane::new(WindowOf(memory.clone()), 0);
    let begun = Instant::now();
    let mut collected = 0;
    let mut comes = |newest| {
        let located = open(&mut first, &memory, newest);
        // It has all patience before it is left behind. From then on two chunks are open by
        // themselves, and a third for it.
        let due = if newest < SPARE + 3 { 0 } else { newest - 2 };
        while collected < due && begun.elapsed() < TOO_LONG {
            collected = collect(&mut collector).unwrap_or(collected);
            thread::yield_now();
        }
        matches!(located, LocatedChunk::Buffer(_)) && collected >= due
    };
    let all_come = thread::scope(|scope| {
        scope.spawn(|| run(silent));
        let all_come = (0..50).all(&mut comes);
        watermarks.push(Watermark::STOP).unwrap();
        all_come
    });
    assert!(all_come);
}

#[test]
fn a_lane_that_is_late_has_all_patience_each_time() {
    let (memory, mut collector) = with_spare(2);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_late", &memory, 1);
    placer.silence = Duration::ZERO;
    let pool = frames("rx_late", 1);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    let mut first = WindowLane::new(WindowOf(memory.clone()), 0);
    let mut late = |placer: &mut HeapPlacer, chunk: u64| {
        let mbuf = heap(&pool, chunk * recv().chunk_samples as u64);
        burst(placer, &mbuf, &mut clock)
    };
    for newest in 0..20 {
        let located = open(&mut first, &memory, newest);
        assert!(matches!(located, LocatedChunk::Buffer(_)), "{newest}");
        collect(&mut collector);
        assert_eq!(placer.follow(), None, "{newest}");
        if let Some(chunk) = newest.checked_sub(SPARE) {
            assert_eq!(late(&mut placer, chunk), Ok(1), "{chunk}");
        }
    }
    // It stalls for longer, and loses the chunks that the others had no memory for, but nothing
    // behind them.
    let last = 19 - SPARE;
    for newest in 20..26 {
        let located = open(&mut first, &memory, newest);
        assert!(matches!(located, LocatedChunk::Buffer(_)), "{newest}");
        collect(&mut collector);
    }
    placer.silence = Duration::MAX;
    assert_eq!(placer.follow(), None);
    placer.silence = Duration::ZERO;
    assert_eq!(placer.follow(), Some(25 - 1 - LAG));
    for chunk in last + 1..=25 {
        let in_time = chunk > last + 3;
        let expected = in_time.then_some(1).ok_or(DropCause::TooOld);
        assert_eq!(late(&mut placer, chunk), expected, "{chunk}");
        assert_eq!(placer.follow(), None);
    }
}

#[path = "lcore_dropped_tests.rs"]
mod dropped;
#[path = "lcore_leap_tests.rs"]
mod leaps;
#[path = "lcore_time_tests.rs"]
mod time;
