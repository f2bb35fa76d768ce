//! What the receiver has to hold in large numbers. Run by name, in release builds:
//! `cargo test --release -p karoo-modem --test proofs -- --ignored --nocapture NAME`.

use std::env;
use std::thread;

use karoo_modem::channel::{Channel, ChannelSettings, Profile};
use karoo_modem::rx::{ModeVote, Outcome, ReceivedFrame, Receiver, RxConfig};
use karoo_modem::theory::{mode_error_rate, required_eb_n0};
use karoo_modem::trials::{Trial, TrialPoint, run_trials};
use karoo_modem::tx::Transmitter;
use karoo_modem::waveform::{CheckField, FRAME_SYMBOLS, Frame, Header, ModeSet, Modulation};

/// 20 kHz of 80 Msample/s.
const FREQUENCY: f64 = 2.5e-4;
const CLOCK_PPM: f64 = 20.0;

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// What came of frames that abut.
#[derive(Clone, Copy, Debug, Default)]
struct Abutting {
    sent: u64,
    found: u64,
    delivered: u64,
}

/// Frames without a symbol between them, at an Eb/N0, in one stream.
fn abutting(modulation: Modulation, eb_n0_db: f64, count: u64, seed: u64) -> Abutting {
    let payload: Vec<u8> = (0..modulation.payload_bytes() as u64)
        .map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
        .collect();
    let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc).unwrap();
    let settings = ChannelSettings {
        frequency: FREQUENCY,
        clock_ppm: CLOCK_PPM,
        delay: 0.3,
        snr_db: Some(eb_n0_db + 10.0 * (modulation.bits() as f64 / 3.0).log10()),
        seed,
        ..ChannelSettings::default()
    };
    let (mut transmitter, mut channel) = (Transmitter::new(1.0), Channel::new(&settings).unwrap());
    let mut receiver = Receiver::new(&RxConfig::default()).unwrap();
    let (mut sent, mut air, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    let mut result = Abutting {
        sent: count,
        ..Abutting::default()
    };
    let mut next = 0;
    let mut look = |frames: &mut Vec<ReceivedFrame>| {
        for received in frames.drain(..) {
            // Frames that were lost are passed over, so that one lost frame costs one.
            let length = 3.0 * FRAME_SYMBOLS as f64;
            let place = |number: u64| (number as f64 * length + 0.3) / (1.0 - 1e-6 * CLOCK_PPM);
            let at = received.start as f64;
            let number = (next..count).find(|number| place(*number) > at - 40.0);
            let near = number.filter(|number| (place(*number) - at).abs() < 40.0);
            if let Some(number) = near {
                next = number + 1;
                result.found += u64::from(received.modulation() == modulation);
                result.delivered += u64::from(received.outcome == Outcome::Delivered);
            }
        }
    };
    for number in 0..count {
        transmitter.frame(&frame, &mut sent);
        if number + 1 == count {
            transmitter.blanks(1000, &mut sent);
        }
        channel.push(&sent, &mut air);
        receiver.push(&air, &mut frames);
        look(&mut frames);
        sent.clear();
        air.clear();
    }
    channel.finish(&mut air);
    receiver.push(&air, &mut frames);
    receiver.finish(&mut frames);
    look(&mut frames);
    result
}

