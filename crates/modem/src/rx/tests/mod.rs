//! The receiver as a whole, on samples of the transmitter.

mod front_end;
mod hostile;
mod steps;

use std::sync::LazyLock;

use num_complex::Complex32;
use proptest::prelude::*;

use super::*;
use crate::channel::{Channel, ChannelSettings, Fading, Profile};
use crate::trials::{Trial, required_eb_n0};
use crate::tx::{PulseShaper, Transmitter};
use crate::waveform::{
    BODY_SYMBOLS, CheckField, Frame, Header, Modulation, PREAMBLE_SYMBOLS, point, unpack_bits,
};

/// A frame whose payload follows from `number`.
pub(crate) fn frame(modulation: Modulation, number: u32) -> Frame {
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
pub(crate) fn stream(frames: &[Frame], lead: usize, between: usize) -> Vec<Complex32> {
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

pub(crate) fn receive(config: &RxConfig, samples: &[Complex32]) -> (Vec<ReceivedFrame>, Counts) {
    let mut receiver = Receiver::new(config).unwrap();
    let mut frames = Vec::new();
    receiver.push(samples, &mut frames);
    receiver.finish(&mut frames);
    (frames, receiver.counts())
}

pub(super) fn delivered(frames: &[ReceivedFrame]) -> usize {
    frames
        .iter()
        .filter(|frame| frame.outcome == Outcome::Delivered)
        .count()
}

/// `samples` through a channel.
pub(super) fn through(settings: &ChannelSettings, samples: &[Complex32]) -> Vec<Complex32> {
    let mut channel = Channel::new(settings).unwrap();
    let mut out = Vec::new();
    channel.push(samples, &mut out);
    channel.finish(&mut out);
    out
}

/// The samples of integers, with the modulation of `frame`.
fn samples_of(frame: &Frame, integers: &[u8]) -> Vec<Complex32> {
    let points: Vec<Complex32> = integers
        .iter()
        .enumerate()
        .map(|(k, &integer)| {
            let z = point(frame.modulation_at(k), integer);
            Complex32::new(z.re as f32, z.im as f32)
        })
        .chain([Complex32::ZERO; 100])
        .collect();
    let mut samples = Vec::new();
    PulseShaper::new(1.0).shape(&points, &mut samples);
    samples
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
        assert_eq!((counts.detected, counts.delivered), (5, 5));
        for (i, (received, sent)) in received.iter().zip(&frames).enumerate() {
            assert_eq!(received.outcome, Outcome::Delivered);
            assert_eq!(received.header, *sent.header());
            assert_eq!(received.body, sent.body());
            assert_eq!(received.start, 3 * 16_120 * i as u64);
            assert!(received.start_fraction.abs() < 0.01);
            assert!(
                received.snr_db > 55.0 && received.evm < 0.002,
                "{}",
                received.evm
            );
            assert!(received.clock_ppm.abs() < 0.2 && received.frequency.abs() < 1e-7);
        }
    }
}

#[test]
fn frames_that_abut_are_all_received() {
    // The first at the 10⁻³ point, where each has errors.
    for (modulation, snr_db, good) in [
        (Modulation::Bpsk, 2.0, 0),
        (Modulation::Bpsk, 9.0, 12),
        (Modulation::Qam256, 32.0, 12),
    ] {
        let frames: Vec<Frame> = (0..12).map(|i| frame(modulation, i)).collect();
        let channel = ChannelSettings {
            snr_db: Some(snr_db),
            delay: 0.4,
            frequency: 2.5e-4,
            clock_ppm: 20.0,
            ..ChannelSettings::default()
        };
        let samples = through(&channel, &stream(&frames, 0, 0));
        let (received, counts) = receive(&RxConfig::default(), &samples);
        assert_eq!((counts.detected, received.len()), (12, 12), "{modulation}");
        assert_eq!(delivered(&received), good, "{modulation}");
    }
}

#[test]
fn a_frame_is_received_at_the_ends_of_frequency_and_clock() {
    let sent = frame(Modulation::Qam256, 3);
    // Of 80 Msample/s, 400 kHz. Below an Es/N0 of 20 dB some frames at 400 ppm are not acquired.
    let offsets = [
        (0.005, 100.0),
        (-0.005, -100.0),
        (0.00375, -50.0),
        (0.001, 300.0),
        (-0.001, -400.0),
        (0.0, 400.0),
    ];
    for (frequency, clock_ppm) in offsets {
        let channel = ChannelSettings {
            snr_db: Some(30.0),
            delay: 1.3,
            frequency,
            clock_ppm,
            ..ChannelSettings::default()
        };
        let samples = through(&channel, &stream(std::slice::from_ref(&sent), 700, 24));
        let (received, _) = receive(&RxConfig::default(), &samples);
        assert_eq!(delivered(&received), 1);
        assert_eq!(received[0].body, sent.body());
        assert!((received[0].frequency - frequency).abs() < 1e-6);
        assert!((received[0].clock_ppm - clock_ppm).abs() < 0.5);
        // From the centre of the first symbol, 24 samples behind the begin.
        let begin = (2124.0 + 1.3) / (1.0 - 1e-6 * clock_ppm) - 24.0;
        let found = received[0].start as f64 + received[0].start_fraction;
        assert!((found - begin).abs() < 0.02, "{found} {begin}");
    }
}

#[test]
fn bit_errors_stay_near_theory() {
    for (modulation, eb_n0_db) in [
        (Modulation::Bpsk, 4.0),
        (Modulation::Qam16, 8.0),
        (Modulation::Qam256, 16.0),
    ] {
        let trial = Trial {
            modulation,
            eb_n0_db,
            channel: ChannelSettings {
                frequency: 2.5e-4,
                clock_ppm: 20.0,
                ..ChannelSettings::default()
            },
            receiver: RxConfig::default(),
            frames: 5,
            errors: u64::MAX,
            seed: 7,
        };
        let result = trial.run().unwrap();
        assert_eq!((result.sent, result.lost, result.false_frames), (5, 0, 0));
        let loss = eb_n0_db - required_eb_n0(modulation, result.rate).unwrap();
        assert!(loss < 0.3, "{modulation}: {loss} dB");
    }
}

#[test]
fn echoes_are_taken_out_as_the_reference_does() {
    for (taps, most) in [(16, 1e-3), (64, 2e-4)] {
        let trial = Trial {
            modulation: Modulation::Qam16,
            eb_n0_db: 18.0,
            channel: ChannelSettings {
                paths: Profile::Cost207RaX4.paths(),
                ..ChannelSettings::default()
            },
            receiver: RxConfig {
                taps,
                ..RxConfig::default()
            },
            frames: 4,
            errors: u64::MAX,
            seed: 3,
        };
        let result = trial.run().unwrap();
        assert_eq!(result.lost, 0);
        assert!(result.rate < most, "{taps}: {}", result.rate);
    }
}

#[test]
fn the_originals_equaliser_decodes_too() {
    let sent = frame(Modulation::Qam256, 3);
    let channel = ChannelSettings {
        snr_db: Some(28.0),
        ..ChannelSettings::default()
    };
    let samples = through(&channel, &stream(std::slice::from_ref(&sent), 700, 24));
    let config = RxConfig {
        equaliser: Equaliser::Lms,
        vote: ModeVote::Majority,
        ..RxConfig::default()
    };
    let (received, _) = receive(&config, &samples);
    assert_eq!(delivered(&received), 1);
}

#[test]
fn steps_follow_what_fades() {
    let sent = frame(Modulation::Qam16, 3);
    let channel = ChannelSettings {
        snr_db: Some(24.0),
        paths: Profile::Cost207RaX4.paths(),
        fading: Some(Fading { doppler: 2e-7 }),
        seed: 11,
        ..ChannelSettings::default()
    };
    let samples = through(&channel, &stream(std::slice::from_ref(&sent), 700, 200));
    let evm = |step| {
        let (received, _) = receive(
            &RxConfig {
                step,
                ..RxConfig::default()
            },
            &samples,
        );
        received[0].evm
    };
    assert!(evm(0.001) < evm(0.0));
}

#[test]
fn the_demos_check_field_is_not_checked() {
    let modulation = Modulation::Qam16;
    let payload = vec![9; modulation.payload_bytes()];
    let sent = Frame::new(Header::new(modulation), &payload, CheckField::Pad).unwrap();
    let samples = stream(std::slice::from_ref(&sent), 0, 24);
    let (received, counts) = receive(&RxConfig::default(), &samples);
    assert_eq!((received[0].outcome, counts.check), (Outcome::Check, 1));
    assert_eq!(received[0].payload(), payload);
    let config = RxConfig {
        check: CheckField::Pad,
        ..RxConfig::default()
    };
    assert_eq!(receive(&config, &samples).0[0].outcome, Outcome::Delivered);
}

#[test]
fn frames_that_are_not_delivered_are_counted_by_cause() {
    let sent = frame(Modulation::Bpsk, 1);
    let symbols = sent.symbols();
    let change = |byte: usize, value: u8| {
        let mut symbols = symbols.clone();
        for bit in 0..8 {
            symbols[PREAMBLE_SYMBOLS + 8 * byte + bit] = value >> bit & 1;
        }
        receive(&RxConfig::default(), &samples_of(&sent, &symbols)).1
    };
    assert_eq!(change(0, 0x00).delivered, 1);
    assert_eq!(change(0, 0xcc).mode, 1);
    assert_eq!(change(7, 0xff).length, 1);
    assert_eq!(change(3, 0x77).check, 1);
    // The STF without what comes behind it.
    let mut cut = symbols.clone();
    cut.truncate(1900);
    let counts = receive(&RxConfig::default(), &samples_of(&sent, &cut)).1;
    assert_eq!((counts.cut, counts.delivered), (1, 0));
    cut.resize(16_096, 0);
    let counts = receive(&RxConfig::default(), &samples_of(&sent, &cut)).1;
    assert!(counts.detected >= 1 && counts.not_acquired == counts.detected);
}

#[test]
fn streams_that_begin_or_end_within_a_frame_lose_that_frame_alone() {
    let frames: Vec<Frame> = (0..3).map(|i| frame(Modulation::Qpsk, i)).collect();
    let samples = stream(&frames, 0, 24);
    let (received, counts) = receive(&RxConfig::default(), &samples[20_000..120_000]);
    assert_eq!((delivered(&received), counts.cut), (1, 1));
    assert_eq!(received[0].body, frames[1].body());
    // Most of the first field is missing.
    let late = ChannelSettings {
        delay: 0.3,
        ..ChannelSettings::default()
    };
    let (received, _) = receive(&RxConfig::default(), &through(&late, &samples)[3_500..]);
    assert_eq!(delivered(&received), 3);
    // Its begin is before the stream: no fraction is left to sample 0.
    assert_eq!((received[0].start, received[0].start_fraction), (0, 0.0));
    assert!((received[1].start_fraction - 0.3).abs() < 0.01);
}

#[test]
fn soft_values_agree_with_decisions_and_points() {
    let sent = frame(Modulation::Qam64, 2);
    let channel = ChannelSettings {
        snr_db: Some(25.0),
        ..ChannelSettings::default()
    };
    let samples = through(&channel, &stream(std::slice::from_ref(&sent), 100, 24));
    let config = RxConfig {
        soft: true,
        points: true,
        ..RxConfig::default()
    };
    let (received, _) = receive(&config, &samples);
    let frame = &received[0];
    assert_eq!((frame.points.len(), frame.taps.len()), (BODY_SYMBOLS, 16));
    let mut bits = Vec::new();
    unpack_bits(&frame.body, 1, &mut bits);
    assert_eq!(bits.len(), frame.soft.len());
    let agree = bits
        .iter()
        .zip(&frame.soft)
        .filter(|(bit, soft)| (**bit == 1) == (**soft < 0.0));
    // A value between two points is 0 or of either sign.
    assert!(agree.count() > bits.len() - 10);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let bad = [
        RxConfig {
            taps: 12,
            ..RxConfig::default()
        },
        RxConfig {
            taps: 0,
            ..RxConfig::default()
        },
        RxConfig {
            step: f32::NAN,
            ..RxConfig::default()
        },
        RxConfig {
            threads: 100_000,
            ..RxConfig::default()
        },
    ];
    for config in bad {
        let text = Receiver::new(&config).err().unwrap().to_string();
        assert!(text.contains("such as"), "{text}");
    }
}

/// Frames in noise with pauses between them, some echoes and a frequency.
pub(crate) fn mixed() -> &'static Vec<Complex32> {
    static SAMPLES: LazyLock<Vec<Complex32>> = LazyLock::new(|| {
        let of = [Modulation::Qam256, Modulation::Bpsk, Modulation::Qam16];
        let frames: Vec<Frame> = of.into_iter().zip(0..).map(|(m, i)| frame(m, i)).collect();
        let channel = ChannelSettings {
            snr_db: Some(22.0),
            frequency: -1e-3,
            clock_ppm: -30.0,
            ..ChannelSettings::default()
        };
        through(&channel, &stream(&frames, 777, 333))
    });
    &SAMPLES
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn frames_do_not_depend_on_how_the_stream_is_cut_nor_on_threads(
        threads in 0usize..4,
        cuts in proptest::collection::vec(1usize..30_000, 1..20),
    ) {
        let whole = receive(&RxConfig::default(), mixed());
        let config = RxConfig { threads, ..RxConfig::default() };
        let mut receiver = Receiver::new(&config).unwrap();
        let mut frames = Vec::new();
        let mut rest = mixed().as_slice();
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            receiver.push(now, &mut frames);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        receiver.finish(&mut frames);
        prop_assert_eq!(frames.len(), 3);
        prop_assert_eq!((&frames, receiver.counts()), (&whole.0, whole.1));
    }
}
