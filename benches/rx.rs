//! The rx path alone, on one lcore: parse, place, account, from a ring port into chunks.
//!
//! A generator hands over packets whose payload already lies in their mbufs, so it costs little;
//! the engine's end only takes chunks and gives them back. Needs two CPUs. Prints the rate of the
//! rx lcore while it worked with either way to store, best of several rounds, and the share of time
//! that it waited for packets.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use dpdk::{
    BURST, Device, Eal, EalConfig, MbufBatch, MbufPool, PoolConfig, PortConfig, RingSender,
    mbuf_ring, pool_size,
};
use dsp::SampleBits;
use ground::os::allowed_cpus;
use ground::stats::{PhaseTimer, PhaseTimes};
use ground::{IdlePolicy, StopFlag};
use karoo::config::RecvConfig;
use karoo::memory::{HostAllocator, Store};
use karoo::net::frame::HEADERS_LEN;
use karoo::net::{HeaderTemplate, MacAddr};
use karoo::recv::{
    ChunkPatience, Collected, END_OF_STREAM, EpochHint, ReceiveOptions, RxConfig, RxLcore, RxMode,
    RxParts, RxStats, Watermark, receive_memory,
};
use spead::DigitiserRepr;
use spead::digitiser::PREAMBLE_LEN;

const HEAPS: u64 = 400_000;
const ROUNDS: usize = 5;
const RING: usize = 512;

