//! The receiver as a whole, on samples of the transmitter.

use num_complex::Complex32;

use super::*;
use crate::tx::Transmitter;
use crate::waveform::{CheckField, Frame, Header, Modulation};

/// A frame whose payload follows from `number`.
pub(super) fn frame(modulation: Modulation, number: u32) -> Frame {
    let payload: Vec<u8> = (0..modulation.payload_bytes() as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(number * 977) >> 13) as u8)
        .collect();
    let header = Header {
        source: number as u8,
        ..Header::new(modulation)
    };
    Frame::new(header, &payload, CheckField::Crc).unwrap()
}

/// Frames behind `lead` blank symbols, one after the other.
pub(super) fn stream(frames: &[Frame], lead: usize, between: usize) -> Vec<Complex32> {
    let mut transmitter = Transmitter::new(1.0);
    let mut samples = Vec::new();
    transmitter.blanks(lead, &mut samples);
    for frame in frames {
        transmitter.frame(frame, &mut samples);
        transmitter.blanks(between, &mut samples);
    }
    transmitter.finish(&mut samples);
    samples
}

pub(super) fn receive(config: &RxConfig, samples: &[Complex32]) -> (Vec<ReceivedFrame>, Counts) {
    let mut receiver = Receiver::new(config).unwrap();
    let mut frames = Vec::new();
    receiver.push(samples, &mut frames);
    receiver.finish(&mut frames);
    (frames, receiver.counts())
}

#[test]
fn frames_of_all_modulations_come_back() {
    let frames: Vec<Frame> = Modulation::ALL
        .into_iter()
        .zip(0..)
        .map(|(m, i)| frame(m, i))
        .collect();
    let samples = stream(&frames, 0, 24);
    for level in Level::available() {
        let config = RxConfig {
            level,
            ..RxConfig::default()
        };
        let (received, counts) = receive(&config, &samples);
        println!("{counts:?}");
        for (i, frame) in received.iter().enumerate() {
            println!(
                "{level} {} {:+.4} {:?} {} snr {:.1} evm {:.5} f {:.2e} ppm {:.4}",
                frame.start,
                frame.start_fraction,
                frame.outcome,
                frame.modulation(),
                frame.snr_db,
                frame.evm,
                frame.frequency,
                frame.clock_ppm
            );
            let _ = i;
        }
        assert_eq!(received.len(), frames.len());
        for (i, (received, sent)) in received.iter().zip(&frames).enumerate() {
            assert_eq!(received.outcome, Outcome::Delivered);
            assert_eq!(received.header, *sent.header());
            assert_eq!(received.body, sent.body());
            assert_eq!(received.start, 3 * 16_120 * i as u64);
        }
    }
}
