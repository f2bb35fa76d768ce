//! Equalisers whose taps follow decisions, or run away.

use num_complex::Complex64;

use super::{delivered, mixed, receive, stream, through};
use crate::channel::ChannelSettings;
use crate::rx::{Equaliser, RxConfig};
use crate::waveform::{CheckField, Frame, Header, Modulation, frame_message};

/// A frame of one byte and padding, whose symbols are a tone.
fn padded(modulation: Modulation) -> Frame {
    frame_message(b"x", Header::new(modulation), CheckField::Crc, None).0
}

/// All power of a tone is in one direction of the taps: so much that a step which random payloads
/// take makes them run away, if nothing holds it back.
#[test]
fn steps_do_not_make_taps_run_away_on_payloads_that_are_a_tone() {
    let channel = ChannelSettings {
        snr_db: Some(35.0),
        ..ChannelSettings::default()
    };
    for modulation in Modulation::ALL {
        let frames = [padded(modulation), padded(modulation)];
        let samples = through(&channel, &stream(&frames, 300, 60));
        for taps in [16, 32, 64, 128] {
            for step in [0.0005, 0.01] {
                let config = RxConfig {
                    taps,
                    step,
                    ..RxConfig::default()
                };
                let (received, counts) = receive(&config, &samples);
                assert_eq!(delivered(&received), 2, "{modulation} {taps} {step}");
                assert_eq!(counts.not_delivered(), 0, "{modulation} {taps} {step}");
            }
        }
    }
}

#[test]
fn frames_whose_taps_run_away_are_frames_that_were_not_delivered() {
    // With it the original's steps, which come 88 symbols late, are far too large for many taps.
    let tone = ChannelSettings {
        dc: Complex64::new(1.0, 0.0),
        ..ChannelSettings::default()
    };
    let samples = through(&tone, mixed());
    let config = RxConfig {
        equaliser: Equaliser::Lms,
        taps: 128,
        ..RxConfig::default()
    };
    let (received, counts) = receive(&config, &samples);
    assert!(received.is_empty());
    assert_eq!((counts.equaliser, counts.not_acquired), (3, 0));
    assert_eq!((counts.frames(), counts.not_delivered()), (3, 3));
}
