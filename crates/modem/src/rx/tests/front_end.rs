//! DC and IQ imbalance of the channel's front end, and what the receiver takes off of it.

use num_complex::Complex64;

use super::{delivered, frame, receive, stream, through};
use crate::channel::{ChannelSettings, IqImbalance};
use crate::rx::{Acquisition, Receiver, RxConfig, original};
use crate::waveform::{Frame, Modulation};

/// Two and a half blocks of estimates, of 256-QAM.
fn faulty() -> (Vec<num_complex::Complex32>, ChannelSettings) {
    let frames: Vec<Frame> = (0..6).map(|i| frame(Modulation::Qam256, i)).collect();
    let channel = ChannelSettings {
        snr_db: Some(30.0),
        frequency: 2.5e-4,
        phase: 0.1,
        iq: IqImbalance {
            gain_db: 1.0,
            phase_degrees: 4.0,
        },
        dc: Complex64::new(0.08, -0.05),
        seed: 7,
        ..ChannelSettings::default()
    };
    (through(&channel, &stream(&frames, 500, 24)), channel)
}

fn correcting(correct: bool) -> RxConfig {
    RxConfig {
        correct,
        ..RxConfig::default()
    }
}

#[test]
fn imbalance_and_dc_are_those_of_the_channel_and_go() {
    let (samples, channel) = faulty();
    let evm = |correct| {
        let (frames, _) = receive(&correcting(correct), &samples);
        assert_eq!(frames.len(), 6);
        frames[1..].iter().map(|frame| frame.evm).sum::<f64>() / 5.0
    };
    // Noise alone: Es/N0 is 30 dB + 4.77 dB.
    let ideal = 10f64.powf(-34.77 / 20.0);
    let (without, with) = (evm(false), evm(true));
    assert!(without > 3.0 * ideal, "{without} {ideal}");
    assert!(with < 1.25 * ideal, "{with} {ideal}");

    let mut receiver = Receiver::new(&correcting(true)).unwrap();
    let mut frames = Vec::new();
    receiver.push(&samples, &mut frames);
    let found = receiver.correction().unwrap();
    // x = A y + B y* with A = (1 + g e^jφ) / 2 and B = (1 − g e^−jφ) / 2; the image goes by B / A*.
    let turn = Complex64::from_polar(
        10f64.powf(channel.iq.gain_db / 20.0),
        -channel.iq.phase_degrees.to_radians(),
    );
    let image = (1.0 - turn) / (1.0 + turn);
    assert!((found.image - image).norm() < 0.012, "{found:?} {image}");
    assert!((found.dc - channel.dc).norm() < 0.012, "{found:?}");
    let found = found.imbalance();
    assert!(
        (found.gain_db - channel.iq.gain_db).abs() < 0.2,
        "{found:?}"
    );
    let off = found.phase_degrees - channel.iq.phase_degrees;
    assert!(off.abs() < 1.4, "{found:?}");
}

/// One in the first unit, which has nothing before it, and one in a frame.
#[test]
fn single_samples_of_great_power_are_not_taken_for_an_imbalance() {
    let (mut samples, channel) = faulty();
    let clean = receive(&correcting(true), &samples).0;
    for place in [700, 60_000] {
        samples[place] = num_complex::Complex32::new(9e5, -9e5);
    }
    let mut receiver = Receiver::new(&correcting(true)).unwrap();
    let mut frames = Vec::new();
    receiver.push(&samples, &mut frames);
    let found = receiver.correction().unwrap();
    assert!((found.dc - channel.dc).norm() < 0.012, "{found:?}");
    receiver.finish(&mut frames);
    // The second is in the second frame's body.
    assert_eq!((clean.len(), frames.len()), (6, 6));
    for (number, (frame, clean)) in frames.iter().zip(&clean).enumerate() {
        assert!(number == 1 || frame.evm < 1.05 * clean.evm, "{number}");
    }
}

/// Behind noise that is 40 dB weaker.
#[test]
fn a_signal_that_becomes_stronger_is_seen() {
    let (samples, channel) = faulty();
    let quiet = samples[..40_000].iter().map(|x| x * 0.01);
    let samples: Vec<_> = quiet.chain(samples.iter().copied()).collect();
    let mut receiver = Receiver::new(&correcting(true)).unwrap();
    receiver.push(&samples, &mut Vec::new());
    let found = receiver.correction().unwrap();
    assert!((found.imbalance().gain_db - channel.iq.gain_db).abs() < 0.2);
}

#[test]
fn what_is_taken_off_depends_neither_on_blocks_nor_on_threads() {
    let (samples, _) = faulty();
    let whole = receive(&correcting(true), &samples);
    assert_eq!(whole.0.len(), 6);
    for (threads, block) in [(0, 1), (2, 977), (3, 40_000), (0, 1024)] {
        let config = RxConfig {
            threads,
            ..correcting(true)
        };
        let mut receiver = Receiver::new(&config).unwrap();
        let mut frames = Vec::new();
        // By single samples for the first estimate alone.
        let (begin, rest) = samples.split_at(35_000);
        begin
            .chunks(block)
            .chain(rest.chunks(block.max(977)))
            .for_each(|block| receiver.push(block, &mut frames));
        receiver.finish(&mut frames);
        assert_eq!((frames, receiver.counts()), whole, "{threads} {block}");
    }
}

#[test]
fn bpsk_without_a_carrier_offset_is_left_as_it_is() {
    let frames: Vec<Frame> = (0..3).map(|i| frame(Modulation::Bpsk, i)).collect();
    let samples = stream(&frames, 100, 24);
    let mut receiver = Receiver::new(&correcting(true)).unwrap();
    let mut received = Vec::new();
    receiver.push(&samples, &mut received);
    receiver.finish(&mut received);
    assert_eq!(delivered(&received), 3);
    assert_eq!(receiver.correction().unwrap().image, Complex64::default());
    // Less than a block of estimates is mended at the end.
    let (short, _) = receive(&correcting(true), &samples[..20]);
    assert!(short.is_empty());
    assert_eq!(receive(&correcting(false), &samples).0.len(), 3);
}

#[test]
fn the_originals_acquisition_gains_by_it_too() {
    let (samples, _) = faulty();
    let evm = |correct| {
        let config = RxConfig {
            acquisition: Acquisition::Original {
                feedback: original::FEEDBACK,
            },
            ..correcting(correct)
        };
        let (frames, _) = receive(&config, &samples);
        frames.iter().map(|frame| frame.evm).sum::<f64>() / frames.len() as f64
    };
    assert!(evm(true) < 0.7 * evm(false));
}
