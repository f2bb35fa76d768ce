//! The original's receiver as a whole.

use super::FEEDBACK;
use crate::channel::{ChannelSettings, Profile};
use crate::rx::tests::{delivered, frame, receive, stream, through};
use crate::rx::{Acquisition, Counts, Equaliser, ModeVote, ReceivedFrame, Receiver, RxConfig};
use crate::trials::{Trial, TrialResult};
use crate::waveform::{FRAME_SYMBOLS, Frame, Modulation};

/// The original as a whole.
fn original() -> RxConfig {
    RxConfig {
        acquisition: Acquisition::Original { feedback: FEEDBACK },
        equaliser: Equaliser::Lms,
        vote: ModeVote::Majority,
        ..RxConfig::default()
    }
}

#[test]
fn the_original_receives_all_modulations() {
    let channel = ChannelSettings {
        snr_db: Some(32.0),
        delay: 0.4,
        // 20 kHz of 80 MHz, as in its simulations.
        frequency: 2.5e-4,
        clock_ppm: 20.0,
        ..ChannelSettings::default()
    };
    let frames: Vec<Frame> = Modulation::CYCLOPS
        .into_iter()
        .zip(0..)
        .map(|(m, i)| frame(m, i))
        .collect();
    // Each behind a pause, as in its simulations.
    let samples = through(&channel, &stream(&frames, 2000, 2000));
    let (received, counts) = receive(&original(), &samples);
    // While the gain settles, sidelobes are within range and taken for begins of fields.
    assert_eq!(counts.delivered, 4, "{counts:?}");
    assert_eq!(counts.detected, counts.delivered + counts.not_acquired);
    for (i, (received, sent)) in received.iter().zip(&frames).enumerate() {
        assert_eq!(received.body, sent.body(), "{i}");
        let begin = 3.0 * (2000 + i * (FRAME_SYMBOLS + 2000)) as f64 * (1.0 + 20e-6) + 0.4;
        let found = received.start as f64 + received.start_fraction;
        assert!((found - begin).abs() < 0.4, "{found} {begin}");
        assert!(
            (received.frequency - 2.5e-4).abs() < 2e-6,
            "{}",
            received.frequency
        );
        assert!(
            (received.clock_ppm - 20.0).abs() < 10.0,
            "{}",
            received.clock_ppm
        );
    }
}

#[test]
fn the_original_does_not_depend_on_how_the_stream_is_cut() {
    let samples = stream(
        &[frame(Modulation::Qam16, 1), frame(Modulation::Bpsk, 2)],
        300,
        700,
    );
    let whole: (Vec<ReceivedFrame>, Counts) = receive(&original(), &samples);
    assert_eq!(delivered(&whole.0), 2);
    let mut receiver = Receiver::new(&original()).unwrap();
    let mut frames = Vec::new();
    for part in samples.chunks(777) {
        receiver.push(part, &mut frames);
    }
    receiver.finish(&mut frames);
    assert_eq!((frames, receiver.counts()), whole);
}

fn trial(modulation: Modulation, eb_n0_db: f64, frames: u64) -> Trial {
    Trial {
        modulation,
        eb_n0_db,
        channel: ChannelSettings {
            frequency: 2.5e-4,
            clock_ppm: 20.0,
            ..ChannelSettings::default()
        },
        receiver: original(),
        frames,
        errors: u64::MAX,
        seed: 5,
    }
}

#[test]
fn the_originals_error_rates_are_those_of_the_reference() {
    for (modulation, eb_n0_db, rate) in [
        (Modulation::Qpsk, 6.0, 2.50e-3),
        (Modulation::Qam16, 8.0, 1.04e-2),
        (Modulation::Qam256, 16.0, 1.28e-2),
        (Modulation::Qam256, 20.0, 5.37e-4),
    ] {
        let result: TrialResult = trial(modulation, eb_n0_db, 6).run().unwrap();
        assert_eq!(result.lost, 0, "{modulation} {eb_n0_db} dB");
        assert!(
            (result.rate / rate - 1.0).abs() < 0.1,
            "{modulation} {eb_n0_db}: {}",
            result.rate
        );
    }
}

#[test]
fn noise_and_echoes_cost_the_original_frames() {
    // Behind a pause the gain has to come down first; at 0 dB some one in ten frames are lost.
    let noisy = trial(Modulation::Bpsk, 0.0, 30);
    let lost = noisy.run().unwrap().lost;
    assert!((1..10).contains(&lost), "{lost}");
    let own = Trial {
        receiver: RxConfig::default(),
        ..noisy
    };
    assert_eq!(own.run().unwrap().lost, 0);
    // Steps that come 88 symbols late make the taps run away in some frames: they have errors all
    // over, with few in the others.
    let echoes = trial(Modulation::Qam16, 18.0, 12);
    let channel = ChannelSettings {
        paths: Profile::Cost207RaX4.paths(),
        ..echoes.channel.clone()
    };
    let rate = |receiver| {
        let trial = Trial {
            receiver,
            channel: channel.clone(),
            ..echoes.clone()
        };
        trial.run().unwrap().rate
    };
    let least_squares = RxConfig {
        equaliser: Equaliser::LeastSquares,
        ..original()
    };
    let (lms, ls) = (rate(original()), rate(least_squares));
    assert!(lms > 0.05 && ls < 1e-3, "{lms} {ls}");
}
