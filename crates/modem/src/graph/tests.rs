//! Graphs against the receiver and the transmitter that run without them.

use std::io;

use karoo_flow::{Executor, Interpreter, Node, Settings, Value};
use num_complex::Complex32;
use proptest::prelude::*;

use super::*;
use crate::rx::tests::mixed;
use crate::rx::{Equaliser, Outcome, ReceivedFrame, Receiver};
use crate::tx::Transmitter;
use crate::waveform::{BLANK_SYMBOLS, Modulation};

/// What a graph receives of samples that come in parts.
fn by_graph(
    config: &RxConfig,
    copies: Copies,
    samples: &[Complex32],
    parts: usize,
) -> (Vec<ReceivedFrame>, Received) {
    let mut parts: Vec<Vec<Complex32>> = samples.chunks(parts).map(<[_]>::to_vec).collect();
    parts.reverse();
    let read = move |samples: &mut Vec<Complex32>| {
        let part = parts.pop().unwrap_or_default();
        samples.extend(&part);
        Ok(part.len())
    };
    let mut frames = Vec::new();
    let each = |frame| {
        frames.push(frame);
        Ok(())
    };
    let received = receive(config, copies, read, each).unwrap();
    (frames, received)
}

/// What a receiver without a graph makes of the samples.
fn alone(config: &RxConfig, samples: &[Complex32]) -> (Vec<ReceivedFrame>, Received) {
    let (mut receiver, mut frames) = (Receiver::new(config).unwrap(), Vec::new());
    receiver.push(samples, &mut frames);
    receiver.finish(&mut frames);
    let (counts, correction) = (receiver.counts(), receiver.correction());
    (frames, Received { counts, correction })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_graph_receives_the_same_for_any_copies_and_parts(
        copies in 1usize..5,
        parts in 1usize..100_000,
        points: bool,
        correct: bool,
        cut in 0usize..60_000,
    ) {
        let config = RxConfig { points, correct, ..RxConfig::default() };
        let samples = &mixed()[..mixed().len() - cut];
        let graph = by_graph(&config, Copies::Number(copies), samples, parts);
        prop_assert_eq!(graph, alone(&config, samples));
    }
}

#[test]
fn a_placed_graph_receives_the_same() {
    let config = RxConfig {
        equaliser: Equaliser::Lms,
        ..RxConfig::default()
    };
    for cores in [1, 2, 5] {
        let graph = by_graph(&config, Copies::Placed(cores), mixed(), 4096);
        assert_eq!(graph, alone(&config, mixed()));
    }
}

#[test]
fn a_graph_counts_frames_whose_taps_ran_away_as_a_receiver_does() {
    // A tone, with which the original's steps are far too large for many taps.
    let tone = Complex32::new(1.0, 0.0);
    let samples: Vec<Complex32> = mixed().iter().map(|x| x + tone).collect();
    let config = RxConfig {
        equaliser: Equaliser::Lms,
        taps: 128,
        ..RxConfig::default()
    };
    let (frames, received) = by_graph(&config, Copies::Number(2), &samples, 4096);
    assert_eq!((frames.len(), received.counts.equaliser), (0, 3));
    assert_eq!((frames, received), alone(&config, &samples));
}

