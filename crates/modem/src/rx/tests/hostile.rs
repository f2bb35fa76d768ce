//! Samples that no transmitter sends.

use num_complex::Complex32;

use super::{frame, receive, samples_of, stream};
use crate::channel::{Channel, ChannelSettings};
use crate::rx::{Acquisition, Counts, Equaliser, Receiver, RxConfig, original};
use crate::waveform::Modulation;

#[test]
fn hostile_samples_make_no_frames_and_no_panic() {
    let endless: Vec<Complex32> = {
        let sent = frame(Modulation::Bpsk, 0);
        let (symbols, period) = (sent.symbols(), 32);
        let endless: Vec<u8> = (0..30_000).map(|k| symbols[k % period]).collect();
        samples_of(&sent, &endless)
    };
    let of = |value: fn(usize) -> (f32, f32)| -> Vec<Complex32> {
        (0..40_000)
            .map(value)
            .map(|(re, im)| Complex32::new(re, im))
            .collect()
    };
    let hostile = [
        of(|_| (f32::NAN, f32::INFINITY)),
        of(|_| (0.0, 0.0)),
        of(|_| (f32::MAX, f32::MIN_POSITIVE)),
        of(|n| {
            if n % 7 == 0 {
                (f32::NAN, 1e6)
            } else {
                (-1e6, 1e-30)
            }
        }),
        of(|n| (if n % 2 == 0 { 1.0 } else { -1.0 }, 1.0)),
        of(|n| ((n as f32 * 0.3).cos(), (n as f32 * 0.3).sin())),
        of(|n| {
            if n == 20_000 {
                (9e5, 0.0)
            } else {
                (1e-20, 0.0)
            }
        }),
        endless,
    ];
    let as_original = Acquisition::Original {
        feedback: original::FEEDBACK,
    };
    for (i, samples) in hostile.iter().enumerate() {
        for (acquisition, equaliser) in [
            (Acquisition::Fits, Equaliser::LeastSquares),
            (Acquisition::Fits, Equaliser::Lms),
            (as_original, Equaliser::Lms),
        ] {
            let config = RxConfig {
                acquisition,
                equaliser,
                soft: true,
                points: true,
                ..RxConfig::default()
            };
            let (frames, counts) = receive(&config, samples);
            assert_eq!(frames.len(), 0, "{i}");
            assert_eq!(counts.samples, samples.len() as u64);
        }
    }
    // A frame with holes of nonsense in it, and one that is clipped hard.
    let sent = frame(Modulation::Qpsk, 5);
    let clean = stream(std::slice::from_ref(&sent), 300, 24);
    let mut holes = clean.clone();
    holes
        .iter_mut()
        .skip(30_000)
        .step_by(5)
        .take(60)
        .for_each(|x| x.re = f32::NAN);
    let (_, counts) = receive(&RxConfig::default(), &holes);
    assert_eq!((counts.bad_samples, counts.detected), (60, 1));
    let clip = |x: f32| x.clamp(-0.3, 0.3);
    let clipped: Vec<_> = clean
        .iter()
        .map(|x| Complex32::new(clip(x.re), clip(x.im)))
        .collect();
    assert_eq!(receive(&RxConfig::default(), &clipped).1.delivered, 1);
}

/// Samples of white noise without a frame.
fn frames_of_noise(samples: usize, seed: u64) -> Counts {
    let settings = ChannelSettings {
        snr_db: Some(0.0),
        seed,
        ..ChannelSettings::default()
    };
    let mut channel = Channel::new(&settings).unwrap();
    let mut receiver = Receiver::new(&RxConfig::default()).unwrap();
    let (mut noise, mut frames) = (Vec::new(), Vec::new());
    let nothing = [Complex32::ZERO; 1 << 14];
    for _ in 0..samples.div_ceil(nothing.len()) {
        noise.clear();
        channel.push(&nothing, &mut noise);
        receiver.push(&noise, &mut frames);
    }
    receiver.finish(&mut frames);
    receiver.counts()
}

#[test]
fn noise_is_no_frame() {
    assert_eq!(frames_of_noise(300_000, 1).detected, 0);
}

/// Whatever finds frames.
#[test]
fn nothing_comes_behind_the_end_of_the_stream() {
    let samples = stream(&[frame(Modulation::Qpsk, 1)], 300, 700);
    let acquisition = Acquisition::Original {
        feedback: original::FEEDBACK,
    };
    for config in [
        RxConfig::default(),
        RxConfig {
            acquisition,
            ..RxConfig::default()
        },
    ] {
        let mut receiver = Receiver::new(&config).unwrap();
        let mut frames = Vec::new();
        receiver.push(&samples, &mut frames);
        receiver.finish(&mut frames);
        let (found, counts) = (frames.len(), receiver.counts());
        assert_eq!(found, 1);
        receiver.push(&samples, &mut frames);
        receiver.finish(&mut frames);
        assert_eq!((frames.len(), receiver.counts()), (found, counts));
    }
}

/// `cargo test --release -p karoo-modem --lib ten_to_the_ten -- --ignored`: some minutes for each
/// 10⁹ samples.
#[test]
#[ignore = "takes many minutes: docs/tests.md names the step"]
fn there_is_no_frame_in_ten_to_the_ten_samples_of_noise() {
    let of = |seed| std::thread::spawn(move || frames_of_noise(5_000_000_000, seed));
    for counts in [of(1), of(2)].map(|thread| thread.join().unwrap()) {
        assert_eq!(counts.detected, 0);
    }
}
