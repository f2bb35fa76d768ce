//! Trials against closed forms.

use super::*;
use crate::channel::{ChannelSettings, Fading, Path, Profile};
use crate::rx::RxConfig;
use crate::waveform::Modulation;

fn trial(modulation: Modulation, eb_n0_db: f64, profile: Profile) -> Trial {
    Trial {
        modulation,
        eb_n0_db,
        channel: ChannelSettings {
            frequency: 2.5e-4,
            clock_ppm: 20.0,
            paths: profile.paths(),
            ..ChannelSettings::default()
        },
        receiver: RxConfig::default(),
        frames: 2,
        errors: u64::MAX,
        seed: 5,
    }
}

fn near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "{found} {expected}");
}

#[test]
fn in_white_noise_the_error_vector_is_ideal_ahead_of_the_equaliser_too() {
    let result = trial(Modulation::Qam16, 14.0, Profile::None).run().unwrap();
    near(result.evm_unequalised, result.evm_ideal, 0.03);
    near(result.evm, result.evm_ideal, 0.03);
}

/// Paths of 0.1 and 0.2 beside one of 0.7, each a whole number of symbols away.
#[test]
fn echoes_are_the_error_vector_ahead_of_the_equaliser() {
    let result = trial(Modulation::Qam16, 50.0, Profile::Manual)
        .run()
        .unwrap();
    near(result.evm_unequalised, 0.05f64.sqrt() / 0.7, 0.05);
    // 8 taps behind the centre leave some 0.35^(8/2.5) of them.
    assert!(result.evm < 0.1 * result.evm_unequalised, "{}", result.evm);
}

/// The nearest points are nearer than those that were sent: of BPSK at 0 dB a tenth.
#[test]
fn where_decisions_are_wrong_the_error_vector_is_ideal_too() {
    for modulation in [Modulation::Bpsk, Modulation::Qam256] {
        let result = trial(modulation, 1.0, Profile::None).run().unwrap();
        assert!(result.rate > 0.04, "{}", result.rate);
        near(result.evm, result.evm_ideal, 0.03);
    }
}

/// More than a frame may be off its place, and a weaker path at its begin.
#[test]
fn a_frame_stands_where_the_strongest_path_puts_it() {
    let mut trial = trial(Modulation::Qpsk, 12.0, Profile::None);
    let path = |delay, gain: f64| Path {
        delay,
        gain: gain.into(),
    };
    trial.channel.paths = vec![path(0, 0.05), path(300, -1.0)];
    let result = trial.run().unwrap();
    assert_eq!((result.lost, result.false_frames), (0, 0));
}

/// The path that is weaker in the mean is the stronger one in nearly half of the frames.
#[test]
fn a_frame_stands_where_the_path_that_is_strongest_at_its_time_puts_it() {
    let mut trial = trial(Modulation::Bpsk, 30.0, Profile::None);
    let path = |delay, gain: f64| Path {
        delay,
        gain: gain.into(),
    };
    trial.channel.paths = vec![path(0, 1.0), path(60, 0.9)];
    trial.channel.fading = Some(Fading { doppler: 1e-9 });
    trial.frames = 12;
    let result = trial.run().unwrap();
    assert_eq!((result.lost, result.false_frames), (0, 0));
}

#[test]
fn a_frame_is_counted_once() {
    // Far below what can be found, where it may be, and where each has errors.
    for eb_n0_db in [-30.0, -9.0, 4.0] {
        let mut trial = trial(Modulation::Bpsk, eb_n0_db, Profile::None);
        trial.frames = 6;
        let r = trial.run().unwrap();
        assert_eq!(r.sent, 6);
        let found = r.mode + r.length + r.check + r.delivered;
        assert_eq!(r.lost + r.wrong_mode + found, r.sent, "{r:?}");
        let share = r.lost as f64 / r.sent as f64;
        assert!(r.lost_interval.low <= share && share <= r.lost_interval.high);
    }
}

#[test]
fn points_come_in_order_and_their_loss_is_within_its_interval() {
    let trials: Vec<Trial> = [3.0, 4.0, 5.0]
        .map(|eb_n0_db| trial(Modulation::Qpsk, eb_n0_db, Profile::None))
        .into();
    let mut told = Vec::new();
    assert_eq!(run_trials(&trials[..1], 0, |_| ()).unwrap().len(), 1);
    let points = run_trials(&trials, 2, |point| told.push(point.eb_n0_db)).unwrap();
    assert_eq!(told, [3.0, 4.0, 5.0]);
    for point in points {
        let (loss, interval) = (point.loss_db.unwrap(), point.loss_interval_db.unwrap());
        assert!(interval.low < loss && loss < interval.high);
        // A rate that is higher by a fifth is some 0.1 dB.
        assert!((0.01..0.6).contains(&(interval.high - interval.low)));
    }
}