/// Of each of the original's modulations a quarter, 2 dB above where theory has 1e-3.
/// `KAROO_FRAMES` sets another number of frames.
#[test]
#[ignore = "takes an hour on two cores: docs/tests.md names the step"]
fn a_million_frames_that_abut_are_all_received() {
    let number = env::var("KAROO_FRAMES").map(|text| text.parse::<u64>().expect("a number"));
    let all = number.unwrap_or(1_000_000).div_ceil(4);
    for modulation in Modulation::CYCLOPS {
        let eb_n0_db = required_eb_n0(modulation, 1e-3).unwrap() + 2.0;
        let threads = threads() as u64;
        let run = |i: u64| {
            let count = all * (i + 1) / threads - all * i / threads;
            thread::spawn(move || abutting(modulation, eb_n0_db, count, i + 1))
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        let mut sum = Abutting::default();
        for thread in running {
            let one = thread.join().unwrap();
            sum.sent += one.sent;
            sum.found += one.found;
            sum.delivered += one.delivered;
        }
        println!("{modulation} at {eb_n0_db:.2} dB: {sum:?}");
        assert_eq!(sum.found, sum.sent, "{modulation}");
    }
}

fn trial(modulation: Modulation, eb_n0_db: f64, frames: u64) -> Trial {
    Trial {
        modulation,
        eb_n0_db,
        channel: ChannelSettings {
            delay: 500.0,
            frequency: FREQUENCY,
            clock_ppm: CLOCK_PPM,
            ..ChannelSettings::default()
        },
        receiver: RxConfig::default(),
        frames,
        errors: u64::MAX,
        seed: 21,
    }
}

fn run(trials: &[Trial]) -> Vec<TrialPoint> {
    let print = |point: &TrialPoint| {
        let result = &point.result;
        println!(
            "{} at {:.2} dB: {} of {} bits wrong, loss {:?}, {} of {} lost, {} with another modulation",
            point.modulation,
            point.eb_n0_db,
            result.errors,
            result.bits,
            point.loss_db,
            result.lost,
            result.sent,
            result.wrong_mode,
        );
    };
    run_trials(trials, threads(), print).unwrap()
}

#[test]
#[ignore = "takes a minute: docs/tests.md names the step"]
fn of_a_thousand_frames_none_is_undetected_at_3_db() {
    let points = run(&[3.0, 0.0].map(|eb_n0_db| trial(Modulation::Bpsk, eb_n0_db, 1000)));
    for point in &points {
        assert_eq!((point.result.lost, point.result.false_frames), (0, 0));
        // The goal is what theory has for the original's majority of decided bits.
        let goal = mode_error_rate(
            ModeVote::Majority,
            ModeSet::Cyclops,
            Modulation::Bpsk,
            point.eb_n0_db,
        );
        assert!(point.result.wrong_mode_interval.low <= goal, "{point:?}");
    }
}

/// Also ±400 kHz and ±100 ppm.
#[test]
#[ignore = "takes a minute: docs/tests.md names the step"]
fn offsets_of_300_khz_and_50_ppm_cost_nothing() {
    let mut trials = Vec::new();
    for (hertz, ppm) in [(300e3, 50.0), (400e3, 100.0)] {
        for (hertz, ppm) in [(hertz, ppm), (-hertz, ppm), (hertz, -ppm), (-hertz, -ppm)] {
            for modulation in Modulation::CYCLOPS {
                let eb_n0_db = required_eb_n0(modulation, 1e-3).unwrap();
                let mut trial = trial(modulation, eb_n0_db, 30);
                trial.channel.frequency = hertz / 80e6;
                trial.channel.clock_ppm = ppm;
                trials.push(trial);
            }
        }
    }
    for point in run(&trials) {
        assert_eq!((point.result.lost, point.result.wrong_mode), (0, 0));
        assert!(point.loss_db.unwrap() < 0.3, "{point:?}");
    }
}

/// The must is 1e-3 with 16 taps, the aim 5e-5 with 64.
#[test]
#[ignore = "takes a minute: docs/tests.md names the step"]
fn echoes_of_cost207rax4_are_taken_out() {
    let trials = [16, 64].map(|taps| {
        let mut trial = trial(Modulation::Qam16, 18.0, 200);
        trial.channel.paths = Profile::Cost207RaX4.paths();
        trial.receiver.taps = taps;
        trial
    });
    let points = run(&trials);
    for (point, most) in points.iter().zip([1e-3, 5e-5]) {
        assert_eq!(point.result.lost, 0);
        assert!(point.result.interval.unwrap().high < most, "{point:?}");
    }
}
