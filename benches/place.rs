//! Placing alone: heaps of 5120 bytes from packet buffers into chunks, by kind of memory, threads
//! and way to store.
//!
//! Each thread has a chunk of its own and takes turns with 512 packets, about what an rx ring
//! holds. Prints GB/s of all threads together. Without a GPU, `host` only. `--packets N` sets
//! another number of packets: enough of them are in no cache; `--heap BYTES` another heap size, a
//! multiple of 10; `--burst N` the number of heaps that share a fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use dpdk::BURST;
use dsp::SampleBits;
use ground::os::allowed_cpus;
use karoo::config::RecvConfig;
use karoo::gpu::{BarAllocator, Gpu, PinnedAllocator};
use karoo::memory::{Chunk, ChunkAllocator, ChunkLayout, HostAllocator, Purpose, Store, publish};

const PACKETS: usize = 512;
/// Bytes from one packet buffer to the next: data room, headroom and mbuf.
const PACKET_STRIDE: usize = 9856;
/// Where the payload lies in it: behind headroom, frame headers and SPEAD items.
const PAYLOAD: usize = 128 + 42 + 72;
/// Bytes of one polarisation of the chunk.
const CHUNK_BYTES: usize = 16 << 20;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // `cargo test` builds and starts benches too, with this argument.
    let duration = if args.iter().any(|arg| arg == "--test") {
        Duration::from_millis(1)
    } else {
        Duration::from_millis(250)
    };
    let option = |name: &str, default: usize| {
        let value = args.iter().skip_while(|arg| *arg != name).nth(1);
        value.map_or(default, |value| value.parse().expect("a number"))
    };
    let (heap_bytes, burst) = (option("--heap", 5120), option("--burst", BURST));
    let packets = option("--packets", PACKETS);
    let cpus = allowed_cpus();
    let threads: Vec<usize> = [1, 2, 4, 8]
        .into_iter()
        .filter(|&threads| threads <= cpus.len())
        .collect();
    print!("{heap_bytes} B, burst {burst:3}, GB/s by");
    threads.iter().for_each(|threads| print!("{threads:>8}"));
    println!();
    for allocator in allocators() {
        let (name, allocator) = (&allocator.0, &*allocator.1);
        print!("{name:24}");
        for &threads in &threads {
            let bench = Bench {
                heap_bytes,
                packets,
                burst,
            };
            let rate = place(allocator, &cpus[..threads], bench, duration);
            print!("{rate:8.1}");
        }
        println!();
    }
}

fn allocators() -> Vec<(String, Box<dyn ChunkAllocator>)> {
    let mut all: Vec<(String, Box<dyn ChunkAllocator>)> = Vec::new();
    let mut add = |store: Store, allocator: Box<dyn ChunkAllocator>| {
        all.push((format!("{} {store}", allocator.kind()), allocator));
    };
    for store in Store::all() {
        add(
            store,
            Box::new(HostAllocator {
                store,
                ..HostAllocator::default()
            }),
        );
    }
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("{error}");
            return all;
        }
    };
    for store in Store::all() {
        add(
            store,
            Box::new(PinnedAllocator::new(&gpu).with_store(store)),
        );
    }
    for store in Store::all() {
        match BarAllocator::open(&gpu, 0) {
            Ok(bar) => add(store, Box::new(bar.with_store(store))),
            Err(error) => {
                println!("{error}");
                break;
            }
        }
    }
    all
}

/// What each thread does.
#[derive(Clone, Copy)]
struct Bench {
    heap_bytes: usize,
    packets: usize,
    burst: usize,
}

/// GB/s that threads on `cpus` place together.
fn place(allocator: &dyn ChunkAllocator, cpus: &[usize], bench: Bench, duration: Duration) -> f64 {
    let Bench { heap_bytes, .. } = bench;
    let heaps = CHUNK_BYTES / heap_bytes / 8 * 8;
    let config = RecvConfig {
        packet_samples: heap_bytes * 8 / 10,
        sample_bits: SampleBits::new(10).expect("a width"),
        chunk_samples: heap_bytes * 8 / 10 * heaps,
        mask_timestamp: false,
    };
    let layout = ChunkLayout::new(&config, 0);
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(cpus.len() + 1);
    thread::scope(|scope| {
        let place = |&cpu: &usize| {
            let memory = allocator.allocate(Purpose::ReceiveChunk, layout.bytes());
            let chunk = Arc::new(Chunk::new(layout, 0, memory.expect("memory")));
            let (stop, barrier) = (&stop, &barrier);
            scope.spawn(move || {
                ground::os::run_on([cpu]).expect("a CPU of this process");
                let packets = vec![1u8; bench.packets * PACKET_STRIDE.max(PAYLOAD + heap_bytes)];
                bench.fill(&chunk, &packets);
                barrier.wait();
                let begun = Instant::now();
                let mut bytes = 0;
                while !stop.load(Ordering::Relaxed) {
                    bytes += bench.fill(&chunk, &packets);
                }
                bytes as f64 / begun.elapsed().as_secs_f64() * 1e-9
            })
        };
        let threads: Vec<_> = cpus.iter().map(place).collect();
        barrier.wait();
        thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let rates = threads
            .into_iter()
            .map(|thread| thread.join().expect("ends"));
        rates.sum()
    })
}

impl Bench {
    /// Fills both polarisations by turns, publishing as often as an rx lcore does, and empties the
    /// chunk. Returns bytes.
    fn fill(&self, chunk: &Arc<Chunk>, packets: &[u8]) -> usize {
        let layout = *chunk.layout();
        let stride = packets.len() / self.packets;
        let payload =
            |n: usize| &packets[n % self.packets * stride + PAYLOAD..][..layout.heap_bytes];
        let mut stored = Vec::with_capacity(self.burst);
        for n in 0..2 * layout.heaps {
            let slot = chunk.claim(n % 2, n / 2).expect("an empty chunk");
            stored.push(slot.store_prefetching(payload(n), 0, Some(payload(n + 1))));
            if stored.len() == self.burst {
                publish(&mut stored);
            }
        }
        publish(&mut stored);
        let frozen = chunk.clone().freeze().expect("one owner");
        frozen.recycle();
        2 * layout.heaps * layout.heap_bytes
    }
}
