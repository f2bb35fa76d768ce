use std::collections::BTreeMap;

use ground::TscClock;
use katcp::Sensors;

use super::*;
use crate::assembly::EngineReadings;
use crate::engine::steer::Published;
use crate::memory::HostAllocator;
use crate::recv::window::{LocatedChunk, WindowLane};
use crate::recv::{ReceiveOptions, receive_memory};

/// Samples of a scrape by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// Each counter of the input is scraped under its own name, of its own polarisation.
#[test]
fn input_is_told_by_polarisation_and_cause() {
    let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";
    let config = crate::config::tests::engine(wideband, |config| {
        config.recv.packet_samples = 64;
        config.recv.chunk_samples = 16 * 64;
    });
    let recv = config.recv.clone();
    let host = HostAllocator::default();
    let (memory, mut collector) =
        receive_memory(&recv, ReceiveOptions::for_lanes(1), &host).unwrap();
    let mut lane = WindowLane::new(memory.window(), 0);
    lane.begin();
    let LocatedChunk::Buffer(buffer) = lane.locate(0, || memory.take()) else {
        panic!("the first chunk has memory");
    };
    // Of 16 heaps each, 14 and 11 come, and say that 3 and 5 of their samples were clipped.
    for (pol, heaps, clipped) in [(0, 14, 3), (1, 11, 5)] {
        for heap in 0..heaps {
            let slot = memory.chunk(buffer).claim(pol, heap).unwrap();
            slot.write(&vec![0; recv.heap_bytes()], clipped);
        }
    }
    lane.raise(1);
    lane.end();
    collector.poll();

    let rx = [0, 1].map(|_| Arc::<RxStats>::default());
    rx[0].note_burst(200, 25);
    for (n, &cause) in DropCause::ALL.iter().enumerate() {
        for drop in 0..100 + n {
            rx[drop % 2].note_drop(cause);
        }
    }
    let drops = |cause: DropCause| (100 + cause as usize) as f64;
    let metrics = EngineMetrics {
        rx: rx.to_vec(),
        input: collector.stats(),
        outputs: vec![Arc::new(OutputStats::new("w"))],
        readings: EngineReadings {
            latencies: vec![Arc::new(Latency::new(config.clock))],
            busy: Vec::new(),
            memory: memory.clone(),
            pools: Vec::new(),
            links: Links::new([]),
            times: Vec::new(),
            clock: TscClock::new(1_000_000_000),
        },
        started: SystemTime::UNIX_EPOCH,
        state: EngineState {
            backend: "cpu",
            gpu: String::new(),
            energy: Arc::default(),
            published: Arc::new(Published::new(1)),
            sensors: Sensors::default(),
            losses: Arc::default(),
        },
        config,
    };
    let text = metrics.scrape().unwrap();
    let samples = samples(&text);
    let mut expected = vec![
        ("fgpu_input_chunks_total".to_owned(), 1.0),
        (
            "fgpu_input_too_old_heaps_total".to_owned(),
            drops(DropCause::TooOld),
        ),
        (
            "fgpu_input_metadata_heaps_total".to_owned(),
            drops(DropCause::WrongHeapLength) + drops(DropCause::NoTimestamp),
        ),
        (
            "fgpu_input_bad_timestamp_heaps_total".to_owned(),
            drops(DropCause::BadTimestamp),
        ),
        (
            r#"karoo_input_datagrams_total{queue="0"}"#.to_owned(),
            200.0,
        ),
    ];
    for (pol, heaps) in [(0, 14.0), (1, 11.0)] {
        for (name, value) in [
            ("heaps", heaps),
            ("missing_heaps", 16.0 - heaps),
            ("samples", 64.0 * heaps),
            ("bytes", 80.0 * heaps),
            ("clipped_samples", heaps * [3.0, 5.0][pol]),
        ] {
            expected.push((format!(r#"fgpu_input_{name}_total{{pol="{pol}"}}"#), value));
        }
    }
    for &cause in DropCause::ALL {
        let name = format!(r#"karoo_input_drops_total{{cause="{}"}}"#, cause.name());
        expected.push((name, drops(cause)));
    }
    for (pol, heaps) in [(0, 14), (1, 11)] {
        let name = format!(r#"karoo_input_last_timestamp_seconds{{pol="{pol}"}}"#);
        let end = Timestamp(64 * heaps).unix(metrics.config.clock);
        expected.push((name, end));
    }
    for (name, value) in expected {
        assert_eq!(samples.get(&*name), Some(&value), "{name}");
    }
}