#[test]
fn the_interpreter_receives_the_same_bytes() {
    let config = RxConfig::default();
    let graph = receiver(&config).unwrap();
    let ticks = mixed().len().div_ceil(BLOCK) + 2;
    let (mut samples, mut used) = (Vec::new(), Vec::new());
    for tick in 0..ticks {
        let from = (tick * BLOCK).min(mixed().len());
        let block = &mixed()[from..(from + BLOCK).min(mixed().len())];
        let mut bytes = vec![0; 8 * BLOCK];
        bytes[..8 * block.len()].copy_from_slice(bytemuck::cast_slice(block));
        samples.extend(Value::read(Type::F32.vector(2 * BLOCK), &bytes));
        used.push(Value::from(block.len() as u32));
    }
    let inputs = [samples, used];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let settings = Settings {
        block: 2,
        copies: [(1, vec![None, None])].into(),
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
    let mut bytes = Vec::new();
    let frames = wanted[0].iter().filter(|record| {
        bytes.clear();
        record.write(&mut bytes);
        matches!(FrameRecord::read(&bytes), Ok(FrameRecord::Frame(_)))
    });
    assert_eq!(frames.count(), 3);
}

#[test]
fn a_graph_sends_the_same_samples() {
    let node = SendFrames {
        source: 3,
        scramble: true,
        ..SendFrames::new(Modulation::Qam16)
    };
    let size = node.modulation.payload_bytes();
    let whole: Vec<u8> = (0..size).map(|i| (i * i / 7) as u8).collect();
    let messages = [&whole[..], &whole[1..], b"short", &whole, b"x", b"last"];
    let mut wanted = Vec::new();
    let mut transmitter = Transmitter::new(1.0);
    for message in messages {
        transmitter.frame(&node.frame(message), &mut wanted);
        transmitter.blanks(BLANK_SYMBOLS, &mut wanted);
    }
    for copies in [Copies::Number(1), Copies::Number(3), Copies::Placed(4)] {
        let mut rest: Vec<Vec<u8>> = messages.iter().rev().map(|m| m.to_vec()).collect();
        let read = move |bytes: &mut Vec<u8>, most: usize| {
            let message = rest.pop().unwrap_or_default();
            assert!(message.len() <= most);
            bytes.extend(&message);
            Ok(message.len())
        };
        let mut samples: Vec<Complex32> = Vec::new();
        send(&node, copies, read, |of_frame| {
            samples.extend(of_frame);
            Ok(())
        })
        .unwrap();
        assert_eq!(samples, wanted);
    }
}

#[test]
fn the_interpreter_sends_the_same_samples_as_blocks_of_any_size() {
    let node = SendFrames::new(Modulation::Qam64);
    let graph = transmitter(&node).unwrap();
    let size = node.modulation.payload_bytes();
    let (mut payloads, mut used) = (Vec::new(), Vec::new());
    for number in 0..7 {
        let bytes: Vec<u8> = (0..size).map(|i| (i * number) as u8).collect();
        payloads.extend(Value::read(Type::U8.vector(size), &bytes));
        // The first has no bytes: zeros stand for its frame.
        used.push(Value::from((number * size / 6) as u32));
    }
    let inputs = [payloads, used];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    for (block, step, copies) in [(1, 1, 2), (2, 1, 1), (3, 2, 3), (7, 7, 2)] {
        let settings = Settings {
            block,
            step,
            copies: [(1, vec![None; copies - 1])].into(),
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).unwrap();
        assert_eq!(executor.run_values(&inputs).unwrap(), wanted, "{block}");
    }
}

#[test]
fn what_fails_at_an_end_is_told() {
    let config = RxConfig::default();
    let error = |_: &mut Vec<Complex32>| Err(io::Error::other("the cable is out"));
    let failed = receive(&config, Copies::Number(1), error, |_| Ok(()));
    assert!(failed.unwrap_err().to_string().contains("the cable is out"));
    let mut left = mixed().to_vec();
    let read = move |samples: &mut Vec<Complex32>| {
        let count = left.len();
        samples.append(&mut left);
        Ok(count)
    };
    let full = |_| Err(io::Error::other("the disk is full"));
    let failed = receive(&config, Copies::Number(1), read, full);
    assert!(failed.unwrap_err().to_string().contains("the disk is full"));
    let bad = RxConfig { taps: 3, ..config };
    let none = |_: &mut Vec<Complex32>| Ok(0);
    assert!(matches!(
        receive(&bad, Copies::Number(1), none, |_| Ok(())),
        Err(GraphError::Config(_))
    ));
}

/// What a decoder makes of bytes that no search has made.
fn decoded(found: &[u8]) -> FrameRecord {
    let node = DecodeFrames::default();
    let types = [Type::U8.vector(search::FOUND)];
    let mut step = node.start_bytes(&types, &[]).unwrap();
    let mut record = vec![7; record::bytes(false)];
    step.compute(&[found], &mut [&mut record]);
    FrameRecord::read(&record).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_decoder_takes_any_bytes(
        numbers: [u64; 6],
        floats: [f64; 3],
        count in prop_oneof![any::<u64>(), Just(search::SAMPLES as u64)],
        size in prop_oneof![Just(1f32), Just(1e6), any::<f32>()],
    ) {
        let mut found = vec![0; search::FOUND];
        let head = [count, numbers[0], numbers[1]].into_iter();
        let head = head.chain(floats.map(f64::to_bits)).chain([numbers[2]]);
        for (place, number) in found.chunks_mut(8).zip(head) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let mut word = numbers[3];
        for place in found[search::HEAD..].chunks_mut(4) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(numbers[4] | 1);
            let value = size * ((word >> 40) as f32 / (1 << 23) as f32 - 1.0);
            place.copy_from_slice(&value.to_le_bytes());
        }
        // Not more than a wrong check field.
        if let FrameRecord::Frame(frame) = decoded(&found) {
            prop_assert_ne!(frame.outcome, Outcome::Delivered);
        }
    }
}

#[test]
fn nodes_are_known_to_files() {
    let mut registry = Registry::standard();
    register(&mut registry);
    // The file's blocks are always full.
    let text = include_str!("../../../../examples/modem-rx.toml");
    let graph = karoo_flow::Graph::from_toml(text, "rx.toml", &registry).unwrap();
    let again = karoo_flow::Graph::from_toml(&graph.to_toml().unwrap(), "rx.toml", &registry);
    assert_eq!(again.unwrap().nodes().len(), graph.nodes().len());
    let blocks = mixed().len() / BLOCK;
    let settings = Settings {
        block: 1,
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let bytes: Vec<u8> = bytemuck::cast_slice(&mixed()[..blocks * BLOCK]).to_vec();
    let (mut records, mut counts) = (Vec::new(), Vec::new());
    executor
        .prepare(
            vec![Box::new(io::Cursor::new(bytes))],
            vec![Box::new(&mut records), Box::new(&mut counts)],
        )
        .unwrap()
        .run()
        .unwrap();
    let frames: Vec<ReceivedFrame> = records
        .chunks(records.len() / blocks)
        .filter_map(|bytes| match FrameRecord::read(bytes) {
            Ok(FrameRecord::Frame(frame)) => Some(*frame),
            _ => None,
        })
        .collect();
    assert!(frames.len() >= 2);
    assert_eq!(
        frames,
        alone(&RxConfig::default(), mixed()).0[..frames.len()]
    );
    assert!(FrameRecord::read(&[3; 100]).is_err());
    let wrong = text.replace("taps = 16", "taps = 15");
    let problems = karoo_flow::Graph::from_toml(&wrong, "rx.toml", &registry).unwrap_err();
    assert!(problems.to_string().contains("multiple of 8"), "{problems}");
}
