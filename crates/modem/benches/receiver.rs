//! Samples per second of the receiver's threads: `cargo bench -p karoo-modem --bench receiver`.
//!
//! Frames follow one another; the receiver finds and decodes all of them on one thread. With a word
//! behind `--`, only modulations whose name has it. The word `threads` measures, by the wall clock,
//! what several threads do with 256-QAM; with the feature `flow`, also by a graph.

mod support;

use std::hint::black_box;
use std::time::Instant;

use karoo_modem::rx::{Equaliser, Level, Receiver, RxConfig};
use karoo_modem::tx::Transmitter;
use karoo_modem::waveform::{BLANK_SYMBOLS, CheckField, Frame, Header, Modulation};
use num_complex::Complex32;
use support::thread_seconds;

/// Frames of a stream.
const FRAMES: usize = 48;
const ROUNDS: u32 = 9;
/// Samples that come at once.
const BLOCK: usize = 4096;

fn stream(modulation: Modulation) -> Vec<Complex32> {
    let payload: Vec<u8> = (0..modulation.payload_bytes() as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc).expect("it fits");
    let mut transmitter = Transmitter::new(1.0);
    let mut samples = Vec::new();
    for _ in 0..FRAMES {
        transmitter.frame(&frame, &mut samples);
        transmitter.blanks(BLANK_SYMBOLS, &mut samples);
    }
    transmitter.finish(&mut samples);
    samples
}

/// Samples per second in the best round.
fn rate(config: &RxConfig, samples: &[Complex32], wanted: usize) -> f64 {
    let mut receiver = Receiver::new(config).expect("good settings");
    let mut frames = Vec::new();
    let rates = (0..ROUNDS).map(|_| {
        frames.clear();
        let begun = thread_seconds();
        for block in samples.chunks(BLOCK) {
            receiver.push(block, &mut frames);
        }
        let seconds = thread_seconds() - begun;
        // The last frame of a stream is complete only when the next one has come.
        assert!(black_box(&frames).len() + 1 >= wanted, "frames are lost");
        samples.len() as f64 / seconds
    });
    rates.fold(0.0, f64::max)
}

/// Samples per second of the wall clock, with threads that decode beside the one that finds.
fn scaling() {
    let samples = stream(Modulation::Qam256);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Msample/s of the wall clock, qam256, {cores} CPUs, {}",
        Level::detect()
    );
    let counts = [0, 1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 24, 31];
    for threads in counts.into_iter().filter(|count| *count < cores) {
        let mut receiver = Receiver::new(&RxConfig {
            threads,
            ..RxConfig::default()
        })
        .expect("good settings");
        let mut frames = Vec::new();
        let (mut best, mut finding) = (0.0f64, 0.0f64);
        for _ in 0..ROUNDS {
            let (begun, own) = (Instant::now(), thread_seconds());
            let (mut pushed, mut received) = (0, 0);
            while begun.elapsed().as_secs_f64() < 0.3 {
                for block in samples.chunks(BLOCK) {
                    receiver.push(block, &mut frames);
                }
                pushed += samples.len();
                received += frames.len();
                frames.clear();
            }
            black_box(received);
            best = best.max(pushed as f64 / begun.elapsed().as_secs_f64());
            finding = finding.max(pushed as f64 / (thread_seconds() - own));
        }
        receiver.finish(&mut frames);
        let counts = receiver.counts();
        assert_eq!(
            counts.detected,
            counts.delivered + counts.cut,
            "frames are lost"
        );
        let (all, finding) = (best / 1e6, finding / 1e6);
        println!(
            "{:2} threads {all:8.1}, CPU time of the one that finds {finding:8.1}",
            threads + 1
        );
    }
}

/// The same by a graph, whose threads also read and write.
#[cfg(feature = "flow")]
fn by_graph() {
    use karoo_modem::graph::{Copies, receive};
    let samples = std::sync::Arc::new(stream(Modulation::Qam256));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Long enough that making the graph does not count.
    let passes = 16 * cores;
    for copies in [1, 2, 3, 7, 15].into_iter().filter(|count| *count <= cores) {
        let rates = (0..3).map(|_| {
            let (samples, mut pushed) = (samples.clone(), 0);
            let all = passes * samples.len();
            let read = move |block: &mut Vec<Complex32>| {
                let from = pushed % samples.len();
                let count = BLOCK.min(samples.len() - from).min(all - pushed);
                block.extend_from_slice(&samples[from..from + count]);
                pushed += count;
                Ok(count)
            };
            let begun = Instant::now();
            let counts = receive(
                &RxConfig::default(),
                Copies::Number(copies),
                read,
                |frame| {
                    black_box(frame);
                    Ok(())
                },
            )
            .expect("it runs")
            .counts;
            assert_eq!(
                counts.detected,
                counts.delivered + counts.cut,
                "frames are lost"
            );
            all as f64 / begun.elapsed().as_secs_f64()
        });
        let best = rates.fold(0.0, f64::max) / 1e6;
        println!("graph, {copies} that decode {best:8.1}");
    }
}

/// Time from a frame's last sample to its last byte: of the push that brings the frame, by blocks
/// of the original.
fn latency() {
    let samples = stream(Modulation::Qam256);
    let mut receiver = Receiver::new(&RxConfig::default()).expect("good settings");
    let (mut frames, mut times) = (Vec::new(), Vec::new());
    for block in samples.chunks(120) {
        let begun = Instant::now();
        receiver.push(block, &mut frames);
        if !frames.is_empty() {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            frames.clear();
        }
    }
    times.sort_by(f64::total_cmp);
    println!(
        "from last sample to last byte, qam256: {:.0} µs at best, {:.0} µs median",
        times[0],
        times[times.len() / 2]
    );
}

fn main() {
    let name = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if name.as_deref() == Some("threads") {
        scaling();
        #[cfg(feature = "flow")]
        by_graph();
        return;
    }
    let levels = Level::available();
    println!("Msample/s of CPU time of one thread");
    for modulation in Modulation::ALL {
        if name
            .as_ref()
            .is_some_and(|name| !modulation.name().contains(name.as_str()))
        {
            continue;
        }
        let samples = stream(modulation);
        let print = |what: &str, config: &RxConfig| {
            let rate = rate(config, &samples, FRAMES) / 1e6;
            println!("{modulation:8} {what:24} {rate:6.1}");
        };
        for &level in &levels {
            print(
                &level.to_string(),
                &RxConfig {
                    level,
                    ..RxConfig::default()
                },
            );
        }
        let step = 0.0005;
        print(
            "with steps",
            &RxConfig {
                step,
                ..RxConfig::default()
            },
        );
        print(
            "64 taps",
            &RxConfig {
                taps: 64,
                ..RxConfig::default()
            },
        );
        let equaliser = Equaliser::Lms;
        print(
            "the original's equaliser",
            &RxConfig {
                equaliser,
                ..RxConfig::default()
            },
        );
        print(
            "soft values",
            &RxConfig {
                soft: true,
                ..RxConfig::default()
            },
        );
    }
    let noise: Vec<Complex32> = (0..FRAMES as u32 * 48_000)
        .map(|i| {
            let part = |salt: u32| {
                let mixed = (i ^ salt).wrapping_mul(2_654_435_761);
                (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d) as i32 as f32 / 2e9
            };
            Complex32::new(part(0), part(0x5555_0000))
        })
        .collect();
    latency();
    println!("noise {:35.1}", rate(&RxConfig::default(), &noise, 0) / 1e6);
}