fn main() {
    // `cargo test` builds and starts benches too, with this argument.
    let (heaps, rounds) = if std::env::args().any(|arg| arg == "--test") {
        (1000, 1)
    } else {
        (HEAPS, ROUNDS)
    };
    let cpus = allowed_cpus();
    let eal = Eal::init(&EalConfig {
        worker_cpus: vec![cpus[cpus.len() - 1], cpus[0]],
        memory_mib: 128,
        ..EalConfig::default()
    })
    .expect("EAL starts");
    let bench = Bench::new(&eal);
    let mut names = 0..;
    for store in [Store::PLAIN, Store::streaming()] {
        let best = (0..rounds)
            .zip(&mut names)
            .map(|(_, name)| {
                bench.round(
                    name,
                    heaps,
                    HostAllocator {
                        store,
                        ..HostAllocator::default()
                    },
                )
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .expect("a round");
        println!(
            "rx path, {store} stores: {:.1} Gb/s per core, {:.1} ns per heap, waiting {:.0} %",
            best.0, best.1, best.2
        );
    }
}

struct Bench {
    eal: Eal,
    pool: MbufPool,
    recv: RecvConfig,
}

impl Bench {
    fn new(eal: &Eal) -> Self {
        let mbufs = pool_size(RING, 2 * BURST);
        let config = PoolConfig {
            mbufs,
            cache: BURST,
            data_room: 9600,
            socket: None,
        };
        Self {
            eal: eal.clone(),
            pool: MbufPool::new(eal, "rx_bench", config).expect("a pool"),
            recv: RecvConfig {
                packet_samples: 4096,
                sample_bits: SampleBits::new(10).expect("a width"),
                chunk_samples: 1 << 22,
                mask_timestamp: false,
            },
        }
    }

    /// Gb/s of payload while working, nanoseconds per heap, per cent of time without packets.
    fn round(&self, round: usize, heaps: u64, memory: HostAllocator) -> (f64, f64, f64) {
        let (mut sender, receiver) =
            mbuf_ring(&self.eal, &format!("rx_bench{round}"), RING).expect("a ring");
        // The driver wants a transmit ring too.
        let (unused, _) =
            mbuf_ring(&self.eal, &format!("rx_bench_tx{round}"), BURST).expect("a ring");
        let port = Device::rings(
            &self.eal,
            &format!("bench{round}"),
            vec![receiver],
            vec![unused],
        );
        let config = PortConfig {
            rx_pools: vec![self.pool.clone()],
            ..PortConfig::default()
        };
        let mut port = port.expect("a port").start(&config).expect("it starts");
        let (memory, mut engine) =
            receive_memory(&self.recv, ReceiveOptions::for_lanes(1), &memory).expect("memory");
        let watermarks = Arc::new(ArrayQueue::new(1));
        let stats = Arc::new(RxStats::default());
        let rx = RxConfig {
            recv: self.recv.clone(),
            mode: RxMode::Replay,
            epoch: EpochHint::WireValue,
            ours: None,
            idle: IdlePolicy::Poll,
            patience: ChunkPatience::NONE,
        };
        let parts = RxParts {
            queue: port.rx.remove(0),
            memory,
            lane: 0,
            watermarks: watermarks.clone(),
            stats: stats.clone(),
            bell: Arc::default(),
            abort: StopFlag::default(),
        };
        let lcore = RxLcore::new(rx, parts);
        let workers = self.eal.workers();
        let times = PhaseTimes::new("rx", Some(workers[0].cpu));
        let rx_times = times.clone();
        let rx = self.eal.launch(workers[0].id, "rx", move || {
            lcore.run(&mut PhaseTimer::start(rx_times));
        });
        let (pool, recv) = (self.pool.clone(), self.recv.clone());
        let generator = self.eal.launch(workers[1].id, "generator", move || {
            generate(&pool, &recv, &mut sender, heaps);
            let _ = watermarks.push(Watermark {
                after: heaps,
                floor: END_OF_STREAM,
            });
        });
        loop {
            match engine.poll() {
                Collected::Chunk(_, chunk) => engine.recycle(chunk),
                Collected::Nothing => std::thread::yield_now(),
                Collected::End => break,
            }
        }
        generator.expect("launched").join().expect("ends");
        rx.expect("launched").join().expect("ends");
        assert_eq!(stats.placed(), heaps);
        let report = times.report(self.eal.tsc_clock());
        let seconds = |name: &str| {
            report
                .phases
                .iter()
                .find(|p| p.0 == name)
                .map_or(0.0, |p| p.1)
        };
        let (work, wait) = (seconds("work"), seconds("wait-in"));
        let bits = (heaps as usize * self.recv.heap_bytes() * 8) as f64;
        (
            bits / work * 1e-9,
            work / heaps as f64 * 1e9,
            wait / (work + wait) * 100.0,
        )
    }
}

/// Packets of both polarisations by turns; only the preamble is written, the payload is what the
/// mbuf held before.
fn generate(pool: &MbufPool, recv: &RecvConfig, ring: &mut RingSender, heaps: u64) {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let src = "192.0.2.1:49152".parse().expect("an endpoint");
    let dst = "239.102.0.64:7148".parse().expect("an endpoint");
    let template = HeaderTemplate::multicast(mac, src, dst, 4).expect("multicast");
    let mut frame = [0; HEADERS_LEN];
    template.emit(PREAMBLE_LEN + recv.heap_bytes(), &mut frame);
    let mut batch: MbufBatch = MbufBatch::new();
    let mut heap = 0;
    while heap < heaps {
        while batch.room() > 0 && heap < heaps {
            let Some(mut mbuf) = pool.alloc() else { break };
            let data = mbuf
                .append(HEADERS_LEN + PREAMBLE_LEN + recv.heap_bytes())
                .expect("the frame fits");
            let (headers, rest) = data.split_at_mut(HEADERS_LEN);
            headers.copy_from_slice(&frame);
            let repr = DigitiserRepr {
                heap_count: 2 + 2 * heap,
                timestamp: heap / 2 * recv.packet_samples as u64,
                digitiser_id: heap % 2,
                saturated: 0,
                payload_length: recv.heap_bytes(),
            };
            repr.emit(rest.first_chunk_mut().expect("room for the preamble"));
            let _ = batch.push(mbuf);
            heap += 1;
        }
        ring.enqueue(&mut batch);
    }
    while !batch.is_empty() {
        ring.enqueue(&mut batch);
    }
}
